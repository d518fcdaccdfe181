"""TPOT and TTFT of a case: the decode phase, and encode with prefill."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from capacity.arrays import ArrayLike, FloatArray, plain
from capacity.demand.phases import Phase, decode_phase, prefill_phase
from capacity.demand.world_passes import world_decode_phase, world_prefill_phase
from capacity.demand.world_phases import encode_phase
from capacity.errors import CapacityError
from capacity.estimate import memory
from capacity.estimate.calibrated import describe, reason_out_of_scope, uncovered, within_calibrated_range
from capacity.estimate.case import Case, Subject
from capacity.estimate.time import RESOURCES, PhaseFigures, attainable_s, calibrations_of, formats_of, phase_figures
from capacity.results import OUTSIDE_TIME, Estimate, OperatorRow
from capacity.specs.calibration import Calibration
from capacity.specs.world import WorldModelSpec


def tpot(case: Case, *, batch: ArrayLike, context_tokens: ArrayLike) -> Estimate:
    """Time per output token of ``batch`` sequences of ``context_tokens`` each. [s]

    Parameters
    ----------
    case : Case
        Model, part and deployment.
    batch : array_like
        Sequences of the replica. [sequence]
    context_tokens : array_like
        Tokens of each, the one that the step computes included. [token]

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
    if case.world is None:
        return decode_phase(case.model, case.deploy, batch=batch, context_tokens=context_tokens)
    check_makes_tokens(case.world)
    return world_decode_phase(case.world, case.deploy, batch=batch, context_tokens=context_tokens)


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
    if case.world is None:
        phases = [prefill_phase(case.model, case.deploy, batch=batch, prompt_tokens=prompt_tokens)]
    else:
        check_makes_tokens(case.world)
        _check_prompt(case, prompt_tokens)
        encode = encode_phase(case.world, case.deploy, batch=batch)
        phases = [*([encode] if encode else []), world_prefill_phase(case.world, case.deploy, batch=batch)]
    return _estimate(case, "TTFT", tuple(phases), batch, prompt_tokens)


def check_makes_tokens(subject: Subject) -> None:
    """Refuse a world model whose answer does not come token by token.

    Raises
    ------
    CapacityError
        Naming its head and what to ask instead.
    """
    if isinstance(subject, WorldModelSpec) and subject.head.kind != "autoregressive":
        head = "no head" if subject.head.kind == "none" else f"a {subject.head.kind} head"
        raise CapacityError(
            f"{subject.name} has {head}: its answer does not come token by token; ask for a decision with control"
        )


def _check_prompt(case: Case, prompt_tokens: ArrayLike) -> None:
    own = case.world.prompt_tokens if case.world else 0
    if np.any(np.not_equal(prompt_tokens, own)):
        raise CapacityError(
            f"{case.subject.name} has a prompt of {own:,} tokens (images, text and state); change its views or "
            "text_tokens with replace to ask for another"
        )


@dataclass(frozen=True, eq=False)
class _Band:
    """A calibrated time with its ends. [s]"""

    value_s: FloatArray
    low_s: FloatArray
    high_s: FloatArray


def _estimate(
    case: Case, quantity: str, phases: tuple[Phase, ...], batch: ArrayLike, context_tokens: ArrayLike
) -> Estimate:
    sheet = case.sheet if case.world is None else case.bound_ceilings(formats_of(phases))
    fits = memory.fits(case.memory, case.budget_bytes, case.deploy, batch=batch, context_tokens=context_tokens)
    found = calibrations_of(case, phases)
    remarks, found = _usable(case, phases, found)
    figures = [phase_figures(case, phase, sheet, item) for phase, item in zip(phases, found, strict=True)]
    bound = _sum([item.bound_s for item in figures])
    band, beyond = _banded(figures, bound, batch, context_tokens)
    reachable, notes = attainable_s(case, phases)
    shape = np.broadcast_shapes(np.shape(batch), np.shape(context_tokens))
    operators, code = _largest_operator(figures)
    return Estimate(
        quantity=quantity,
        bound=_in_shape(bound, shape),
        bound_by=_in_shape(code, shape) if shape else operators[int(code)],
        operators=operators,
        fits=plain(fits),
        evidence="calibrated" if band else "computed",
        value=_in_shape(band.value_s, shape) if band else None,
        low=_in_shape(band.low_s, shape) if band else None,
        high=_in_shape(band.high_s, shape) if band else None,
        attainable=None if reachable is None else _in_shape(reachable, shape),
        rows=() if shape else _operator_rows(figures),
        notes=(*sheet.notes, *notes, *remarks, *beyond),
        not_modelled=(*OUTSIDE_TIME, *(encode_left_out(case) if quantity == "TTFT" else ())),
    )


def encode_left_out(case: Case) -> tuple[str, ...]:
    """That the time to first token of a bare model leaves out its encoders, which only a world model describes."""
    encoders = [stage.name for stage in case.model.stages if stage.role == "encoder"]
    if case.world is not None or not encoders:
        return ()
    return (f"encode of images ({', '.join(encoders)}): TTFT is that of the prompt alone",)


def _in_shape(value: Any, shape: tuple[int, ...]) -> Any:
    """What does not depend on context (or batch) comes in its shape all the same; a single value as a plain number."""
    return np.broadcast_to(value, shape).copy() if np.shape(value) != shape else plain(value)


def _sum(parts: list[FloatArray]) -> FloatArray:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def _usable(
    case: Case, phases: tuple[Phase, ...], found: list[Calibration | None]
) -> tuple[tuple[str, ...], list[Calibration | None]]:
    """The calibrations that apply, and what to know of them or why there is none."""
    if found[0] is None:
        asked = case.world is not None or case.deploy.launch_mode is not None
        return ((uncovered(case, [phase.name for phase in phases]),) if asked else ()), found
    if reason := reason_out_of_scope(case):
        return (f"no estimate: calibration {found[0].name} {reason}",), [None] * len(found)
    return tuple(dict.fromkeys([describe(item) for item in found if item is not None])), found


def _banded(
    figures: list[PhaseFigures], bound: FloatArray, batch: ArrayLike, context_tokens: ArrayLike
) -> tuple[_Band | None, tuple[str, ...]]:
    """The sum of calibrated times with its band; NaN outside the range that was measured, and a note where it ends."""
    values = [(item.value_s, item.calibration) for item in figures if item.value_s is not None and item.calibration]
    if not values:
        return None, ()
    scopes = [found.scope for _, found in values]
    inside = np.logical_and.reduce([within_calibrated_range(scope, batch, context_tokens) for scope in scopes])
    beyond = _beyond(values[0][1], inside)
    if not np.any(inside):
        return None, beyond
    value = np.where(inside, _sum([value for value, _ in values]), np.nan)
    low = _sum([value * found.band_low for value, found in values])
    high = _sum([value * found.band_high for value, found in values])
    unknown = np.where(inside, 0.0, np.nan)
    return _Band(value, np.maximum(bound, low + unknown), high + unknown), beyond


def _beyond(found: Calibration, inside: Any) -> tuple[str, ...]:
    """Where the range that was measured ends, for points that lie outside it."""
    if np.all(inside):
        return ()
    which = f" at {np.sum(~inside)} of {inside.size} points" if inside.ndim else ""
    batch, context = found.scope.largest_batch or 0, found.scope.largest_context_tokens or 0
    return (f"no estimate{which}: calibration {found.name} was measured up to batch {batch:,} and context {context:,}",)


def _largest_operator(figures: list[PhaseFigures]) -> tuple[tuple[str, ...], Any]:
    """Names of operators and resources of all phases, and the code of the one that takes most of the bound."""
    names: list[str] = []
    best: Any = -1.0
    code: Any = 0
    for item in figures:
        times, start = item.times, len(names)
        lead = f"{item.phase.name} " if len(figures) > 1 else ""
        names += [f"{lead}{name}, {resource}" for name in times.names for resource in RESOURCES]
        own, longest = times.largest
        code, best = np.where(longest > best, start + own, code), np.maximum(best, longest)
    return tuple(names), code


def _operator_rows(figures: list[PhaseFigures]) -> tuple[OperatorRow, ...]:
    """Operators of a scalar estimate: what each moves and computes, its time, and which of the two takes longer."""
    rows = []
    for item in figures:
        times = item.times
        lead = f"{item.phase.name} " if len(figures) > 1 else ""
        sums = dict.fromkeys(times.names, (0.0, 0.0))
        for block, moved in zip(item.phase.work.blocks, item.moved_bytes, strict=True):
            for row, name in enumerate(block.operators):
                sums[name] = (sums[name][0] + float(moved[row]), sums[name][1] + float(block.flop[row]))
        for number, (name, (moved_bytes, flop)) in enumerate(sums.items()):
            side = RESOURCES[int(times.compute_s[number] > times.memory_s[number])]
            rows.append(OperatorRow(lead + name, moved_bytes, flop, float(times.pass_s[number]), side))
    return tuple(rows)


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
