"""The latency law, applied to the work of a pass: once on ceilings alone, once with the constants of a calibration."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from capacity.arrays import ArrayLike, FloatArray, IntArray
from capacity.demand.passes import Work, WorkBlock
from capacity.demand.phases import Phase
from capacity.formulas import latency
from capacity.specs.base import FrozenMapping
from capacity.specs.calibration import Calibration
from capacity.supply.ceilings import Ceilings


@dataclass(frozen=True, eq=False)
class OperatorTimes:
    """Times of the operators of one pass, by name, each in a shape that broadcasts to that of the pass: the whole, its
    memory side and its compute side. [s]"""

    names: tuple[str, ...]
    pass_s: list[FloatArray]
    memory_s: list[FloatArray]
    compute_s: list[FloatArray]

    @property
    def total_s(self) -> FloatArray:
        """Sum over operators, one after another. [s]"""
        return np.asarray(sum(self.pass_s))

    @property
    def largest(self) -> tuple[IntArray, FloatArray]:
        """Code of the operator that takes longest, and its time: twice its index, plus one where compute takes longer
        in it. [s]"""
        code: IntArray = np.asarray(self.compute_s[0] > self.memory_s[0], dtype=np.int64)
        best = self.pass_s[0]
        for index in range(1, len(self.names)):
            own = 2 * index + (self.compute_s[index] > self.memory_s[index])
            longer = self.pass_s[index] > best
            code, best = np.where(longer, own, code), np.maximum(best, self.pass_s[index])
        return code, best


def operator_times(work: Work, moved_bytes: list[FloatArray], ceilings: Ceilings) -> OperatorTimes:
    """Each operator at its own roofline, rows of one name together.

    Parameters
    ----------
    work : Work
        Bytes and FLOP by row.
    moved_bytes : list of ndarray
        Bytes that are charged, by row of each block. [B]
    ceilings : Ceilings
        Rates of the device.
    """
    sums: dict[str, list[FloatArray]] = {}
    for block, moved in zip(work.blocks, moved_bytes, strict=True):
        peaks = rates_of(block, ceilings)
        memory, compute = moved / ceilings.bytes_per_s, block.flop / peaks
        whole = latency.operator_s(
            moved,
            block.flop,
            bytes_per_s=ceilings.bytes_per_s,
            flop_per_s=peaks,
            memory_efficiency=1.0,
            flop_efficiency=1.0,
        )
        for row, name in enumerate(block.operators):
            own = [whole[row], memory[row], compute[row]]
            sums[name] = [a + b for a, b in zip(sums[name], own, strict=True)] if name in sums else own
    columns = [list(column) for column in zip(*sums.values(), strict=True)]
    return OperatorTimes(tuple(sums), columns[0], columns[1], columns[2])


def rates_of(block: WorkBlock, ceilings: Ceilings) -> FloatArray:
    """Peak of the compute format of each row, shaped to broadcast with the pass. [FLOP/s]"""
    return _rates(block.compute_formats, ceilings, block.flop.ndim)


@lru_cache(maxsize=1024)
def _rates(compute_formats: tuple[str, ...], ceilings: Ceilings, dimensions: int) -> FloatArray:
    rates = np.array([ceilings.flop_per_s[name] for name in compute_formats])
    return rates.reshape((-1,) + (1,) * (dimensions - 1))


def charged_bytes(work: Work, cache_bytes: int) -> list[FloatArray]:
    """Bytes of each row of each block; weights that all fit the last-level cache together are not charged. [B]"""
    kept = work.weight_bytes < cache_bytes
    if not np.any(kept):
        return [block.moved_bytes for block in work.blocks]
    return [np.where(kept, block.moved_bytes - block.weight_bytes, block.moved_bytes) for block in work.blocks]


def ceiling_s(times: OperatorTimes, ceilings: Ceilings, *, launches: int, comm_s: ArrayLike) -> FloatArray:
    """Time of a pass on ceilings alone: its operators, launches and links. Shape: of the pass. [s]

    Parameters
    ----------
    times : OperatorTimes
        Times of the operators.
    ceilings : Ceilings
        Rates of the device and the time of one launch.
    launches : int
        Kernel launches. [1]
    comm_s : array_like
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
