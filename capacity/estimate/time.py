"""The time of each phase of a case: bound, roofline and calibrated estimate.

One law over phases and ceilings: TPOT is the decode phase, TTFT encode and prefill, a decision of a world model the
sum of its phases. Attainable times are in `capacity.estimate.attainable`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from capacity.arrays import FloatArray
from capacity.demand.stage_phase import Phase
from capacity.estimate.calibrated import calibration_for
from capacity.estimate.case import Case
from capacity.estimate.law import LeastTimes, OperatorTimes, calibrated_s, least_times, operator_times
from capacity.formulas.pipeline import rank_weights
from capacity.specs.calibration import Calibration
from capacity.supply.ceilings import Ceilings, measured_ceilings, sheet_ceilings
from capacity.units import Arithmetic

ONCE = np.asarray(1.0)


@dataclass(frozen=True, eq=False)
class PhaseFigures:
    """One phase on a part: times of all its passes, in the shape of the batch. [s]

    ``memory_s`` and ``compute_s`` are how long the least work keeps each side busy. ``least`` and ``operators`` are the
    times of one pass on each kind of pipeline rank, ``bound_weights`` and ``roofline_weights`` how often each counts.
    ``value_s`` is None where no calibration covers the phase.
    """

    phase: Phase
    least: list[LeastTimes]
    operators: list[OperatorTimes]
    bound_weights: list[FloatArray]
    roofline_weights: list[FloatArray]
    bound_s: FloatArray
    roofline_s: FloatArray
    memory_s: FloatArray
    compute_s: FloatArray
    value_s: FloatArray | None
    calibration: Calibration | None


def arithmetic_of(phases: Sequence[Phase]) -> frozenset[Arithmetic]:
    """How the operators of some phases are stored and computed.

    Parameters
    ----------
    phases : sequence of Phase
        In the order in which they run.
    """
    items: set[Arithmetic] = set()
    for phase in phases:
        for item in phase.by_rank:
            items |= item.work.arithmetic
    return frozenset(items)


@dataclass(frozen=True, eq=False)
class BoundFigures:
    """The least work of one phase on each kind of pipeline rank, how often each counts, and its bound. [s]"""

    least: list[LeastTimes]
    weights: list[FloatArray]
    bound_s: FloatArray
    value_s: FloatArray | None


def bound_figures(case: Case, phase: Phase, highest: Ceilings, calibration: Calibration | None) -> BoundFigures:
    """Bound of one phase, and its estimate with a calibration; no estimate lies below the bound.

    Parameters
    ----------
    case : Case
        Model, part and deployment.
    phase : Phase
        Work of its passes.
    highest : Ceilings
        Those of the bound.
    calibration : Calibration or None
        Constants of the law.
    """
    least = []
    for item in phase.by_rank:
        least.append(least_times(item.least, highest))
    weights = [ONCE] if phase.on_one_rank else weights_of([item.bound_s for item in least], phase)
    bound = np.asarray(phase.passes * weighted([item.bound_s for item in least], weights))
    if calibration is None:
        return BoundFigures(least, weights, bound, None)
    rates = efficiency_ceilings(case, frozenset(highest.flop_per_s), calibration)
    value = np.maximum(bound, phase.passes * calibrated_s(phase, rates, calibration))
    return BoundFigures(least, weights, bound, value)


def phase_figures(
    case: Case, phase: Phase, ceilings: tuple[Ceilings, Ceilings], calibration: Calibration | None
) -> PhaseFigures:
    """Bound and roofline of one phase, and its estimate with a calibration.

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
    operators = []
    for item in phase.by_rank:
        operators.append(operator_times(item.work, sheet, routing_exponent=1.0))
    bound = bound_figures(case, phase, highest, calibration)
    rooflines = [item.total_s for item in operators]
    weights = [ONCE] if phase.on_one_rank else weights_of(rooflines, phase)
    passes = phase.passes
    return PhaseFigures(
        phase=phase,
        least=bound.least,
        operators=operators,
        bound_weights=bound.weights,
        roofline_weights=weights,
        bound_s=bound.bound_s,
        roofline_s=np.asarray(passes * weighted(rooflines, weights)),
        memory_s=np.asarray(passes * weighted([item.memory_s for item in bound.least], bound.weights)),
        compute_s=np.asarray(passes * weighted([item.compute_s for item in bound.least], bound.weights)),
        value_s=bound.value_s,
        calibration=calibration,
    )


def weights_of(rank_s: Sequence[FloatArray], phase: Phase) -> list[FloatArray]:
    """How often the time of each kind of pipeline rank counts in a pass. [1]

    Parameters
    ----------
    rank_s : sequence of ndarray
        Time of one turn of each kind of rank. [s]
    phase : Phase
        Its ranks and turns.

    Returns
    -------
    list of ndarray
        One for each kind of rank, in the shape of its time. [1]
    """
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
        return measured_ceilings(hardware, arithmetic, calibration.typical_share)
    sheet = sheet_ceilings(hardware, arithmetic)
    return replace(sheet, bytes_per_s=calibration.read_bytes_per_s or sheet.bytes_per_s)


def calibrations_of(case: Case, phases: Sequence[Phase]) -> list[Calibration | None]:
    """The calibration of each phase: all of them or none, since a part of a sum is no estimate of it.

    Parameters
    ----------
    case : Case
        Model, part and deployment.
    phases : sequence of Phase
        In the order in which they run.
    """
    calibrations = [calibration_for(case, phase.name) for phase in phases]
    return [None] * len(calibrations) if None in calibrations else calibrations


def total(parts: Sequence[FloatArray]) -> FloatArray:
    """The sum of some times, in their broadcast shape. [s]

    Parameters
    ----------
    parts : sequence of ndarray
        Times that broadcast. [s]

    Returns
    -------
    ndarray
        In the broadcast shape of all. [s]
    """
    result = parts[0]
    for part in parts[1:]:
        result = result + part
    return np.asarray(result)
