"""Is the control period met, by what margin, what binds, and which change would meet it at least cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from capacity.estimate.assumptions import assumptions
from capacity.estimate.case import check_specs
from capacity.formulas import control_cycle as cycle
from capacity.formulas import schedules
from capacity.inputs import check_each, check_kind, one_count
from capacity.results import Decision
from capacity.specs.deployment import DEFAULT_DEPLOYMENT, Deployment, Draft
from capacity.specs.hardware import HardwareSpec
from capacity.specs.world import WorldModelSpec
from capacity.studies.control_case import (
    ControlCase,
    check_launch_mode,
    whole_bytes,
    with_attainable,
    with_launch_mode,
    world_notes,
)
from capacity.studies.control_changes import Question, changes_of
from capacity.studies.control_result import ControlPlan, Inputs, PowerSetting
from capacity.studies.deadline import (
    Schedule,
    Timing,
    check_timing,
    control_rate,
    interval_s,
    judge,
    shares,
    stall_share,
)
from capacity.studies.provenance import shared_memory
from capacity.studies.robots import robots_per_device
from capacity.studies.schedule_verdicts import default_executed, judged_schedules
from capacity.studies.what_if import FORMATS, Attempt, cheapest, split_attempts

# Assumed 99th percentile of a decision over its median. The benchmarks in VinRobotics/vla.cpp's README have p90 over
# p50 of 1.02 to 1.09, which is 1.04 to 1.17 at p99 where times are log-normal.
ASSUMED_P99_OVER_P50 = 1.1


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
    bound_only: bool = False,
    percentile: float = 99.0,
    p99_over_p50: float | None = None,
    taken_bytes: float = 0,
    power_mode: str | None = None,
    robots: int = 1,
    draft: Draft | None = None,
    chunks: Sequence[int] = (),
    encoders: Sequence[WorldModelSpec] = (),
    parts: Sequence[HardwareSpec] = (),
    formats: Sequence[str] = FORMATS,
) -> ControlPlan:
    """Judge a control period, and compute each change as a case of its own.

    Parameters
    ----------
    world : WorldModelSpec
        The model.
    hardware : HardwareSpec
        The part.
    deploy : Deployment or None
        Number formats, parallelism and launch mode; the formats that the model is stored in and a captured graph by
        default, which is listed as an assumption: the verdict depends on the launch mode.
    period_s : float
        Time between two actions at the robot. Required. [s]
    sensing_s, preprocessing_s, network_s : float
        Times outside the model; 0 must be given for a step that takes none. Required. [s]
    schedule : str or None
        ``synchronous`` (an action per decision), ``chunked`` (the robot waits for each chunk) or ``asynchronous``
        (it plays one while the next is made). By default all are judged, and the verdict is that of synchronous for a
        chunk of one, chunked where the policy states how many actions it plays, else asynchronous.
    executed_actions : int or None
        Actions played of each chunk; by default those that the policy states, else one if synchronous, all if chunked,
        half if asynchronous. [action]
    bound_only : bool
        Judge the bound alone, whatever the launch mode.
    percentile : float
        Share of decisions that must be in time. [%]
    p99_over_p50 : float or None
        Jitter of a decision, measured; `ASSUMED_P99_OVER_P50` without it. [1]
    taken_bytes : float
        Device memory that other programs hold. [B]
    power_mode : str or None
        A named power mode of the part.
    robots : int
        Robots that are decided for in one batch. [robot]
    draft : Draft or None
        A speculative draft to try; that of the deployment without one.
    chunks : sequence of int
        Other chunk lengths to try, played asynchronously by halves. [action]
    encoders : sequence of WorldModelSpec
        The same policy with other encoders.
    parts : sequence of HardwareSpec
        Other parts to try.
    formats : sequence of str
        Weight formats to try. A change that has no answer is listed as not evaluated.

    Returns
    -------
    ControlPlan
        The verdict with limit, latency and margin, rates, memory, robots per device, and the changes. [s], [1/s], [B]

    Raises
    ------
    CapacityError
        If a required time is missing or negative, more is executed than made, or a name is unknown.

    Examples
    --------
    >>> import capacity as cap
    >>> times = {"period_s": 0.02, "sensing_s": 0.005, "preprocessing_s": 0.0, "network_s": 0.0}
    >>> plan = cap.control(cap.load_world_model("pi0"), cap.load_hardware("nvidia-rtx-4090-24gb"), **times)
    >>> plan.timing.schedule, plan.timing.executed_actions
    ('asynchronous', 25)
    """
    deployment = DEFAULT_DEPLOYMENT if deploy is None else deploy
    check_kind("world", world, WorldModelSpec)
    check_specs(world, hardware, deployment)
    check_kind("bound_only", bound_only, bool)
    check_kind("power_mode", power_mode, str, none=True)
    check_kind("draft", draft, Draft, none=True)
    draft, deployment = draft or deployment.draft, deployment.replace(draft=None) if deployment.draft else deployment
    for name, (values, kind) in {
        "chunks": (chunks, object),
        "encoders": (encoders, WorldModelSpec),
        "parts": (parts, HardwareSpec),
        "formats": (formats, str),
    }.items():
        check_each(name, values, kind)
    part = hardware.in_power_mode(power_mode) if power_mode is not None else hardware
    timing, assumed = _timing(
        world, period_s, sensing_s, preprocessing_s, network_s, schedule, executed_actions, percentile, p99_over_p50
    )
    deployment, assumed_mode = with_launch_mode(deployment, bound_only=bound_only)
    case = ControlCase(world, part, deployment, whole_bytes(taken_bytes), one_count("robots", robots))
    decision = case.decision
    verdict = judge(decision.best_s, timing, fits=bool(case.fits(case.robots)))
    check_launch_mode(deployment, case.phases(case.robots))
    judged = decision.value_s is not None or bound_only
    others = judged_schedules(
        decision.best_s, timing, executed_actions=executed_actions or world.head.executed_actions, judged=judged
    )
    now = Question(case, timing, decision, verdict, bound_only)
    attempts = tuple(changes_of(now, draft=draft, chunks=chunks, encoders=encoders, parts=parts, formats=formats))
    power = None if power_mode is None else _power_setting(hardware, power_mode)
    defaults = assumptions(world, deployment)
    plan = _plan(now, attempts, (*assumed, *assumed_mode, *defaults), power, bound_only=bound_only)
    return replace(plan, schedules=others) if schedule is None and verdict.fits else plan


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
    chunk, assumed = world.head.chunk_actions, []
    policy_executed = world.head.executed_actions if chunk > 1 else None
    if schedule is None:
        waits = policy_executed is not None and executed_actions is None
        schedule = "synchronous" if chunk == 1 else "chunked" if waits else "asynchronous"
        assumed.append(f"schedule = {schedule}{', as a policy that states the actions it plays' if waits else ''}")
    if executed_actions is None and policy_executed is not None and schedule != "synchronous":
        executed_actions = policy_executed
        assumed.append(f"executed_actions = {policy_executed}, as the policy states")
    if executed_actions is None:
        executed_actions = default_executed(str(schedule), chunk)
        assumed.append(f"executed_actions = {executed_actions}")
    if p99_over_p50 is None:
        p99_over_p50 = ASSUMED_P99_OVER_P50
        assumed.append(f"p99_over_p50 = {p99_over_p50:g} (jitter not measured)")
    times = (period_s, sensing_s, preprocessing_s, network_s)
    timing = Timing(*times, schedule, chunk, executed_actions, percentile, p99_over_p50)  # type: ignore[arg-type]
    return check_timing(timing), assumed


def _power_setting(hardware: HardwareSpec, name: str) -> PowerSetting:
    mode = hardware.power.modes[name]
    figures = ("bytes_per_s", "peak_factor", "boost_hz")
    return PowerSetting(name, tuple(figure for figure in figures if getattr(mode, figure) is not None))


def _plan(
    now: Question,
    attempts: tuple[Attempt, ...],
    assumed: tuple[str, ...],
    power: PowerSetting | None,
    *,
    bound_only: bool,
) -> ControlPlan:
    case, timing, verdict = now.case, now.timing, now.verdict
    decision = with_attainable(case.case, case.phases(case.robots), now.decision)
    parts = shares(decision, timing)
    latency, interval = verdict.latency_s, interval_s(verdict.latency_s, timing)
    changes, not_evaluated = split_attempts(attempts)
    return ControlPlan(
        model=case.world.name,
        part=case.hardware.name,
        inputs=_inputs(case.world),
        power_mode=power,
        timing=timing,
        decision=decision,
        verdict=verdict,
        missed_at_bound=_missed_at_bound(decision, timing),
        binds=next(iter(parts)) if verdict.fits else "memory",
        shares=parts,
        replan_per_s=float(cycle.replan_per_s(latency)),
        action_throughput_per_s=float(cycle.action_throughput_per_s(latency, timing.chunk_actions)),
        control_per_s=control_rate(latency, timing),
        stall_share=stall_share(latency, timing),
        interval_s=interval,
        overlapped_interval_s=_overlapped_s(decision),
        delay_steps=int(schedules.delay_steps(latency, timing.period_s)),
        reaction_s=float(cycle.reaction_s(latency, interval_s=interval)),
        robots=robots_per_device(case, timing, bound_only=bound_only),
        needed_bytes=case.needed_bytes(case.robots),
        usable_bytes=case.usable_bytes,
        memory=case.memory_verdict,
        runtime_bytes=case.runtime_bytes,
        left_bytes=case.left_bytes,
        shared=shared_memory(case.hardware, case.deploy, taken_bytes=case.taken_bytes),
        changes=changes,
        not_evaluated=not_evaluated,
        cheapest=None if verdict.met and verdict.fits else cheapest(changes),
        assumed=assumed,
        notes=world_notes(case.case, decision, bound_only=bound_only),
        bound_only=bound_only,
    )


def _inputs(world: WorldModelSpec) -> Inputs:
    sizes = [(encoder.tokens.height_px, encoder.tokens.width_px) for encoder in world.encoders]
    return Inputs(
        views=world.views,
        frames=world.frames,
        image_px=tuple(dict.fromkeys(sizes)),
        image_tokens=world.image_tokens,
        text_tokens=world.text_tokens,
        state_tokens=world.state_tokens,
        head=world.head.kind,
        steps=world.head.steps,
        chunk_actions=world.head.chunk_actions,
    )


def _missed_at_bound(decision: Decision, timing: Timing) -> bool:
    """Whether a decision as fast as its bound, and never later, is too late."""
    return not judge(decision.bound_s, replace(timing, p99_over_p50=1.0), fits=True).met


def _overlapped_s(decision: Decision) -> float:
    """Minimum time between decisions whose phases run side by side: neither memory nor arithmetic is used twice. [s]"""
    return max(sum([phase.memory_s for phase in decision.phases]), sum([phase.compute_s for phase in decision.phases]))
