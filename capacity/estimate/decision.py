"""One decision of a world model on a part: its phases with bound and, by launch mode, estimate; and its memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from capacity.arrays import FloatArray, plain
from capacity.demand.stage_phase import Phase
from capacity.errors import CapacityError
from capacity.estimate.band import band_of
from capacity.estimate.calibrated import describe
from capacity.estimate.case import Case
from capacity.estimate.operators import SIDES, bound_side, largest_operator
from capacity.estimate.time import (
    PhaseFigures,
    arithmetic_of,
    bound_figures,
    calibrations_of,
    efficiency_ceilings,
    phase_figures,
    total,
)
from capacity.results import Decision, PhaseTime
from capacity.specs.calibration import Calibration
from capacity.supply.ceilings import bound_ceilings


def decide(case: Case, phases: Sequence[Phase]) -> Decision:
    """Bound of one decision and, where calibrations cover the launch mode of every phase, its estimate.

    Parameters
    ----------
    case : Case
        World model, part and deployment with its launch mode.
    phases : sequence of Phase
        In the order in which they run, in the shape of one batch or of several.

    Returns
    -------
    Decision
        Times as floats, or as arrays in the shape of the phases. [s]

    Raises
    ------
    CapacityError
        If there is no phase, a phase has no pass, or the part has no path for a compute format.
    """
    figures = decision_figures(case, phases)
    times = tuple([_phase_time(case, item) for item in figures])
    bound = plain(total([item.bound_s for item in figures]))
    roofline = plain(total([item.roofline_s for item in figures]))
    highest, sheet = case.ceilings(arithmetic_of(phases))
    notes = tuple(dict.fromkeys([*highest.notes, *sheet.notes]))
    band, assumed = band_of(figures), case.assumed
    if band is None:
        return Decision(times, bound, roofline, None, None, None, "computed", notes, assumed=assumed)
    notes_of_calibrations = _remarks(case, phases, [item.calibration for item in figures if item.calibration])
    low, value, high = plain(band.low_s), plain(band.value_s), plain(band.high_s)
    remarks = tuple(dict.fromkeys([*notes, *notes_of_calibrations]))
    return Decision(times, bound, roofline, value, low, high, "calibrated", remarks, assumed=assumed)


def decision_figures(case: Case, phases: Sequence[Phase]) -> list[PhaseFigures]:
    """Every phase of a decision with its times.

    Parameters
    ----------
    case : Case
        Model, part and deployment.
    phases : sequence of Phase
        In the order in which they run.

    Raises
    ------
    CapacityError
        As `decide`.
    """
    _check_phases(phases)
    ceilings = case.ceilings(arithmetic_of(phases))
    calibrations = calibrations_of(case, phases)
    return [phase_figures(case, phase, ceilings, item) for phase, item in zip(phases, calibrations, strict=True)]


def _check_phases(phases: Sequence[Phase]) -> None:
    if not phases:
        raise CapacityError("a decision needs at least one phase")
    for phase in phases:
        if phase.passes < 1:
            raise CapacityError(f"phase {phase.name!r} has {phase.passes} passes; at least 1 is allowed")


def decision_s(case: Case, phases: Sequence[Phase]) -> tuple[FloatArray, bool]:
    """The estimate of one decision, or its bound where there is none, and whether it is one. Shape: of the phases. [s]

    Parameters
    ----------
    case : Case
        World model, part and deployment with its launch mode.
    phases : sequence of Phase
        In the order in which they run.

    Returns
    -------
    tuple
        The time in the shape of the phases, [s], and whether it is an estimate.
    """
    _check_phases(phases)
    highest = bound_ceilings(case.hardware, arithmetic_of(phases))
    times, estimated = [], True
    for phase, item in zip(phases, calibrations_of(case, phases), strict=True):
        figures = bound_figures(case, phase, highest, item)
        times.append(figures.bound_s if figures.value_s is None else figures.value_s)
        estimated = estimated and figures.value_s is not None
    return total(times), estimated


def _remarks(case: Case, phases: Sequence[Phase], calibrations: Sequence[Calibration]) -> list[str]:
    """What to know of the calibrations, and of the ceilings that they are shares of."""
    remarks = [describe(item) for item in calibrations]
    formats = arithmetic_of(phases)
    return remarks + [note for item in calibrations for note in efficiency_ceilings(case, formats, item).notes]


def _phase_time(case: Case, item: PhaseFigures) -> PhaseTime:
    phase = item.phase
    return PhaseTime(
        name=phase.name,
        passes=phase.passes,
        flop=plain(phase.flop),
        moved_bytes=plain(phase.moved_bytes),
        launches=phase.launches,
        bound_s=plain(item.bound_s),
        roofline_s=plain(item.roofline_s),
        bound_by=_bound_by(item),
        memory_s=plain(item.memory_s),
        compute_s=plain(item.compute_s),
        launch_mode=case.deploy.launch_mode_of(phase.name),
        value_s=None if item.value_s is None else plain(item.value_s),
    )


def _bound_by(item: PhaseFigures) -> str:
    """The side that binds and its largest operator; empty for several batches at once."""
    side = bound_side([item])
    if np.ndim(side):
        return ""
    names, code = largest_operator([item], side)
    return "" if np.ndim(code) else f"{SIDES[int(side)]}, {names[int(code)]}"
