"""Changes that may meet a control period: those of every study, and schedules, chunks and speculation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from capacity.demand.decisions import mean_cached_tokens
from capacity.demand.phases import verify_phase
from capacity.errors import CapacityError
from capacity.estimate.decision import decide
from capacity.formulas import speculated_answers
from capacity.inputs import one_count
from capacity.results import Decision, Enough
from capacity.specs.deployment import Draft
from capacity.specs.hardware import HardwareSpec
from capacity.specs.world import WorldModelSpec
from capacity.studies import what_if
from capacity.studies.control_case import ControlCase
from capacity.studies.deadline import Timing, Verdict, judge
from capacity.studies.devices import fewest_devices
from capacity.studies.what_if import Alternative, Attempt, Change, Effect, Setup, attempts, change_of, replaced


@dataclass(frozen=True)
class Question:
    """A case, its timing, its decision and its verdict: what a change is compared with."""

    case: ControlCase
    timing: Timing
    decision: Decision
    verdict: Verdict
    bound_only: bool = False

    @property
    def setup(self) -> Setup:
        """What a change changes."""
        return Setup(self.case.world, self.case.hardware, self.case.deploy)

    @property
    def estimated(self) -> bool:
        """Whether the decision has an estimate."""
        return self.decision.value_s is not None

    def with_setup(self, setup: Setup) -> ControlCase:
        """The case of another setup: as many robots, and as much memory held by others."""
        return replace(self.case, world=setup.world, hardware=setup.hardware, deploy=setup.deploy)


def changes_of(
    now: Question,
    *,
    draft: Draft | None,
    chunks: Sequence[int],
    encoders: Sequence[WorldModelSpec],
    parts: Sequence[HardwareSpec],
    formats: Sequence[str],
) -> Iterator[Attempt]:
    """Every change that was given, and those of schedule, steps, formats and devices."""
    setup = now.setup

    def effect_of(changed: Setup) -> Effect:
        return _effect(now, now.with_setup(changed), now.timing)

    yield from _schedules(now)
    yield from attempts(what_if.in_formats(setup, formats), effect_of)
    yield from attempts(what_if.in_half_the_steps(setup), effect_of)
    if draft is not None:
        yield _speculated(now, draft)
    for length in [one_count("chunks", length) for length in chunks]:
        yield from _chunk(now, length)
    yield from attempts(what_if.with_other_models(setup, encoders), effect_of)
    if not now.verdict.fits:
        yield from attempts(what_if.on_more_devices(setup, _enough(now)), effect_of)
    yield from attempts(what_if.on_parts(setup, parts), effect_of)


def _fits(case: ControlCase) -> bool:
    return bool(case.fits(case.robots))


def _enough(now: Question) -> Enough | None:
    setup = now.setup
    return fewest_devices(
        setup.hardware, setup.deploy, lambda deploy: _fits(now.with_setup(replace(setup, deploy=deploy)))
    )


def _schedules(now: Question) -> Iterator[Change]:
    """Play a chunk while the next is made, or start the next one earlier."""
    timing, half = now.timing, now.timing.chunk_actions // 2
    if half < 1 or (timing.schedule == "asynchronous" and timing.executed_actions <= half):
        return
    other = replace(timing, schedule="asynchronous", executed_actions=half)
    after = judge(now.decision.best_s, other, fits=now.verdict.fits)
    what = f"asynchronous, {half} of {timing.chunk_actions} actions"
    yield _change(now, "schedule", what, _schedule_options(other), after, estimated=now.estimated)


def _schedule_options(timing: Timing) -> str:
    return f"--schedule {timing.schedule} --executed-actions {timing.executed_actions}"


def _chunk(now: Question, length: int) -> Iterator[Attempt]:
    """Chunks of another length, played asynchronously by halves."""
    halves = replace(now.timing, schedule="asynchronous", executed_actions=max(1, length // 2))
    longer = replace(now.setup, subject=replaced(now.case.world, (("head.chunk_actions", length),)))
    given_as = f"head.chunk_actions = {length}, {_schedule_options(halves)}"
    alternative = Alternative("chunk", f"chunk of {length} actions", given_as, longer)
    return attempts([alternative], lambda changed: _effect(now, now.with_setup(changed), halves))


def _effect(now: Question, case: ControlCase, timing: Timing) -> Effect:
    """Another case in full."""
    chunk = case.world.head.chunk_actions
    timing = replace(timing, chunk_actions=chunk, executed_actions=min(timing.executed_actions, chunk))
    time_s, estimated = case.decisions_s(case.robots)
    after = judge(float(time_s), timing, fits=_fits(case))
    return _judged(now, case, after, estimated=estimated, saved_s=_saved_s(now, case, float(time_s), estimated))


def _saved_s(now: Question, case: ControlCase, time_s: float, estimated: bool) -> float:
    """Time saved in a decision: bound compared with bound where one of the two has no estimate. [s]"""
    if estimated == now.estimated:
        return now.decision.best_s - time_s
    return now.decision.bound_s - (case.decision.bound_s if estimated else time_s)


def _judged(now: Question, case: ControlCase, after: Verdict, *, estimated: bool, saved_s: float) -> Effect:
    return Effect(
        time_s=after.latency_s,
        saved_s=saved_s,
        margin_s=after.margin_s,
        needed_bytes=case.needed_bytes(case.robots),
        max_batch=what_if.max_batch_of(case.case, case.budget, case.context),
        fits=after.fits,
        within=after.met,
        judged=estimated or now.bound_only,
    )


def _change(now: Question, kind: str, what: str, given_as: str, after: Verdict, *, estimated: bool) -> Change:
    """A change that leaves the case as it is."""
    saved_s = now.verdict.latency_s - after.latency_s
    return change_of(kind, what, given_as, _judged(now, now.case, after, estimated=estimated, saved_s=saved_s))


def _speculated(now: Question, draft: Draft) -> Change:
    """Decode with a draft: each verification is a pass over draft + 1 tokens, computed as such."""
    case, decode = now.case, now.decision.phase("decode")
    world = case.world
    if decode is None or world.core is None:
        raise CapacityError(f"{world.name} decodes no tokens one at a time: there is nothing to speculate on")
    drafted, acceptance = draft.tokens, draft.acceptance
    cached = mean_cached_tokens(world.prompt_tokens, decode.passes)
    verify = decide(
        case.case, [verify_phase(world, case.deploy, batch=case.robots, drafted=drafted, cached_tokens=cached)]
    )
    before = decode.value_s if decode.value_s is not None else decode.bound_s
    verify_cost = max(1.0, verify.best_s / (before / decode.passes))
    costs = {"draft_cost": draft.cost, "verify_cost": verify_cost}
    gain = float(speculated_answers.answer_speedup(decode.passes, acceptance, drafted, **costs))
    after = judge(now.decision.best_s - before + before / gain, now.timing, fits=now.verdict.fits)
    what = f"speculation, {drafted} tokens at acceptance {acceptance:g}"
    estimated = decode.value_s is not None and verify.value_s is not None
    return _change(now, "speculation", what, "", after, estimated=estimated)
