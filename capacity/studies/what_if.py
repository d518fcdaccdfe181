"""Changes of a case, each computed as a case of its own: what it saves, whether it is enough, and the cheapest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from capacity.demand.decisions import mean_cached_tokens
from capacity.demand.phases import verify_phase
from capacity.errors import CapacityError
from capacity.estimate.decision import decide
from capacity.formulas import speculated_answers
from capacity.inputs import one_count, one_time
from capacity.results import Decision
from capacity.specs.base import Spec
from capacity.specs.deployment import AS_STORED, Deployment
from capacity.specs.hardware import HardwareSpec
from capacity.specs.world import WorldModelSpec
from capacity.studies.control_case import ControlCase
from capacity.studies.control_result import Change, NotEvaluated
from capacity.studies.deadline import Timing, Verdict, judge
from capacity.units import number_format

COST_RANKS = {"schedule": 0, "format": 1, "steps": 2, "speculation": 3, "chunk": 4, "encoder": 5, "part": 6}


@dataclass(frozen=True)
class Speculation:
    """A draft to try: tokens per step, how often one is accepted, and its time per token in plain decode steps."""

    tokens: int
    acceptance: float
    draft_cost: float


@dataclass(frozen=True)
class Question:
    """A case, its timing, its decision and its verdict: what a change is compared with."""

    case: ControlCase
    timing: Timing
    decision: Decision
    verdict: Verdict
    bound_only: bool = False


@lru_cache(maxsize=512)
def _replaced(spec: Spec, changes: tuple[tuple[str, Any], ...]) -> Any:
    """A spec with dotted fields changed; the same changes of the same spec are validated once."""
    return spec.replace(**dict(changes))


def changes_of(
    now: Question,
    *,
    draft: Speculation | None,
    chunks: Sequence[int],
    encoders: Sequence[WorldModelSpec],
    parts: Sequence[HardwareSpec],
    formats: Sequence[str],
) -> Iterator[Change | NotEvaluated]:
    """Every change that was asked about, and those of schedule, steps and formats."""
    case, timing, world = now.case, now.timing, now.case.world
    yield from _schedules(now)
    for name in formats:
        if (deploy := _in_format(case, name)) is not None:
            yield _tried(now, "format", *_format_change(name, deploy), replace(case, deploy=deploy), timing)
    if world.head.kind in ("flow", "diffusion") and world.head.steps > 1:
        half = world.head.steps // 2
        fewer = replace(case, world=_replaced(world, (("head.steps", half),)))
        what = f"{half} instead of {world.head.steps} steps"
        yield _tried(now, "steps", what, f"head.steps = {half}", fewer, timing)
    if draft is not None:
        yield _speculated(now, draft)
    for length in [one_count("chunks", length) for length in chunks]:
        longer = replace(case, world=_replaced(world, (("head.chunk_actions", length),)))
        halves = replace(timing, schedule="asynchronous", executed_actions=max(1, length // 2))
        given_as = f"head.chunk_actions = {length}, {_schedule_options(halves)}"
        yield _tried(now, "chunk", f"chunk of {length} actions", given_as, longer, halves)
    for other in encoders:
        yield _tried(now, "encoder", other.name, "as MODEL", replace(case, world=other), timing)
    for part in parts:
        yield _tried(now, "part", part.name, "as PART", replace(case, hardware=part), timing)


def _schedules(now: Question) -> Iterator[Change]:
    """Play a chunk while the next is made, or start the next one earlier."""
    timing, half = now.timing, now.timing.chunk_actions // 2
    if half < 1 or (timing.schedule == "asynchronous" and timing.executed_actions <= half):
        return
    other = replace(timing, schedule="asynchronous", executed_actions=half)
    after = judge(now.decision.best_s, other, fits=now.verdict.fits)
    what = f"asynchronous, {half} of {timing.chunk_actions} actions"
    estimated = now.decision.value_s is not None
    yield _change(now, "schedule", what, _schedule_options(other), after, now.case, estimated=estimated)


def _schedule_options(timing: Timing) -> str:
    return f"--schedule {timing.schedule} --executed-actions {timing.executed_actions}"


def _in_format(case: ControlCase, name: str) -> Deployment | None:
    """The deployment with narrower weights, computed in the same format where the part can; None if not narrower."""
    stored, checkpoint = case.deploy.weights, case.world.model.checkpoint
    if stored == AS_STORED:
        stored = checkpoint.default if checkpoint else "bf16"
    wanted = number_format(name)
    if wanted.effective_bits >= number_format(stored).effective_bits:
        return None
    native = wanted.effective_bits == 8 and case.hardware.peak(name) is not None
    computed = name if native else case.deploy.activations
    changed: Deployment = _replaced(case.deploy, (("weights", name), ("activations", computed)))
    return changed


def _format_change(name: str, deploy: Deployment) -> tuple[str, str]:
    """What a deployment by `_in_format` changes, in words and as options."""
    if deploy.activations == name:
        return f"weights and activations in {name}", f"--weights {name} --activations {name}"
    return f"weights in {name}", f"--weights {name}"


def _tried(
    now: Question, kind: str, what: str, given_as: str, other: ControlCase, timing: Timing
) -> Change | NotEvaluated:
    """Another case in full; its effect is the difference of the two."""
    made = other.world.head.chunk_actions
    timing = replace(timing, chunk_actions=made, executed_actions=min(timing.executed_actions, made))
    try:
        time_s, estimated = other.decisions_s(other.robots)
        after = judge(float(time_s), timing, fits=bool(other.fits(other.robots)))
    except CapacityError as error:
        return NotEvaluated(kind, what, str(error))
    return _change(now, kind, what, given_as, after, other, estimated=estimated)


def _change(
    now: Question, kind: str, what: str, given_as: str, after: Verdict, case: ControlCase, *, estimated: bool
) -> Change:
    return Change(
        kind=kind,
        what=what,
        given_as=given_as,
        cost_rank=COST_RANKS[kind],
        latency_s=after.latency_s,
        saved_s=now.verdict.latency_s - after.latency_s,
        margin_s=after.margin_s,
        within=after.met and after.fits,
        judged=estimated or now.bound_only,
        needed_bytes=case.needed_bytes(case.robots),
    )


def _speculated(now: Question, draft: Speculation) -> Change:
    """Decode with a draft: each verification is a pass over draft + 1 tokens, computed as such."""
    case, decode = now.case, now.decision.phase("decode")
    world = case.world
    if decode is None or world.core is None:
        raise CapacityError(f"{world.name} decodes no tokens one at a time: there is nothing to speculate on")
    drafted = one_count("draft.tokens", draft.tokens)
    acceptance = one_time("draft.acceptance", draft.acceptance, zero=True)
    draft_cost = one_time("draft.draft_cost", draft.draft_cost, zero=True)
    cached = mean_cached_tokens(world.prompt_tokens, decode.passes)
    verify = decide(
        case.case, [verify_phase(world, case.deploy, batch=case.robots, drafted=drafted, cached_tokens=cached)]
    )
    before = decode.value_s if decode.value_s is not None else decode.bound_s
    verify_cost = max(1.0, verify.best_s / (before / decode.passes))
    costs = {"draft_cost": draft_cost, "verify_cost": verify_cost}
    gain = float(speculated_answers.answer_speedup(decode.passes, acceptance, drafted, **costs))
    after = judge(now.decision.best_s - before + before / gain, now.timing, fits=now.verdict.fits)
    what = f"speculation, {drafted} tokens at acceptance {acceptance:g}"
    estimated = decode.value_s is not None and verify.value_s is not None
    return _change(now, "speculation", what, "", after, case, estimated=estimated)


def cheapest(changes: Iterable[Change]) -> Change | None:
    """The change that meets the period at the least cost: by kind, then by the smallest effect that is enough."""
    enough = [change for change in changes if change.met]
    return min(enough, key=lambda change: (change.cost_rank, change.saved_s), default=None)
