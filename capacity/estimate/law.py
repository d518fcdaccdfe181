"""The latency law, applied to the work of a pass: once on ceilings alone, once with the constants of a calibration."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from capacity.arrays import FloatArray
from capacity.demand.stage_phase import Phase
from capacity.demand.work import Work, WorkBlock
from capacity.formulas import latency, roofline
from capacity.specs.calibration import Calibration
from capacity.supply.ceilings import Ceilings
from capacity.units import Arithmetic


@dataclass(frozen=True, eq=False)
class BlockSides:
    """Rows of one block of a work: bytes and FLOP, and the rates that turn them into the time of either side.

    Times are left to the reader, since those of an array of passes take more memory than all that is made of them.
    """

    block: WorkBlock
    moved_bytes: FloatArray
    bytes_per_s: FloatArray | float
    flop_per_s: FloatArray


@dataclass(frozen=True, eq=False)
class OperatorTimes:
    """Times of the operators of one pass of an ordinary engine, and their sum, one after another. [s]

    Of an array of passes only the sum is kept; ``rows`` and ``rows_s``, the times of their rows, are of a single pass.
    """

    rows: tuple[BlockSides, ...]
    rows_s: tuple[FloatArray, ...]
    total_s: FloatArray


@dataclass(frozen=True, eq=False)
class LeastTimes:
    """Memory and compute time of the least work of one pass, and the larger of the two. [s]

    ``rows`` hold the shares of the operators, before what a last-level cache keeps is taken away.
    """

    rows: tuple[BlockSides, ...]
    idle: tuple[tuple[str, FloatArray], ...]
    memory_s: FloatArray
    compute_s: FloatArray
    bound_s: FloatArray


def operator_times(work: Work, ceilings: Ceilings, *, routing_exponent: float) -> OperatorTimes:
    """Each operator at its own roofline.

    Parameters
    ----------
    work : Work
        Bytes and FLOP of a pass.
    ceilings : Ceilings
        Rates of the device.
    routing_exponent : float
        1 where tokens visit experts independently; see `capacity.formulas.experts`. [1]
    """
    rows, rows_s, total = [], [], np.asarray(0.0)
    for block in work.blocks:
        moved, peaks = block.bytes_at(routing_exponent), peaks_of(block.arithmetic, ceilings, block.flop.ndim)
        share = _read_shares(block.arithmetic, ceilings, block.flop.ndim) if ceilings.read_share else 1.0
        time_s = latency.operator_s(
            moved,
            block.flop,
            bytes_per_s=ceilings.bytes_per_s,
            flop_per_s=peaks,
            memory_efficiency=share,
            flop_efficiency=1.0,
        )
        if time_s.ndim == 1:
            rows.append(BlockSides(block, moved, share * ceilings.bytes_per_s, peaks))
            rows_s.append(time_s)
        total = total + time_s.sum(axis=0)
    return OperatorTimes(tuple(rows), tuple(rows_s), total)


def least_times(work: Work, ceilings: Ceilings) -> LeastTimes:
    """Times of the least work of a pass; see `capacity.formulas.roofline.least_work`.

    Parameters
    ----------
    work : Work
        Bytes and FLOP of a pass.
    ceilings : Ceilings
        Rates that no engine exceeds, and the last-level cache.
    """
    rows, moved, surplus = [], np.asarray(0.0), np.asarray(0.0)
    flop: dict[Arithmetic, FloatArray] = {}
    for block in work.blocks:
        fewest = block.fewest_bytes
        peaks = peaks_of(block.arithmetic, ceilings, block.flop.ndim)
        rows.append(BlockSides(block, fewest, ceilings.bytes_per_s, peaks))
        moved = moved + block.moved_bytes.sum(axis=0)
        if block.routed:
            surplus = surplus + (block.moved_bytes - fewest).sum(axis=0)
        for item, selection in _rows_by_arithmetic(block.arithmetic):
            computed = block.flop[selection].sum(axis=0)
            flop[item] = flop[item] + computed if item in flop else computed
    idle, skipped = [], dict.fromkeys(flop, np.asarray(0.0))
    for operator, item, count in work.idle:
        skipped[item] = skipped[item] + count
        idle.append((operator, count / ceilings.flop_per_s[item]))
    least_bytes, least_flop = roofline.least_work(
        moved,
        _stacked(flop),
        surplus_expert_bytes=surplus,
        cache_bytes=ceilings.cache_bytes,
        idle_flop=_stacked(skipped) if idle else 0.0,
    )
    compute_s = np.asarray(0.0)
    for row, item in enumerate(flop):
        compute_s = compute_s + least_flop[row] / ceilings.flop_per_s[item]
    memory_s = least_bytes / ceilings.bytes_per_s
    return LeastTimes(tuple(rows), tuple(idle), memory_s, compute_s, roofline.bound_s(memory_s, compute_s))


def _stacked(table: dict[Arithmetic, FloatArray]) -> FloatArray:
    """The values of a table along a new first axis."""
    values = list(table.values())
    return values[0][None] if len(values) == 1 else np.array(np.broadcast_arrays(*values))


@lru_cache(maxsize=1024)
def _rows_by_arithmetic(arithmetic: tuple[Arithmetic, ...]) -> tuple[tuple[Arithmetic, list[int] | slice], ...]:
    """The rows of each arithmetic."""
    if len(set(arithmetic)) == 1:
        return ((arithmetic[0], slice(None)),)
    rows: dict[Arithmetic, list[int]] = {}
    for row, item in enumerate(arithmetic):
        rows.setdefault(item, []).append(row)
    return tuple(rows.items())


@lru_cache(maxsize=1024)
def peaks_of(arithmetic: tuple[Arithmetic, ...], ceilings: Ceilings, dimensions: int) -> FloatArray:
    """Peak of the path of each row, shaped to broadcast with the pass. [FLOP/s]"""
    rates = np.array([ceilings.flop_per_s[item] for item in arithmetic])
    return rates.reshape((-1,) + (1,) * (dimensions - 1))


@lru_cache(maxsize=1024)
def _read_shares(arithmetic: tuple[Arithmetic, ...], ceilings: Ceilings, dimensions: int) -> FloatArray:
    """The share of the read rate that each row reaches, shaped to broadcast with the pass. [1]"""
    shares = np.array([ceilings.read_share.get(item, 1.0) for item in arithmetic])
    return shares.reshape((-1,) + (1,) * (dimensions - 1))


def ceiling_s(times: OperatorTimes, ceilings: Ceilings, *, launches: int, comm_s: FloatArray) -> FloatArray:
    """Time of a pass on ceilings alone: its operators, launches and messages. Shape: of the pass. [s]

    Parameters
    ----------
    times : OperatorTimes
        Times of the operators.
    ceilings : Ceilings
        Rates of the device and the time of one launch.
    launches : int
        Kernel launches. [1]
    comm_s : ndarray
        Time on links. [s]

    Returns
    -------
    ndarray
        In the shape of the pass. [s]
    """
    return latency.step_s(
        times.total_s,
        layers=0,
        layer_s=0.0,
        launches=launches,
        launch_s=ceilings.launch_s,
        sequences=0,
        sequence_s=0.0,
        comm_s=comm_s,
        host_floor_s=0.0,
        prefill_share=0.0,
    )


def calibrated_s(phase: Phase, ceilings: Ceilings, calibration: Calibration) -> FloatArray:
    """Time of one pass on one device by the law with the constants of a calibration. Shape: of the pass. [s]

    Parameters
    ----------
    phase : Phase
        Work of one pass, layers and sequences.
    ceilings : Ceilings
        Rates of which the calibration's efficiencies are shares.
    calibration : Calibration
        Constants.

    Returns
    -------
    ndarray
        In the shape of the pass. [s]
    """
    total: FloatArray = np.asarray(0.0)
    for block in phase.work.blocks:
        memory_efficiency, flop_efficiency = _efficiencies(calibration, block.operators, block.flop.ndim)
        operators = latency.operator_s(
            block.moved_bytes,
            block.flop,
            bytes_per_s=ceilings.bytes_per_s,
            flop_per_s=peaks_of(block.arithmetic, ceilings, block.flop.ndim),
            memory_efficiency=memory_efficiency,
            flop_efficiency=flop_efficiency,
        )
        total = total + operators.sum(axis=0)
    return latency.step_s(
        total,
        layers=phase.layers,
        layer_s=calibration.layer_s,
        launches=phase.work.launches,
        launch_s=calibration.launch_s,
        sequences=phase.sequences,
        sequence_s=calibration.sequence_s,
        comm_s=0.0,  # no calibration covers several devices
        host_floor_s=calibration.host_floor_s,
        prefill_share=calibration.prefill_share,
    )


@lru_cache(maxsize=1024)
def _efficiencies(calibration: Calibration, operators: tuple[str, ...], dimensions: int) -> FloatArray:
    """Memory and FLOP efficiency of each row, shaped to broadcast with the pass. Shape: (2, rows, 1, ...). [1]"""
    tables = (calibration.memory_efficiency, calibration.flop_efficiency)
    shares = np.array([[table.get(name, table.get("default", 1.0)) for name in operators] for table in tables])
    return shares.reshape((2, -1) + (1,) * (dimensions - 1))
