"""Interactive world models: frame rate of each session, sessions per device with growing caches, frame budget."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from capacity.errors import CapacityError
from capacity.estimate.assumptions import assumptions
from capacity.estimate.case import check_specs, prepare
from capacity.estimate.decision import decide
from capacity.formulas import sharing
from capacity.inputs import LARGEST_COUNT, check_each, check_kind, one_count, one_time
from capacity.results import Decision
from capacity.specs.deployment import DEFAULT_DEPLOYMENT, Deployment
from capacity.specs.hardware import HardwareSpec
from capacity.specs.world import WorldModelSpec
from capacity.studies import what_if
from capacity.studies.control_case import check_launch_mode, whole_bytes, with_attainable, with_launch_mode, world_notes
from capacity.studies.devices import fewest_devices
from capacity.studies.frame_plan import FramePlan
from capacity.studies.sessions import PER_FRAME, Sessions, frame_tokens
from capacity.studies.what_if import FORMATS, Attempt, Effect, Setup, attempts, cheapest, split_attempts


@dataclass(frozen=True)
class _FrameRequest:
    """The request: number of sessions, their rate and memory, and the basis of the verdict."""

    count: int
    frames_per_s: float
    cached_tokens: int
    taken_bytes: int
    bound_only: bool

    @property
    def budget_s(self) -> float:
        """Time for one frame. [s]"""
        return 1.0 / self.frames_per_s

    def sessions(self, setup: Setup) -> Sessions:
        """Sessions of a world model on a part under a deployment."""
        return Sessions(prepare(setup.world, setup.hardware, setup.deploy), setup.world, self.taken_bytes)


def frames(
    world: WorldModelSpec,
    hardware: HardwareSpec,
    deploy: Deployment | None = None,
    *,
    frames_per_s: float,
    sessions: int = 1,
    elapsed_s: float = 0.0,
    window_tokens: int | None = None,
    bound_only: bool = False,
    taken_bytes: float = 0,
    parts: Sequence[HardwareSpec] = (),
    formats: Sequence[str] = FORMATS,
) -> FramePlan:
    """Judge a frame rate for ``sessions`` that run together, and count how many a device can hold.

    Parameters
    ----------
    world : WorldModelSpec
        The model; one answer of it is one frame.
    hardware : HardwareSpec
        The part.
    deploy : Deployment or None
        Number formats, parallelism and launch mode; a captured graph by default, listed as an assumption.
    frames_per_s : float
        Wanted of each session. [1/s]
    sessions : int
        Sessions decided for in one batch, started together. [session]
    elapsed_s : float
        Age at which memory and the frame then finished are judged: the cache holds the prompt and all frames since,
        at least one. [s]
    window_tokens : int or None
        Longest context kept, prompt included; at least one frame. None keeps all. [token]
    bound_only : bool
        Judge the bound alone, whatever the launch mode.
    taken_bytes : float
        Device memory that other programs hold. [B]
    parts : sequence of HardwareSpec
        Other parts to try.
    formats : sequence of str
        Weight formats to try. A change that has no answer is listed as not evaluated.

    Returns
    -------
    FramePlan
        The verdict, frame time and rate, sessions in time and in memory, when growing caches fill it, and the
        changes. [s], [B]

    Raises
    ------
    CapacityError
        If the model makes no frame, a number is not positive, or the window is shorter than a frame.

    Examples
    --------
    >>> import capacity as cap
    >>> world, part = cap.load_world_model("mineworld-300m"), cap.load_hardware("nvidia-h100-sxm5-80gb")
    >>> cap.frames(world, part, frames_per_s=4, window_tokens=5_552).cache_tokens
    5552
    """
    deployment = DEFAULT_DEPLOYMENT if deploy is None else deploy
    check_kind("world", world, WorldModelSpec)
    check_specs(world, hardware, deployment)
    check_kind("bound_only", bound_only, bool)
    check_each("parts", parts, HardwareSpec)
    check_each("formats", formats, str)
    _refuse_a_policy(world)
    deployment, assumed = with_launch_mode(deployment, bound_only=bound_only)
    reserved, rate = whole_bytes(taken_bytes), one_time("frames_per_s", frames_per_s)
    count, age_s = one_count("sessions", sessions), max(one_time("elapsed_s", elapsed_s, zero=True), 1.0 / rate)
    tokens = _cached_tokens(world, age_s, rate, window_tokens)
    request, now = _FrameRequest(count, rate, tokens, reserved, bound_only), Setup(world, hardware, deployment)
    running = request.sessions(now)
    phases = running.phases(count, tokens)
    check_launch_mode(deployment, phases)
    decision = with_attainable(running.case, phases, decide(running.case, phases))
    plan = _plan(request, running, decision, window_tokens, (*assumed, *assumptions(world, deployment)))
    changes, not_evaluated = split_attempts(_changes(now, request, plan, parts, formats))
    best = None if plan.in_budget else cheapest(changes)
    return replace(plan, changes=changes, not_evaluated=not_evaluated, cheapest=best)


def _plan(
    request: _FrameRequest, running: Sessions, decision: Decision, window_tokens: int | None, assumed: tuple[str, ...]
) -> FramePlan:
    tokens, count, world = request.cached_tokens, request.count, running.world
    frame_s, bound_s, start_s = _frame_s(world, decision)
    sessions_in_memory = running.in_memory(tokens)
    growth = request.frames_per_s * frame_tokens(world) * running.token_bytes
    in_budget = frame_s <= request.budget_s and count <= sessions_in_memory
    state = _state(in_budget=in_budget, judged=request.bound_only or decision.value_s is not None)
    return FramePlan(
        model=world.name,
        part=running.case.hardware.name,
        sessions=count,
        frame_s=frame_s,
        frame_bound_s=bound_s,
        budget_s=request.budget_s,
        state=state,
        frames_per_s=1.0 / frame_s,
        start_s=start_s,
        sessions_in_time=running.in_time(request.budget_s, tokens),
        sessions_in_memory=sessions_in_memory,
        cache_tokens=tokens,
        session_bytes=running.session_bytes(tokens),
        growth_bytes_per_s=growth,
        seconds_until_full=running.seconds_until_full(count, window_tokens, growth),
        decision=decision,
        notes=world_notes(running.case, decision, bound_only=request.bound_only),
        assumed=assumed,
    )


def _changes(
    now: Setup, request: _FrameRequest, plan: FramePlan, parts: Sequence[HardwareSpec], formats: Sequence[str]
) -> Iterator[Attempt]:
    """Changes of formats, steps and devices, and the parts that were given."""

    def effect_of(changed: Setup) -> Effect:
        return _effect(request, request.sessions(changed), plan)

    def fits(deploy: Deployment) -> bool:
        return request.sessions(replace(now, deploy=deploy)).in_memory(request.cached_tokens) >= request.count

    yield from attempts(what_if.in_formats(now, formats), effect_of)
    yield from attempts(what_if.in_half_the_steps(now), effect_of)
    if plan.sessions > plan.sessions_in_memory:
        enough = fewest_devices(now.hardware, now.deploy, fits)
        yield from attempts(what_if.on_more_devices(now, enough), effect_of)
    yield from attempts(what_if.on_parts(now, parts), effect_of)


def _effect(request: _FrameRequest, other: Sessions, plan: FramePlan) -> Effect:
    """Other sessions in full, compared with the present ones: bound with bound where one of them has no estimate."""
    count, tokens = request.count, request.cached_tokens
    times, bounds, estimated = other.frame_s(count, tokens)
    time_s, max_sessions = float(times), other.in_memory(tokens)
    same_kind = estimated == (plan.decision.value_s is not None)
    return Effect(
        time_s=time_s,
        saved_s=plan.frame_s - time_s if same_kind else plan.frame_bound_s - float(bounds),
        margin_s=request.budget_s - time_s,
        needed_bytes=other.needed_bytes(count, tokens),
        max_batch=max_sessions,
        fits=count <= max_sessions,
        within=time_s <= request.budget_s,
        judged=estimated or request.bound_only,
    )


def _state(*, in_budget: bool, judged: bool) -> Literal["met", "missed", "not excluded"]:
    """The verdict as a code; without an estimate a bound within the budget excludes nothing."""
    if not in_budget:
        return "missed"
    return "met" if judged else "not excluded"


def _refuse_a_policy(world: WorldModelSpec) -> None:
    """Refuse a model whose answer is actions."""
    if world.head.makes != "frames":
        raise CapacityError(
            f"{world.name} makes no frame: its {world.head.kind} head makes actions; ask for a decision with control, "
            'or say head.makes = "frames" of a model that does'
        )


def _cached_tokens(world: WorldModelSpec, age_s: float, frames_per_s: float, window_tokens: int | None) -> int:
    """Tokens in the cache of a session of some age, the frame that it then finishes included. [token]"""
    frame, start = frame_tokens(world), world.prompt_tokens
    window_tokens = None if window_tokens is None else one_count("window_tokens", window_tokens)
    if window_tokens is not None and window_tokens < frame:
        raise CapacityError(f"window_tokens must hold one frame of {world.name}, {frame} tokens, got {window_tokens}")
    rate = frames_per_s * frame
    tokens = sharing.cache_tokens(age_s, start_tokens=start, tokens_per_s=rate, window_tokens=window_tokens)
    if tokens > LARGEST_COUNT:
        raise CapacityError(f"elapsed_s: after {age_s:g} s a session has more than 2^31 tokens; give a window_tokens")
    return int(tokens)


def _frame_s(world: WorldModelSpec, decision: Decision) -> tuple[float, float, float]:
    """Estimate and bound of the phases of one frame, and the time of those that start a session. [s]"""
    frame_phases = [phase for phase in decision.phases if phase.name in PER_FRAME]
    if not frame_phases:
        raise CapacityError(f"{world.name} makes no frame: it has no decode, denoise or plan phase")
    start = [phase for phase in decision.phases if phase.name not in PER_FRAME]
    return (
        sum(phase.value_s or phase.bound_s for phase in frame_phases),
        sum(phase.bound_s for phase in frame_phases),
        sum(phase.value_s or phase.bound_s for phase in start),
    )
