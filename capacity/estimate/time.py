"""The time of each phase of a case: bound, roofline and calibrated estimate.

One law over phases and ceilings: TPOT is the decode phase, TTFT encode and prefill, a decision of a world model the
sum of its phases. Attainable times are in `capacity.estimate.attainable`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from capacity.arrays import FloatArray
from capacity.demand.phases import Phase
from capacity.estimate.calibrated import calibration_for
from capacity.estimate.case import Case
from capacity.estimate.law import LeastTimes, OperatorTimes, calibrated_s, least_times, operator_times
from capacity.formulas.pipeline import rank_weights
from capacity.results import OperatorRow
from capacity.specs.calibration import Calibration
from capacity.supply.ceilings import Ceilings, measured_ceilings, sheet_ceilings
from capacity.units import Arithmetic

SIDES = ("memory", "compute")


@dataclass(frozen=True, eq=False)
class PhaseFigures:
    """One phase on a part: times of all its passes, in the shape of the batch. [s]

    ``least`` and ``operators`` are the times of one pass on each kind of pipeline rank, ``bound_weights`` and
    ``roofline_weights`` how often each counts. ``value_s`` is None where no calibration covers the phase.
    """

    phase: Phase
    least: list[LeastTimes]
    operators: list[OperatorTimes]
    bound_weights: list[FloatArray]
    roofline_weights: list[FloatArray]
    bound_s: FloatArray
    roofline_s: FloatArray
    value_s: FloatArray | None
    calibration: Calibration | None

    @property
    def memory_s(self) -> FloatArray:
        """Memory time of the least work of all passes. [s]"""
        return self.phase.passes * weighted([item.memory_s for item in self.least], self.bound_weights)

    @property
    def compute_s(self) -> FloatArray:
        """Compute time of the least work of all passes. [s]"""
        return self.phase.passes * weighted([item.compute_s for item in self.least], self.bound_weights)

    @property
    def least_by_operator(self) -> dict[str, list[FloatArray]]:
        """Memory and compute time of each operator in the least work of all passes. [s]"""
        return _by_operator([item.by_operator for item in self.least], self.bound_weights, self.phase.passes)

    @property
    def by_operator(self) -> dict[str, list[FloatArray]]:
        """Time of each operator of all passes, its memory side and its compute side, which sum to the roofline. [s]"""
        return _by_operator([item.by_operator for item in self.operators], self.roofline_weights, self.phase.passes)


def arithmetic_of(phases: Sequence[Phase]) -> frozenset[Arithmetic]:
    """How the operators of some phases are stored and computed."""
    return frozenset().union(*[item.work.arithmetic for phase in phases for item in phase.by_rank])


def phase_figures(
    case: Case, phase: Phase, ceilings: tuple[Ceilings, Ceilings], calibration: Calibration | None
) -> PhaseFigures:
    """Bound and roofline of one phase, and its estimate with a calibration; no estimate lies below the bound.

    Parameters
    ----------
    case : Case
        Model, part and deployment.
    phase : Phase
        Work of its passes.
    ceilings : tuple of Ceilings
        Those of the bound, and the datasheet's.
    calibration : Calibration or None
        Constants of the law.
    """
    highest, sheet = ceilings
    least = [least_times(item.least, highest) for item in phase.by_rank]
    operators = [operator_times(item.work, sheet, routing_exponent=1.0) for item in phase.by_rank]
    bounds, rooflines = [item.bound_s for item in least], [item.total_s for item in operators]
    bound_weights, roofline_weights = weights_of(bounds, phase), weights_of(rooflines, phase)
    bound, value = phase.passes * weighted(bounds, bound_weights), None
    if calibration is not None:
        rates = efficiency_ceilings(case, frozenset(sheet.flop_per_s), calibration)
        value = np.maximum(bound, phase.passes * calibrated_s(phase, rates, calibration))
    return PhaseFigures(
        phase,
        least,
        operators,
        bound_weights,
        roofline_weights,
        bound,
        phase.passes * weighted(rooflines, roofline_weights),
        value,
        calibration,
    )


def weights_of(rank_s: Sequence[FloatArray], phase: Phase) -> list[FloatArray]:
    """How often the time of each kind of pipeline rank counts in a pass. [1]

    Parameters
    ----------
    rank_s : sequence of ndarray
        Time of one turn of each kind of rank. [s]
    phase : Phase
        Its ranks and turns.
    """
    if len(rank_s) == 1 and phase.by_rank[0].ranks == 1:
        return [np.asarray(1.0)]
    times = np.array(np.broadcast_arrays(*rank_s))
    return list(rank_weights(times, [item.ranks for item in phase.by_rank], turns=phase.turns, flows=phase.flows))


def weighted(values: Sequence[FloatArray], weights: Sequence[FloatArray]) -> FloatArray:
    """The sum of times, each as often as it counts. Shape: broadcast. [s]

    Parameters
    ----------
    values : sequence of ndarray
        A time for each kind of pipeline rank. [s]
    weights : sequence of ndarray
        How often each counts. [1]

    Returns
    -------
    ndarray
        In the broadcast shape of all. [s]
    """
    if len(values) == 1:
        return np.asarray(values[0] * weights[0])
    return np.asarray(sum([value * weight for value, weight in zip(values, weights, strict=True)]))


@lru_cache(maxsize=512)
def efficiency_ceilings(case: Case, arithmetic: frozenset[Arithmetic], calibration: Calibration) -> Ceilings:
    """The rates to which the efficiencies of a calibration apply.

    Raises
    ------
    CapacityError
        If the part has no path for some of it.
    """
    hardware = case.hardware
    if calibration.typical_share is not None:
        measured = measured_ceilings(hardware, arithmetic, calibration.typical_share)
        if measured is not None:
            return measured
    sheet = sheet_ceilings(hardware, arithmetic)
    return replace(sheet, bytes_per_s=calibration.read_bytes_per_s or sheet.bytes_per_s)


def calibrations_of(case: Case, phases: Sequence[Phase]) -> list[Calibration | None]:
    """The calibration of each phase: all of them or none, since a part of a sum is no estimate of it."""
    found = [calibration_for(case, phase.name) for phase in phases]
    return [None] * len(found) if None in found else found


def total(parts: Sequence[FloatArray]) -> FloatArray:
    """The sum of some times, in their broadcast shape. [s]"""
    result = parts[0]
    for part in parts[1:]:
        result = result + part
    return np.asarray(result)


def bound_side(figures: Sequence[PhaseFigures]) -> FloatArray:
    """Which side takes most of a bound: 0 where phases bound by memory do, 1 for compute. Shape: of the bound. [1]"""
    by_side = [np.where(item.compute_s > item.memory_s, item.bound_s, -item.bound_s) for item in figures]
    return np.asarray(total(by_side) > 0, dtype=np.int64)


def largest_operator(figures: Sequence[PhaseFigures]) -> tuple[tuple[str, ...], FloatArray]:
    """Names of the operators of all phases, and the index of the one that takes longest on the side that binds. [1]"""
    side = bound_side(figures)
    names: list[str] = []
    best: FloatArray = np.asarray(-1.0)
    code: FloatArray = np.asarray(0)
    for item in figures:
        lead = f"{item.phase.name} " if len(figures) > 1 else ""
        for name, (memory_s, compute_s) in item.least_by_operator.items():
            own = np.where(side == 0, memory_s, compute_s)
            code, best = np.where(own > best, len(names), code), np.maximum(best, own)
            names.append(lead + name)
    return tuple(names), code


def operator_rows(figures: Sequence[PhaseFigures]) -> Iterator[OperatorRow]:
    """Operators of scalar figures, which sum to the roofline: bytes, FLOP, time, and which of the two takes longer."""
    for item in figures:
        lead = f"{item.phase.name} " if len(figures) > 1 else ""
        counts = [{name: list(rank.work.of_operator(name)) for name in times.by_operator}
                  for rank, times in zip(item.phase.by_rank, item.operators, strict=True)]  # fmt: skip
        amounts = _by_operator(counts, item.roofline_weights, item.phase.passes)
        for name, (whole_s, memory_s, compute_s) in item.by_operator.items():
            moved, flop = amounts[name]
            side = SIDES[int(compute_s > memory_s)]
            yield OperatorRow(lead + name, float(moved), float(flop), float(whole_s), side)


def _by_operator(
    ranks: Sequence[dict[str, list[FloatArray]]], weights: Sequence[FloatArray], passes: int
) -> dict[str, list[FloatArray]]:
    """Columns of each operator over the pipeline ranks that have it, weighted and for all passes."""
    sums: dict[str, list[FloatArray]] = {}
    for table, weight in zip(ranks, weights, strict=True):
        for name, columns in table.items():
            own = [passes * weight * column for column in columns]
            sums[name] = [a + b for a, b in zip(sums[name], own, strict=True)] if name in sums else own
    return sums
