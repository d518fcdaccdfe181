"""The latency law, applied to the work of a pass: once on ceilings alone, once with the constants of a calibration."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from capacity.arrays import FloatArray
from capacity.demand.passes import Work, WorkBlock
from capacity.demand.phases import Phase
from capacity.formulas import latency, roofline
from capacity.specs.base import FrozenMapping
from capacity.specs.calibration import Calibration
from capacity.supply.ceilings import Ceilings
from capacity.units import Arithmetic


@dataclass(frozen=True, eq=False)
class OperatorTimes:
    """Times of one pass of an ordinary engine: for each operator the whole, its memory side and its compute side. [s]

    Each has a shape that broadcasts to that of the pass.
    """

    by_operator: dict[str, list[FloatArray]]

    @property
    def total_s(self) -> FloatArray:
        """Sum over operators, one after another. [s]"""
        return np.asarray(sum([whole for whole, _, _ in self.by_operator.values()]))


@dataclass(frozen=True, eq=False)
class LeastTimes:
    """Memory and compute time of the least work of one pass, and of each of its operators. [s]"""

    memory_s: FloatArray
    compute_s: FloatArray
    by_operator: dict[str, list[FloatArray]]

    @property
    def bound_s(self) -> FloatArray:
        """Time of the whole pass, perfectly overlapped. [s]"""
        return roofline.bound_s(self.memory_s, self.compute_s)


def operator_times(work: Work, ceilings: Ceilings, *, routing_exponent: float) -> OperatorTimes:
    """Each operator at its own roofline, rows of one name together.

    Parameters
    ----------
    work : Work
        Bytes and FLOP of a pass.
    ceilings : Ceilings
        Rates of the device.
    routing_exponent : float
        1 where tokens visit experts independently; see `capacity.formulas.experts`. [1]
    """
    sums: dict[str, list[FloatArray]] = {}
    for block in work.blocks:
        moved, peaks = block.bytes_at(routing_exponent), rates_of(block, ceilings)
        share = _read_shares(block.arithmetic, ceilings, block.flop.ndim)
        memory, compute = moved / (share * ceilings.bytes_per_s), block.flop / peaks
        whole = latency.operator_s(
            moved,
            block.flop,
            bytes_per_s=ceilings.bytes_per_s,
            flop_per_s=peaks,
            memory_efficiency=share,
            flop_efficiency=1.0,
        )
        _add(sums, block.operators, (whole, memory, compute))
    return OperatorTimes(sums)


def _add(sums: dict[str, list[FloatArray]], names: tuple[str, ...], columns: tuple[FloatArray, ...]) -> None:
    """Rows of ``columns`` added to the sums of their names."""
    for row, name in enumerate(names):
        own = [column[row] for column in columns]
        sums[name] = [a + b for a, b in zip(sums[name], own, strict=True)] if name in sums else own


def least_times(work: Work, ceilings: Ceilings) -> LeastTimes:
    """Times of the least work of a pass; see `capacity.formulas.roofline.least_work`.

    Parameters
    ----------
    work : Work
        Bytes and FLOP of a pass.
    ceilings : Ceilings
        Rates that no engine exceeds, and the last-level cache.
    """
    sums: dict[str, list[FloatArray]] = {}
    for block in work.blocks:
        _add(sums, block.operators, (block.fewest_bytes / ceilings.bytes_per_s, block.flop / rates_of(block, ceilings)))
    flop, idle = work.flop_by_arithmetic, work.idle_flop_by_arithmetic
    for operator, name, skipped in work.idle:
        sums[operator][1] = sums[operator][1] - skipped / ceilings.flop_per_s[name]
    moved, computed = roofline.least_work(
        work.moved_bytes,
        _stacked(flop, like=flop),
        surplus_expert_bytes=work.surplus_expert_bytes,
        cache_bytes=ceilings.cache_bytes,
        idle_flop=_stacked(idle, like=flop) if idle else 0.0,
    )
    compute_s = sum([computed[row] / ceilings.flop_per_s[name] for row, name in enumerate(flop)])
    return LeastTimes(moved / ceilings.bytes_per_s, np.asarray(compute_s), sums)


def _stacked(table: dict[Arithmetic, FloatArray], *, like: dict[Arithmetic, FloatArray]) -> FloatArray:
    """The values of a table along a new first axis, in the broadcast shape of another."""
    shape = np.broadcast_shapes(*[np.shape(value) for value in like.values()])
    return np.array([np.broadcast_to(value, shape) for value in table.values()])


def rates_of(block: WorkBlock, ceilings: Ceilings) -> FloatArray:
    """Peak of the path of each row, shaped to broadcast with the pass. [FLOP/s]"""
    return _rates(block.arithmetic, ceilings, block.flop.ndim)


@lru_cache(maxsize=1024)
def _rates(arithmetic: tuple[Arithmetic, ...], ceilings: Ceilings, dimensions: int) -> FloatArray:
    rates = np.array([ceilings.flop_per_s[item] for item in arithmetic])
    return rates.reshape((-1,) + (1,) * (dimensions - 1))


@lru_cache(maxsize=1024)
def _read_shares(arithmetic: tuple[Arithmetic, ...], ceilings: Ceilings, dimensions: int) -> FloatArray:
    """The share of the read rate that each row reaches, shaped to broadcast with the pass. [1]"""
    if not ceilings.read_share:
        return np.asarray(1.0)
    shares = np.array([ceilings.read_share.get(item, 1.0) for item in arithmetic])
    return shares.reshape((-1,) + (1,) * (dimensions - 1))


def ceiling_s(times: OperatorTimes, ceilings: Ceilings, *, launches: int) -> FloatArray:
    """Time of a pass on ceilings alone: its operators and launches. Shape: of the pass. [s]

    Parameters
    ----------
    times : OperatorTimes
        Times of the operators.
    ceilings : Ceilings
        Rates of the device and the time of one launch.
    launches : int
        Kernel launches. [1]

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
        comm_s=0.0,
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
    """
    total: FloatArray = np.asarray(0.0)
    for block in phase.work.blocks:
        operators = latency.operator_s(
            block.moved_bytes,
            block.flop,
            bytes_per_s=ceilings.bytes_per_s,
            flop_per_s=rates_of(block, ceilings),
            memory_efficiency=_efficiencies(calibration.memory_efficiency, block.operators, block.flop.ndim),
            flop_efficiency=_efficiencies(calibration.flop_efficiency, block.operators, block.flop.ndim),
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
        comm_s=0.0,
        host_floor_s=calibration.host_floor_s,
        prefill_share=calibration.prefill_share,
    )


@lru_cache(maxsize=1024)
def _efficiencies(table: FrozenMapping[str, float], operators: tuple[str, ...], dimensions: int) -> FloatArray:
    """The efficiency of each row, shaped to broadcast with the pass. [1]"""
    default = table.get("default", 1.0)
    shares = np.array([table.get(name, default) for name in operators])
    return shares.reshape((-1,) + (1,) * (dimensions - 1))
