"""Is the control period met, by what margin, what binds, and which change would meet it at least cost."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from capacity.demand.passes import stage_pass
from capacity.demand.phases import Phase, mean_cached_tokens, phases
from capacity.errors import CapacityError
from capacity.estimate.world import check_case, decide, held_bytes, usable_bytes
from capacity.formulas import control_cycle as cycle
from capacity.formulas import sharing as clients
from capacity.formulas import speculation
from capacity.inputs import check_each, check_kind
from capacity.results import Decision
from capacity.specs.deployment import Deployment
from capacity.specs.hardware import HardwareSpec
from capacity.specs.world import WorldModelSpec
from capacity.studies.deadline import (
    LARGEST_BATCH,
    Change,
    ControlPlan,
    Judged,
    Refused,
    Robots,
    Schedule,
    Timing,
    cheapest,
    check_timing,
    control_rate,
    interval_s,
    judge,
    shares,
)
from capacity.units import number_format

# Assumed 99th percentile of a decision over its median. The benchmarks in VinRobotics/vla.cpp's README have p90 over
# p50 of 1.02 to 1.09, which is 1.04 to 1.17 at p99 where times are log-normal.
ASSUMED_P99_OVER_P50 = 1.1
COST_RANKS = {"schedule": 0, "format": 1, "steps": 2, "speculation": 3, "chunk": 4, "encoder": 5, "part": 6}


@dataclass(frozen=True)
class Speculation:
    """A draft to try: tokens a step, how often one is accepted, and its time a token in plain decode steps."""

    tokens: int
    acceptance: float
    draft_cost: float


@dataclass(frozen=True)
class _Case:
    """What a decision depends on."""

    world: WorldModelSpec
    hardware: HardwareSpec
    deploy: Deployment
    launch_mode: str | None
    taken_bytes: float
    robots: int

    def decision(self, batch: int) -> Decision:
        found = phases(self.world, self.deploy, batch=batch)
        return decide(found, self.hardware, self.deploy, launch_mode=self.launch_mode)

    def needed_bytes(self, batch: int) -> int:
        return sum(held_bytes(self.world, self.deploy, batch=batch).values())

    @property
    def usable_bytes(self) -> int:
        return usable_bytes(self.hardware, self.deploy, self.taken_bytes)

    def fits(self, batch: int) -> bool:
        return self.needed_bytes(batch) <= self.usable_bytes


def control(
    world: WorldModelSpec,
    hardware: HardwareSpec,
    deploy: Deployment | None = None,
    *,
    period_s: float | None = None,
    sensing_s: float | None = None,
    preprocessing_s: float | None = None,
    network_s: float | None = None,
    schedule: Schedule | None = None,
    executed_actions: int | None = None,
    launch_mode: str | None = "graph",
    percentile: float = 99.0,
    p99_over_p50: float | None = None,
    taken_bytes: float = 0,
    power_mode: str | None = None,
    robots: int = 1,
    draft: Speculation | None = None,
    chunks: Sequence[int] = (),
    encoders: Sequence[WorldModelSpec] = (),
    parts: Sequence[HardwareSpec] = (),
    formats: Sequence[str] = ("fp8_e4m3", "int8", "int4_g128"),
) -> ControlPlan:
    """Judge a control period, and compute each change asked about as a case of its own.

    Parameters
    ----------
    world, hardware, deploy : WorldModelSpec, HardwareSpec, Deployment
        Model, part and number formats; without a deployment the formats the model is stored in.
    period_s : float
        Time between two actions at the robot. Required. [s]
    sensing_s, preprocessing_s, network_s : float
        Times outside the model; 0 must be said. Required. [s]
    schedule : str
        ``synchronous`` (an action a decision), ``chunked`` (the robot waits for each chunk) or ``asynchronous``
        (it plays one while the next is made); synchronous for a chunk of one, else asynchronous.
    executed_actions : int
        Actions played of each chunk; by default one if synchronous, all if chunked, half if asynchronous. [action]
    launch_mode : str or None
        How the model runs, on which the verdict depends: ``eager``, kernels launched one by one by Python;
        ``compiled``, compiled kernels launched one by one; ``graph``, a captured graph of a general compiler;
        ``tuned``, an engine written for this model family. None judges the bound alone.
    percentile : float
        Share of decisions that must be in time. [%]
    p99_over_p50 : float
        Jitter of a decision, measured; `ASSUMED_P99_OVER_P50` without it. [1]
    taken_bytes : int
        Device memory that other programs hold. [B]
    power_mode : str
        A named power mode of the part.
    robots : int
        Robots that are decided for in one batch. [robot]
    draft, chunks, encoders, parts, formats
        Changes to try: a speculative draft, other chunk lengths (played asynchronously by halves), the same policy
        with other encoders, other parts, weight formats. One that has no answer is listed as refused.

    Raises
    ------
    CapacityError
        If a required time is missing or negative, more is executed than made, or a name is unknown.
    """
    chosen = Deployment() if deploy is None else deploy
    check_case(world, hardware, chosen, launch_mode)
    check_kind("power_mode", power_mode, str, none=True)
    check_kind("draft", draft, Speculation, none=True)
    lists = {"chunks": (chunks, object), "encoders": (encoders, WorldModelSpec), "parts": (parts, HardwareSpec)}
    for name, (values, kind) in (lists | {"formats": (formats, str)}).items():
        check_each(name, values, kind)
    part = hardware.in_power_mode(power_mode) if power_mode is not None else hardware
    robots = cycle.one_count("robots", robots)
    timing, assumed = _timing(
        world, period_s, sensing_s, preprocessing_s, network_s, schedule, executed_actions, percentile, p99_over_p50
    )
    case = _Case(world, part, chosen, launch_mode, taken_bytes, robots)
    decision = case.decision(robots)
    judged = judge(decision.best_s, timing, fits=case.fits(robots))
    tried = tuple(_changes(case, timing, judged, decision, draft, chunks, encoders, parts, formats))
    power = None if power_mode is None else _power_told(hardware, power_mode)
    return _plan(case, timing, decision, judged, tried, assumed, power)


def _power_told(hardware: HardwareSpec, name: str) -> str:
    mode = hardware.power.modes[name]
    said = [key for key in ("bytes_per_s", "peak_factor", "boost_hz") if getattr(mode, key) is not None]
    if said:
        return f"{name}: {', '.join(said)} as the vendor says"
    return f"{name}: no source says how far it slows the part; all times are those of the full part, likely too short"


def _timing(
    world: WorldModelSpec,
    period_s: float | None,
    sensing_s: float | None,
    preprocessing_s: float | None,
    network_s: float | None,
    schedule: Schedule | None,
    executed_actions: int | None,
    percentile: float,
    p99_over_p50: float | None,
) -> tuple[Timing, list[str]]:
    made, assumed = world.head.chunk_actions, []
    if schedule is None:
        schedule = "synchronous" if made == 1 else "asynchronous"
        assumed.append(f"schedule = {schedule}")
    if executed_actions is None:
        executed_actions = {"synchronous": 1, "chunked": made}.get(str(schedule), max(1, made // 2))
        assumed.append(f"executed_actions = {executed_actions}")
    if p99_over_p50 is None:
        p99_over_p50 = ASSUMED_P99_OVER_P50
        assumed.append(f"p99_over_p50 = {p99_over_p50:g} (jitter not measured)")
    given = (period_s, sensing_s, preprocessing_s, network_s)
    timing = Timing(*given, schedule, made, executed_actions, percentile, p99_over_p50)  # type: ignore[arg-type]
    return check_timing(timing), assumed


def _plan(
    case: _Case,
    timing: Timing,
    decision: Decision,
    judged: Judged,
    tried: tuple[Change | Refused, ...],
    assumed: list[str],
    power: str | None,
) -> ControlPlan:
    parts = shares(decision, timing)
    first = next(iter(parts))
    phase = decision.phase(first)
    binds = f"{first}, {parts[first]:.0%} of the cycle" + (f" ({phase.bound_by})" if phase else "")
    latency, interval = judged.latency_s, interval_s(judged.latency_s, timing)
    moves = {"executed_actions": timing.executed_actions, "period_s": timing.period_s}
    changes = tuple(item for item in tried if isinstance(item, Change))
    if case.launch_mode is not None:
        assumed.append(f"launch_mode = {case.launch_mode}")
    return ControlPlan(
        model=case.world.name,
        part=case.hardware.name,
        power_mode=power,
        timing=timing,
        decision=decision,
        judged=judged,
        missed_at_bound=_missed_at_bound(decision, timing),
        binds=binds if judged.fits else "memory",
        shares=parts,
        replan_per_s=float(cycle.replan_per_s(latency)),
        action_throughput_per_s=float(cycle.action_throughput_per_s(latency, timing.chunk_actions)),
        control_per_s=control_rate(latency, timing),
        stall_share=float(cycle.stall_share(latency, **moves)) if timing.schedule == "chunked" else 0.0,
        overlapped_interval_s=_overlapped_s(decision),
        delay_steps=int(cycle.delay_steps(latency, timing.period_s)),
        reaction_s=float(cycle.reaction_s(latency, interval_s=interval)),
        robots=_robots(case, timing),
        needed_bytes=case.needed_bytes(case.robots),
        usable_bytes=case.usable_bytes,
        changes=changes,
        refused=tuple(item for item in tried if isinstance(item, Refused)),
        cheapest=None if judged.met and judged.fits else cheapest(changes),
        assumed=tuple(assumed),
        notes=(*case.world.notes, *(f"assumed: {name}" for name in case.world.assumed)),
    )


def _missed_at_bound(decision: Decision, timing: Timing) -> bool:
    """Whether a decision as fast as its bound, and never later, is too late."""
    return not judge(decision.bound_s, replace(timing, p99_over_p50=1.0), fits=True).met


def _overlapped_s(decision: Decision) -> float:
    """Least time between decisions whose phases run side by side: neither memory nor arithmetic is used twice. [s]"""
    return max(sum(phase.memory_s for phase in decision.phases), sum(phase.compute_s for phase in decision.phases))


def _robots(case: _Case, timing: Timing) -> Robots:
    """Most robots that one device decides for, by how their questions reach it.

    In turns each robot has the device to itself and its turn comes once in the actions it plays. In a batch for
    robots that ask at any time, one that just missed a batch waits for it and then for its own, and a batch must be
    done before its robots ask again; one robot alone waits for nobody.
    """
    asked_s = timing.executed_actions * timing.period_s
    alone = case.decision(1).best_s

    def met(robots: int, waits: int) -> bool:
        return case.fits(robots) and judge(waits * case.decision(robots).best_s, timing, fits=True).met

    def met_at_any_time(robots: int) -> bool:
        return met(robots, min(robots, 2)) and case.decision(robots).best_s <= asked_s

    return Robots(
        in_turns=int(clients.robots_unbatched(alone, replan_interval_s=asked_s)) if met(1, 1) else 0,
        batched_at_any_time=_most(met_at_any_time),
        batched_together=_most(lambda robots: met(robots, 1)),
    )


def _most(met: Callable[[int], bool]) -> int:
    """Largest batch up to `LARGEST_BATCH` that is met; a larger one takes no less time and memory."""
    return bisect(range(1, LARGEST_BATCH + 1), False, key=lambda robots: not met(robots))


def _changes(
    case: _Case,
    timing: Timing,
    now: Judged,
    decision: Decision,
    draft: Speculation | None,
    chunks: Sequence[int],
    encoders: Sequence[WorldModelSpec],
    parts: Sequence[HardwareSpec],
    formats: Sequence[str],
) -> Iterator[Change | Refused]:
    yield from _schedules(case, timing, now, decision)
    for name in formats:
        if (deploy := _in_format(case, name)) is not None:
            yield _tried("format", *_format_told(name, deploy), replace(case, deploy=deploy), timing, now)
    head = case.world.head
    if head.kind in ("flow", "diffusion") and head.steps > 1:
        fewer = case.world.replace(**{"head.steps": head.steps // 2})
        what, given_as = f"{head.steps // 2} instead of {head.steps} steps", f"head.steps = {head.steps // 2}"
        yield _tried("steps", what, given_as, replace(case, world=fewer), timing, now)
    if draft is not None:
        yield _speculated(case, timing, now, decision, draft)
    for length in chunks:
        longer = case.world.replace(**{"head.chunk_actions": length})
        halves = replace(timing, schedule="asynchronous", executed_actions=max(1, length // 2))
        given_as = f"head.chunk_actions = {length}, {_schedule_options(halves)}"
        yield _tried("chunk", f"chunk of {length} actions", given_as, replace(case, world=longer), halves, now)
    for other in encoders:
        yield _tried("encoder", other.name, "as MODEL", replace(case, world=other), timing, now)
    for part in parts:
        yield _tried("part", part.name, "as PART", replace(case, hardware=part), timing, now)


def _schedules(case: _Case, timing: Timing, now: Judged, decision: Decision) -> Iterator[Change]:
    """Play a chunk while the next is made, or start the next one earlier."""
    half = timing.chunk_actions // 2
    if half < 1 or (timing.schedule == "asynchronous" and timing.executed_actions <= half):
        return
    other = replace(timing, schedule="asynchronous", executed_actions=half)
    after = judge(decision.best_s, other, fits=now.fits)
    what = f"asynchronous, {half} of {timing.chunk_actions} actions"
    yield _change("schedule", what, _schedule_options(other), now, after, case)


def _schedule_options(timing: Timing) -> str:
    return f"--schedule {timing.schedule} --executed-actions {timing.executed_actions}"


def _in_format(case: _Case, name: str) -> Deployment | None:
    """The deployment with narrower weights, computed in the same format where the part can; None if not narrower."""
    stored = case.deploy.weights
    if stored == "as_stored":
        stored = case.world.model.checkpoint.default if case.world.model.checkpoint else "bf16"
    wanted = number_format(name)
    if wanted.effective_bits >= number_format(stored).effective_bits:
        return None
    native = wanted.effective_bits == 8 and case.hardware.peak(name) is not None
    return case.deploy.replace(weights=name, activations=name if native else case.deploy.activations)


def _format_told(name: str, deploy: Deployment) -> tuple[str, str]:
    """What a deployment by `_in_format` changes, in words and as options."""
    if deploy.activations == name:
        return f"weights and activations in {name}", f"--weights {name} --activations {name}"
    return f"weights in {name}", f"--weights {name}"


def _tried(kind: str, what: str, given_as: str, other: _Case, timing: Timing, now: Judged) -> Change | Refused:
    """Another case in full; its effect is the difference of the two."""
    timing = replace(
        timing,
        chunk_actions=other.world.head.chunk_actions,
        executed_actions=min(timing.executed_actions, other.world.head.chunk_actions),
    )
    try:
        after = judge(other.decision(other.robots).best_s, timing, fits=other.fits(other.robots))
    except CapacityError as error:
        return Refused(kind, what, str(error))
    return _change(kind, what, given_as, now, after, other)


def _change(kind: str, what: str, given_as: str, now: Judged, after: Judged, case: _Case) -> Change:
    return Change(
        kind=kind,
        what=what,
        given_as=given_as,
        cost_rank=COST_RANKS[kind],
        latency_s=after.latency_s,
        saved_s=now.latency_s - after.latency_s,
        margin_s=after.margin_s,
        met=after.met and after.fits,
        needed_bytes=case.needed_bytes(case.robots),
    )


def _speculated(case: _Case, timing: Timing, now: Judged, decision: Decision, draft: Speculation) -> Change:
    """Decode with a draft: each verification is a pass over draft + 1 tokens, computed as such."""
    world, decode = case.world, decision.phase("decode")
    if decode is None or world.core is None:
        raise CapacityError(f"{world.name} decodes no tokens one at a time: there is nothing to speculate on")
    drafted = cycle.one_count("draft.tokens", draft.tokens)
    acceptance = cycle.one_time("draft.acceptance", draft.acceptance, zero=True)
    wide = stage_pass(
        world.model,
        case.deploy,
        world.core,
        sequences=case.robots,
        queries=drafted + 1,
        cached_keys=mean_cached_tokens(world.prompt_tokens, decode.passes),
        head_tokens=drafted + 1,
        causal=True,
    )
    layers = world.stage(world.core).layer_count
    verify = decide([Phase("verify", 1, wide, layers)], case.hardware, case.deploy, launch_mode=case.launch_mode)
    before = decode.value_s if decode.value_s is not None else decode.bound_s
    step = before / decode.passes
    gain = float(
        speculation.answer_speedup(
            decode.passes,
            acceptance,
            drafted,
            draft_cost=cycle.one_time("draft.draft_cost", draft.draft_cost, zero=True),
            verify_cost=max(1.0, verify.best_s / step),
        )
    )
    after = judge(decision.best_s - before + before / gain, timing, fits=now.fits)
    what = f"speculation, {drafted} tokens at acceptance {acceptance:g}"
    return _change("speculation", what, "", now, after, case)
