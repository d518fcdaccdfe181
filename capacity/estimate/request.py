"""TPOT and TTFT of a case: the decode phase, and encode with prefill."""

from __future__ import annotations

from typing import Any

import numpy as np

from capacity.arrays import ArrayLike, FloatArray, plain
from capacity.demand.decisions import first_token_phases
from capacity.demand.phases import decode_phase
from capacity.demand.stage_phase import Phase
from capacity.errors import CapacityError
from capacity.estimate import memory
from capacity.estimate.attainable import attainable_s
from capacity.estimate.band import Band, band_of
from capacity.estimate.calibrated import describe, reason_out_of_scope, uncovered, within_calibrated_range
from capacity.estimate.case import Case
from capacity.estimate.operators import SIDES, bound_side, largest_operator, operator_rows
from capacity.estimate.time import PhaseFigures, arithmetic_of, calibrations_of, phase_figures, total
from capacity.results import OUTSIDE_TIME, Estimate
from capacity.specs.calibration import Calibration
from capacity.specs.model import ModelSpec
from capacity.specs.world import Subject
from capacity.supply.memory_side import memory_ceilings, without_peaks


def tpot(case: Case, *, batch: ArrayLike, context_tokens: ArrayLike) -> Estimate:
    """Time per output token of ``batch`` sequences of ``context_tokens`` each. [s]

    Of a part without peaks the bound is that of the memory alone, and there is no roofline.

    Parameters
    ----------
    case : Case
        Model, part and deployment.
    batch : array_like
        Sequences of the replica. [sequence]
    context_tokens : array_like
        Tokens of each sequence, including the one that the step computes. [token]

    Raises
    ------
    CapacityError
        If the part has no path for a compute format, or the model makes no tokens one at a time.
    """
    phase = decode_of(case, batch=batch, context_tokens=context_tokens)
    return _estimate(case, "TPOT", (phase,), batch, context_tokens)


def decode_of(case: Case, *, batch: ArrayLike, context_tokens: ArrayLike) -> Phase:
    """One decode step of the model, or of the core of the world model. Shape: broadcast. [sequence], [token]

    Parameters
    ----------
    case : Case
        Model, part and deployment.
    batch : array_like
        Sequences of the replica. [sequence]
    context_tokens : array_like
        Tokens of each. [token]
    """
    check_makes_tokens(case.subject)
    return decode_phase(case.subject, case.deploy, batch=batch, context_tokens=context_tokens)


def ttft(case: Case, *, batch: ArrayLike, prompt_tokens: ArrayLike) -> Estimate:
    """Time to first token of ``batch`` prompts that are prefilled together; a world model encodes its images first. [s]

    Parameters
    ----------
    case : Case
        Model, part and deployment.
    batch : array_like
        Prompts of the replica. [sequence]
    prompt_tokens : array_like
        Tokens of each; those of a world model's spec are the only ones it has. [token]

    Raises
    ------
    CapacityError
        If the part has no path for a compute format, or a world model is asked at another prompt than its own.
    """
    return _estimate(case, "TTFT", first_token_of(case, batch, prompt_tokens), batch, prompt_tokens)


def first_token_of(case: Case, batch: ArrayLike, prompt_tokens: ArrayLike) -> tuple[Phase, ...]:
    """Encode, of a world model, and prefill. Shape: broadcast. [sequence], [token]

    Parameters
    ----------
    case : Case
        Model, part and deployment.
    batch : array_like
        Prompts of the replica. [sequence]
    prompt_tokens : array_like
        Tokens of each. [token]

    Raises
    ------
    CapacityError
        As by `ttft`.
    """
    check_makes_tokens(case.subject)
    _check_prompt(case, prompt_tokens)
    return first_token_phases(case.subject, case.deploy, batch=batch, prompt_tokens=prompt_tokens)


def busy_s(case: Case, phases: tuple[Phase, ...]) -> tuple[FloatArray, FloatArray]:
    """How long the least work of some phases keeps memory busy, and compute. Shape: of the phases. [s]

    Parameters
    ----------
    case : Case
        Model, part and deployment.
    phases : tuple of Phase
        Their passes follow one another.

    Returns
    -------
    tuple of ndarray
        Memory and compute, each in the shape of the phases. [s]
    """
    ceilings = case.ceilings(arithmetic_of(phases))
    figures = [phase_figures(case, phase, ceilings, None) for phase in phases]
    return total([item.memory_s for item in figures]), total([item.compute_s for item in figures])


def check_makes_tokens(subject: Subject) -> None:
    """Refuse a world model, or the bare network of one, whose answer does not come token by token.

    Parameters
    ----------
    subject : ModelSpec or WorldModelSpec
        What is served.

    Raises
    ------
    CapacityError
        Naming its head and what to ask instead.
    """
    if isinstance(subject, ModelSpec):
        _ = subject.language_decoder
        return
    if subject.head.kind != "autoregressive":
        head = "no head" if subject.head.kind == "none" else f"a {subject.head.kind} head"
        raise CapacityError(
            f"{subject.name} has {head}: its answer does not come token by token; ask for a decision with control"
        )


def _check_prompt(case: Case, prompt_tokens: ArrayLike) -> None:
    if case.world is None:
        return
    own = case.world.prompt_tokens
    if np.any(np.not_equal(prompt_tokens, own)):
        raise CapacityError(
            f"{case.subject.name} has a prompt of {own:,} tokens (images, text and state); change its views or "
            "text_tokens with replace to ask for another"
        )


def _estimate(
    case: Case, quantity: str, phases: tuple[Phase, ...], batch: ArrayLike, context_tokens: ArrayLike
) -> Estimate:
    arithmetic = arithmetic_of(phases)
    unknown = without_peaks(case.hardware) if quantity == "TPOT" else ""
    ceilings = (memory_ceilings(case.hardware, arithmetic),) * 2 if unknown else case.ceilings(arithmetic)
    fits = memory.fits(case.memory, case.budget, case.deploy, batch=batch, context_tokens=context_tokens)
    remarks, calibrations = _usable(case, phases, calibrations_of(case, phases))
    if unknown:
        remarks, calibrations = (f"{unknown}: the bound is that of the memory alone",), [None] * len(phases)
    reachable, notes = attainable_s(case, phases, arithmetic)  # before the figures, whose arrays are large
    figures = [phase_figures(case, phase, ceilings, item) for phase, item in zip(phases, calibrations, strict=True)]
    band, beyond = _banded(figures, batch, context_tokens)
    shape = np.broadcast_shapes(np.shape(batch), np.shape(context_tokens))
    side = bound_side(figures)
    operators, code = largest_operator(figures, side)
    return Estimate(
        quantity=quantity,
        bound=_in_shape(total([item.bound_s for item in figures]), shape),
        roofline=None if unknown else _in_shape(total([item.roofline_s for item in figures]), shape),
        bound_by=_in_shape(side, shape) if shape else SIDES[int(side)],
        largest_operator=_in_shape(code, shape) if shape else operators[int(code)],
        operators=operators,
        fits=plain(fits),
        evidence="calibrated" if band else "computed",
        value=_in_shape(band.value_s, shape) if band else None,
        low=_in_shape(band.low_s, shape) if band else None,
        high=_in_shape(band.high_s, shape) if band else None,
        attainable=None if reachable is None else _in_shape(reachable, shape),
        rows=() if shape or unknown else tuple(operator_rows(figures)),
        assumed=case.assumed,
        notes=(*dict.fromkeys([*ceilings[0].notes, *ceilings[1].notes, *notes, *remarks, *beyond]),),
        not_modelled=(*OUTSIDE_TIME, *(encode_note(case) if quantity == "TTFT" else ())),
    )


def unknown_ttft(case: Case) -> Estimate:
    """The time to first token of a part without peaks: none, with the reason.

    Parameters
    ----------
    case : Case
        Model, part and deployment.
    """
    return Estimate(
        quantity="TTFT",
        bound=None,
        roofline=None,
        bound_by=None,
        largest_operator=None,
        operators=(),
        fits=True,
        evidence="computed",
        notes=(without_peaks(case.hardware),),
    )


def encode_note(case: Case) -> tuple[str, ...]:
    """That the time to first token of a bare model leaves out its encoders, which only a world model describes.

    Parameters
    ----------
    case : Case
        Model, part and deployment.
    """
    encoders = [stage.name for stage in case.model.stages if stage.role == "encoder"]
    if case.world is not None or not encoders:
        return ()
    return (f"encode of images ({', '.join(encoders)}): TTFT is that of the prompt alone",)


def _in_shape(value: Any, shape: tuple[int, ...]) -> Any:
    """Broadcast a value that does not depend on context (or batch); a single value becomes a plain number."""
    return np.broadcast_to(value, shape).copy() if np.shape(value) != shape else plain(value)


def _usable(
    case: Case, phases: tuple[Phase, ...], calibrations: list[Calibration | None]
) -> tuple[tuple[str, ...], list[Calibration | None]]:
    """The calibrations that apply, and what to know of them or why there is none."""
    if calibrations[0] is None:
        explicit = case.world is not None or case.deploy.launch_mode is not None
        return ((uncovered(case, [phase.name for phase in phases]),) if explicit else ()), calibrations
    if reason := reason_out_of_scope(case):
        return (f"no estimate: calibration {calibrations[0].name} {reason}",), [None] * len(calibrations)
    return tuple(dict.fromkeys([describe(item) for item in calibrations if item is not None])), calibrations


def _banded(
    figures: list[PhaseFigures], batch: ArrayLike, context_tokens: ArrayLike
) -> tuple[Band | None, tuple[str, ...]]:
    """The sum of calibrated times with its band; NaN outside the range that was measured, and a note where it ends."""
    scopes = [item.calibration.scope for item in figures if item.calibration]
    if not scopes:
        return None, ()
    inside = np.logical_and.reduce([within_calibrated_range(scope, batch, context_tokens) for scope in scopes])
    beyond = _out_of_range(next(item.calibration for item in figures if item.calibration), inside)
    return (band_of(figures, inside) if np.any(inside) else None), beyond


def _out_of_range(calibration: Calibration, inside: Any) -> tuple[str, ...]:
    """A note on the measured range, for points outside it."""
    if np.all(inside):
        return ()
    which = f" at {np.sum(~inside)} of {inside.size} points" if inside.ndim else ""
    batch, context = calibration.scope.largest_batch or 0, calibration.scope.largest_context_tokens or 0
    measured = f"was measured up to batch {batch:,} and context {context:,}"
    return (f"no estimate{which}: calibration {calibration.name} {measured}",)


def intensity(case: Case, *, batch: ArrayLike, context_tokens: ArrayLike) -> FloatArray:
    """FLOP of a decode step over the bytes it moves. Shape: broadcast. [FLOP/B]

    Parameters
    ----------
    case : Case
        Model, part and deployment.
    batch : array_like
        Sequences of the replica. [sequence]
    context_tokens : array_like
        Tokens of each. [token]

    Returns
    -------
    ndarray
        In the broadcast shape of both. [FLOP/B]
    """
    phase = decode_of(case, batch=batch, context_tokens=context_tokens)
    return np.asarray(phase.flop / phase.moved_bytes)
