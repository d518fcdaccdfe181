"""Interactive world models: frame rate of each session, sessions per device with growing caches, frame budget."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from capacity.arrays import ArrayLike, FloatArray
from capacity.demand.decisions import decision_phases
from capacity.demand.phases import Phase
from capacity.engines.budget import Budget
from capacity.errors import CapacityError
from capacity.estimate import memory
from capacity.estimate.assumptions import assumptions
from capacity.estimate.case import Case, check_specs, prepare
from capacity.estimate.decision import decide, decision_figures
from capacity.estimate.usage import cache_bytes
from capacity.formulas import sharing
from capacity.inputs import LARGEST_COUNT, check_kind, one_count, one_time
from capacity.results import OUTSIDE_DECISION, OUTSIDE_MEMORY, Decision, Result
from capacity.specs.deployment import Deployment
from capacity.specs.hardware import HardwareSpec
from capacity.specs.world import WorldModelSpec
from capacity.studies.control_case import check_launch_mode, whole_bytes, with_attainable, with_launch_mode, world_notes
from capacity.studies.robots import leading

PER_FRAME = ("decode", "denoise", "plan", "detokenise")
MAX_BATCH = 256  # sessions that a batch is tried for
NOT_MODELLED = (
    *OUTSIDE_MEMORY,
    *OUTSIDE_DECISION,
    "rendering, video encoding and the network between user and device",
    "queueing of frames (sessions of a batch start and end together)",
)


@dataclass(frozen=True, repr=False)
class FramePlan(Result):
    """The answer of `frames`. The prompt is encoded once per session and is not in the frame time. [s], [1/s], [B]

    ``seconds_until_full`` is counted from the start of all ``sessions``; None where they never fill the memory.
    """

    DERIVED: ClassVar = ("met",)

    model: str
    part: str
    sessions: int
    frame_s: float
    frame_bound_s: float
    budget_s: float
    state: Literal["met", "missed", "not excluded"]
    frames_per_s: float
    start_s: float
    sessions_in_time: int
    sessions_in_memory: int
    cache_tokens: int
    session_bytes: int
    growth_bytes_per_s: float
    seconds_until_full: float | None
    decision: Decision
    notes: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    not_modelled: tuple[str, ...] = NOT_MODELLED

    @property
    def met(self) -> bool:
        """Whether the frame rate is met; never on a bound that was not asked for."""
        return self.state == "met"

    @property
    def sessions_at_most(self) -> int:
        """Sessions that fit in memory and keep the frame rate. [session]"""
        return min(self.sessions_in_time, self.sessions_in_memory)


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

    Returns
    -------
    FramePlan
        The verdict, frame time and rate, sessions in time and in memory, and when growing caches fill it. [s], [B]

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
    chosen = Deployment() if deploy is None else deploy
    check_kind("world", world, WorldModelSpec)
    check_specs(world, hardware, chosen)
    check_kind("bound_only", bound_only, bool)
    _refuse_a_policy(world)
    chosen, assumed = with_launch_mode(chosen, bound_only=bound_only)
    asked = _Sessions(prepare(world, hardware, chosen), world, whole_bytes(taken_bytes))
    frames_per_s = one_time("frames_per_s", frames_per_s)
    budget_s = 1.0 / frames_per_s
    count = one_count("sessions", sessions)
    age_s = max(one_time("elapsed_s", elapsed_s, zero=True), budget_s)
    tokens = _cached_tokens(world, age_s, frames_per_s, window_tokens)
    phases = asked.phases(count, tokens)
    check_launch_mode(chosen, phases)
    decision = with_attainable(asked.case, phases, decide(asked.case, phases))
    frame_s, bound_s, start_s = _frame_s(world, decision)
    fitting = asked.in_memory(tokens)
    growth = frames_per_s * _frame_tokens(world) * asked.token_bytes
    in_time = frame_s <= budget_s and count <= fitting
    return FramePlan(
        model=world.name,
        part=hardware.name,
        sessions=count,
        frame_s=frame_s,
        frame_bound_s=bound_s,
        budget_s=budget_s,
        state=_state(in_time=in_time, judged=bound_only or decision.value_s is not None),
        frames_per_s=1.0 / frame_s,
        start_s=start_s,
        sessions_in_time=asked.in_time(budget_s, tokens),
        sessions_in_memory=fitting,
        cache_tokens=tokens,
        session_bytes=asked.session_bytes(tokens),
        growth_bytes_per_s=growth,
        seconds_until_full=asked.seconds_until_full(count, window_tokens, growth),
        decision=decision,
        notes=world_notes(asked.case, decision, bound_only=bound_only),
        assumed=(*assumed, *assumptions(world, chosen)),
    )


def _state(*, in_time: bool, judged: bool) -> Literal["met", "missed", "not excluded"]:
    """The verdict as a code; without an estimate a bound within the budget excludes nothing."""
    if not in_time:
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
    frame, start = _frame_tokens(world), world.prompt_tokens
    window_tokens = None if window_tokens is None else one_count("window_tokens", window_tokens)
    if window_tokens is not None and window_tokens < frame:
        raise CapacityError(f"window_tokens must hold one frame of {world.name}, {frame} tokens, got {window_tokens}")
    rate = frames_per_s * frame
    tokens = sharing.cache_tokens(age_s, start_tokens=start, tokens_per_s=rate, window_tokens=window_tokens)
    if tokens > LARGEST_COUNT:
        raise CapacityError(f"elapsed_s: after {age_s:g} s a session has more than 2^31 tokens; give a window_tokens")
    return int(tokens)


@dataclass(frozen=True, eq=False)
class _Sessions:
    """What the time and the memory of sessions depend on. [B]"""

    case: Case
    world: WorldModelSpec
    taken_bytes: int

    def phases(self, sessions: ArrayLike, cached_tokens: int) -> tuple[Phase, ...]:
        """The phases of batches whose frames end with ``cached_tokens`` in each cache."""
        start = max(0, cached_tokens - self.world.answer_tokens)
        return decision_phases(self.world, self.case.deploy, batch=sessions, context_tokens=start)

    def in_time(self, budget_s: float, cached_tokens: int) -> int:
        """Largest number of sessions whose frames of one batch stay within the budget."""
        figures = decision_figures(self.case, self.phases(np.arange(1, MAX_BATCH + 1), cached_tokens))
        times: FloatArray = np.zeros(MAX_BATCH)
        for item in figures:
            if item.phase.name in PER_FRAME:
                times = times + (item.bound_s if item.value_s is None else item.value_s)
        return leading(times <= budget_s)

    def session_bytes(self, cached_tokens: int) -> int:
        """Cache and state of one session. [B]"""
        (kind,) = self.case.memory.kinds
        held = cache_bytes(kind.whole, sequences=1, context_tokens=cached_tokens)
        return int(held) + kind.whole.sequence_bytes

    @property
    def token_bytes(self) -> int:
        """Cache of one more token. [B]"""
        return self.session_bytes(2) - self.session_bytes(1)

    @property
    def budget(self) -> Budget:
        """What the engine may plan with, less what other programs hold."""
        return self.case.budget.less(self.taken_bytes)

    @property
    def usable_bytes(self) -> int:
        """Memory of one device for sessions, less what other programs hold. [B]"""
        return self.budget.planned_bytes()

    def in_memory(self, cached_tokens: int) -> int:
        """Largest number of sessions that fit; 2^31 where memory does not limit them. [session]"""
        case = self.case
        fitting = memory.max_batch(case.memory, self.budget, case.deploy, context_tokens=cached_tokens)
        return min(LARGEST_COUNT, int(fitting))

    def seconds_until_full(self, sessions: int, window_tokens: int | None, growth_bytes_per_s: float) -> float | None:
        """Time from the start until the caches have filled the memory; None where they stop growing before. [s]"""
        case, start = self.case, self.world.prompt_tokens
        longest = int(memory.max_context(case.memory, self.budget, case.deploy, batch=sessions, positions=None)[1])
        if window_tokens is not None and window_tokens <= longest:
            return None
        if growth_bytes_per_s == 0:
            return None if max(start, 1) <= longest else 0.0
        free = self.session_bytes(max(start, longest)) - self.session_bytes(start)
        return float(sharing.seconds_until_full(free, sessions=1, bytes_per_s=growth_bytes_per_s))


def _frame_s(world: WorldModelSpec, decision: Decision) -> tuple[float, float, float]:
    """Estimate and bound of the phases of one frame, and the time of those that start a session. [s]"""
    made = [phase for phase in decision.phases if phase.name in PER_FRAME]
    if not made:
        raise CapacityError(f"{world.name} makes no frame: it has no decode, denoise or plan phase")
    start = [phase for phase in decision.phases if phase.name not in PER_FRAME]
    return (
        sum(phase.value_s or phase.bound_s for phase in made),
        sum(phase.bound_s for phase in made),
        sum(phase.value_s or phase.bound_s for phase in start),
    )


def _frame_tokens(world: WorldModelSpec) -> int:
    """Tokens that a frame adds to the context: its own and those of the action. [token]"""
    return (world.answer_tokens or world.image_tokens) + world.state_tokens
