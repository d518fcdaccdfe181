"""One decision of a world model on a part: its phases with bound and, by launch mode, estimate; and its memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from capacity.arrays import FloatArray, plain
from capacity.demand.phases import Phase
from capacity.errors import CapacityError
from capacity.estimate.calibrated import describe
from capacity.estimate.case import Case
from capacity.estimate.time import (
    RESOURCES,
    PhaseFigures,
    calibrations_of,
    efficiency_ceilings,
    formats_of,
    phase_figures,
)
from capacity.results import Decision, PhaseTime
from capacity.specs.calibration import Calibration


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
    bound = plain(_total([item.bound_s for item in figures]))
    notes = case.bound_ceilings(formats_of(phases)).notes
    estimated = [(item.value_s, item.calibration) for item in figures if item.value_s is not None and item.calibration]
    if len(estimated) < len(figures):
        return Decision(times, bound, None, None, None, "computed", notes)
    value = _total([value for value, _ in estimated])
    low = np.maximum(bound, _total([value * found.band_low for value, found in estimated]))
    high = _total([value * found.band_high for value, found in estimated])
    remarks = dict.fromkeys([*notes, *_remarks(case, phases, [found for _, found in estimated])])
    return Decision(times, bound, plain(value), plain(low), plain(high), "calibrated", tuple(remarks))


def decision_figures(case: Case, phases: Sequence[Phase]) -> list[PhaseFigures]:
    """Every phase of a decision with its times.

    Raises
    ------
    CapacityError
        As `decide`.
    """
    if not phases:
        raise CapacityError("a decision needs at least one phase")
    for phase in phases:
        if phase.passes < 1:
            raise CapacityError(f"phase {phase.name!r} has {phase.passes} passes; at least 1 is allowed")
    sheet = case.bound_ceilings(formats_of(phases))
    found = calibrations_of(case, phases)
    return [phase_figures(case, phase, sheet, item) for phase, item in zip(phases, found, strict=True)]


def decision_s(case: Case, phases: Sequence[Phase]) -> FloatArray:
    """The estimate of one decision, or its bound where there is none. Shape: of the phases. [s]"""
    figures = decision_figures(case, phases)
    return _total([item.bound_s if item.value_s is None else item.value_s for item in figures])


def _total(parts: Sequence[FloatArray]) -> FloatArray:
    total: Any = 0.0
    for part in parts:
        total = total + part
    return np.asarray(total)


def _remarks(case: Case, phases: Sequence[Phase], found: Sequence[Calibration]) -> list[str]:
    """What to know of the calibrations, and of the ceilings that they are shares of."""
    remarks = [describe(item) for item in found]
    formats = formats_of(phases)
    return remarks + [note for item in found for note in efficiency_ceilings(case, formats, item).notes]


def _phase_time(case: Case, item: PhaseFigures) -> PhaseTime:
    phase, times = item.phase, item.times
    return PhaseTime(
        name=phase.name,
        passes=phase.passes,
        flop=plain(phase.flop),
        moved_bytes=plain(phase.moved_bytes),
        launches=phase.launches,
        bound_s=plain(item.bound_s),
        bound_by=_bound_by(item),
        memory_s=plain(phase.passes * sum(times.memory_s)),
        compute_s=plain(phase.passes * sum(times.compute_s)),
        launch_mode=case.deploy.launch_mode_of(phase.name),
        value_s=None if item.value_s is None else plain(item.value_s),
    )


def _bound_by(item: PhaseFigures) -> str:
    """The operator that takes most of the bound and its resource; empty for several batches at once."""
    code, _ = item.times.largest
    return "" if np.ndim(code) else f"{item.times.names[int(code) // 2]}, {RESOURCES[int(code) % 2]}"
