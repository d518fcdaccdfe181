"""The time of each phase of a case: bound on the datasheet, attainable on measured ceilings, calibrated estimate.

One law over phases and ceilings: TPOT is the decode phase, TTFT encode and prefill, a decision of a world model the
sum of its phases.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from capacity.arrays import ArrayLike, FloatArray
from capacity.demand.phases import Phase
from capacity.errors import CapacityError
from capacity.estimate.calibrated import calibration_for
from capacity.estimate.case import Case
from capacity.estimate.law import OperatorTimes, calibrated_s, ceiling_s, charged_bytes, operator_times
from capacity.specs.calibration import Calibration
from capacity.supply.ceilings import Ceilings, measured_ceilings, require_peak
from capacity.supply.links import message_s

RESOURCES = ("memory", "compute")


@dataclass(frozen=True, eq=False)
class PhaseFigures:
    """One phase on a part: times of all its passes, in the shape of the batch. [s]

    ``value_s`` is None where no calibration covers the phase; ``moved_bytes``, by block of its work, and ``times`` are
    of one pass.
    """

    phase: Phase
    moved_bytes: list[FloatArray]
    times: OperatorTimes
    bound_s: FloatArray
    value_s: FloatArray | None
    calibration: Calibration | None


def formats_of(phases: Sequence[Phase]) -> frozenset[str]:
    """Compute formats of some phases."""
    return frozenset().union(*[phase.work.compute_formats for phase in phases])


def phase_figures(case: Case, phase: Phase, sheet: Ceilings, calibration: Calibration | None) -> PhaseFigures:
    """Bound of one phase, and its estimate with a calibration; no estimate lies below the bound.

    Parameters
    ----------
    case : Case
        Model, part and deployment.
    phase : Phase
        Work of its passes.
    sheet : Ceilings
        Ceilings of the bound.
    calibration : Calibration or None
        Constants of the law.
    """
    moved = charged_bytes(phase.work, sheet.cache_bytes * case.deploy.pipeline_parallel)
    times = operator_times(phase.work, moved, sheet)
    bound = phase.passes * ceiling_s(times, sheet, launches=0, comm_s=0.0)
    value = None
    if calibration is not None:
        ceilings = efficiency_ceilings(case, frozenset(sheet.flop_per_s), calibration)
        value = np.maximum(bound, phase.passes * calibrated_s(phase, ceilings, calibration))
    return PhaseFigures(phase, moved, times, bound, value, calibration)


@lru_cache(maxsize=512)
def efficiency_ceilings(case: Case, formats: frozenset[str], calibration: Calibration) -> Ceilings:
    """The rates to which the efficiencies of a calibration apply.

    Raises
    ------
    CapacityError
        If the part has no path for one of ``formats``.
    """
    hardware, activations = case.hardware, case.deploy.activations
    if calibration.typical_share is not None:
        measured = measured_ceilings(hardware, formats, activations, calibration.typical_share)
        if measured is not None:
            return measured
    rates = {name: require_peak(hardware, name, activations) for name in formats}
    return Ceilings(calibration.read_bytes_per_s or hardware.memory.bytes_per_s, rates, 0.0, 0)


def calibrations_of(case: Case, phases: Sequence[Phase]) -> list[Calibration | None]:
    """The calibration of each phase: all of them or none, since a part of a sum is no estimate of it."""
    found = [calibration_for(case, phase.name) for phase in phases]
    return [None] * len(found) if None in found else found


def attainable_by_phase(case: Case, phases: Sequence[Phase]) -> tuple[list[FloatArray], tuple[str, ...]]:
    """The same arithmetic on measured ceilings, with launches and links, and notes. Shape: of the batch. [s]

    There is no time where a ceiling or a link is unknown.
    """
    ceilings = case.measured_ceilings(formats_of(phases))
    if ceilings is None:
        return [], ()
    notes = dict.fromkeys(ceilings.notes)
    found: list[FloatArray] = []
    for phase in phases:
        links = comm_s(case, phase)
        if isinstance(links, CapacityError):
            return [], (str(links),)
        times = operator_times(phase.work, [block.moved_bytes for block in phase.work.blocks], ceilings)
        one = ceiling_s(times, ceilings, launches=phase.work.launches, comm_s=links)
        found.append(np.asarray(phase.passes * one))
    exchanged = [phase for phase in phases if phase.collectives]
    if exchanged and not isinstance(case.link, CapacityError):
        notes[f"links: fixed times {case.link.evidence} ({case.link.kind})"] = None
    return found, tuple(notes)


def attainable_s(case: Case, phases: Sequence[Phase]) -> tuple[FloatArray | None, tuple[str, ...]]:
    """The sum of `attainable_by_phase`, or None where there is none, and its notes. Shape: of the batch. [s]"""
    found, notes = attainable_by_phase(case, phases)
    return (np.asarray(sum(found)) if found else None), notes


def comm_s(case: Case, phase: Phase) -> FloatArray | CapacityError:
    """Time on links of one pass of a phase, or why it is not modelled. Shape: of the batch. [s]"""
    total: FloatArray = np.asarray(0.0)
    if not phase.collectives:
        return total
    link = case.link
    if isinstance(link, CapacityError):
        return link
    sampled: ArrayLike = np.multiply(phase.sequences, phase.head_tokens)
    for item in phase.collectives:
        message = np.multiply(item.token_bytes, sampled if item.last_token_only else phase.tokens)
        total = total + item.count * message_s(link, item.kind, devices=item.devices, message_bytes=message)
    return total
