"""Interactive world models: frames a second of each session, sessions a card with growing caches, frame budget."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from capacity.demand import memory
from capacity.demand.phases import phases
from capacity.errors import CapacityError
from capacity.estimate.world import (
    activation_bytes,
    cache_bytes,
    check_case,
    decide,
    held_bytes,
    usable_bytes,
)
from capacity.formulas import control_cycle as cycle
from capacity.formulas import sharing as clients
from capacity.results import Decision, Result
from capacity.specs.base import LARGEST_COUNT
from capacity.specs.deployment import Deployment
from capacity.specs.hardware import HardwareSpec
from capacity.specs.world import WorldModelSpec
from capacity.units import format_bytes, format_seconds

PER_FRAME = ("decode", "denoise", "plan", "detokenise")
LARGEST_BATCH = 256


@dataclass(frozen=True, repr=False)
class FramePlan(Result):
    """The answer of `frames`. The prompt is encoded once a session and is not in the frame time. [s], [1/s], [B]

    ``seconds_until_full`` is counted from the start of all ``sessions``; None where they never fill the memory.
    """

    model: str
    part: str
    sessions: int
    frame_s: float
    frame_bound_s: float
    budget_s: float
    met: bool
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

    @property
    def sessions_at_most(self) -> int:
        """Sessions that fit in memory and keep the frame rate. [session]"""
        return min(self.sessions_in_time, self.sessions_in_memory)

    def table(self) -> list[tuple[str, str]]:
        budget = f"{format_seconds(self.budget_s)} ({1 / self.budget_s:g} frames a second)"
        grows = "never" if self.seconds_until_full is None else f"after {format_seconds(self.seconds_until_full)}"
        return [
            ("model", self.model),
            ("part", self.part),
            ("verdict", f"frame budget {'met' if self.met else 'missed'} with {self.sessions} sessions"),
            ("frame", f"{format_seconds(self.frame_s)} (bound {format_seconds(self.frame_bound_s)})"),
            ("budget", budget),
            ("frame rate", f"{self.frames_per_s:,.2f} frames a second of each session"),
            ("start of a session", format_seconds(self.start_s)),
            ("sessions in time", f"{self.sessions_in_time:,}"),
            ("sessions in memory", f"{self.sessions_in_memory:,} of {format_bytes(self.session_bytes)} each"),
            ("cache growth", f"{format_bytes(self.growth_bytes_per_s)} a second of each session; full {grows}"),
            *self.decision.table(),
            *[("note", note) for note in self.notes],
        ]


def frames(
    world: WorldModelSpec,
    hardware: HardwareSpec,
    deploy: Deployment | None = None,
    *,
    frames_per_s: float,
    sessions: int,
    elapsed_s: float,
    window_tokens: int | None,
    launch_mode: str | None,
    taken_bytes: int = 0,
) -> FramePlan:
    """Judge a frame rate for ``sessions`` that run together, and count how many a card can hold.

    Parameters
    ----------
    world, hardware, deploy : WorldModelSpec, HardwareSpec, Deployment
        Model, part and number formats; one answer of the model is one frame.
    frames_per_s : float
        Wanted of each session. [1/s]
    sessions : int
        Sessions decided for in one batch, started together. [session]
    elapsed_s : float
        Age at which memory and the frame then finished are judged: the cache holds the prompt and all frames since,
        at least one. [s]
    window_tokens : int or None
        Longest context kept, prompt included; at least one frame. None keeps all. [token]
    launch_mode : str or None
        ``eager``, ``compiled``, ``graph``, ``tuned``; None judges the bound.
    taken_bytes : int
        Device memory that other programs hold. [B]

    Raises
    ------
    CapacityError
        If the model makes no frame, a number is not positive, or the window is shorter than a frame.
    """
    chosen = Deployment() if deploy is None else deploy
    check_case(world, hardware, chosen, launch_mode)
    asked = _Sessions(world, hardware, chosen, launch_mode, usable_bytes(hardware, chosen, taken_bytes))
    budget_s = 1.0 / cycle.one_time("frames_per_s", frames_per_s)
    sessions = cycle.one_count("sessions", sessions)
    age_s = max(cycle.one_time("elapsed_s", elapsed_s, zero=True), budget_s)
    tokens = _cached_tokens(world, age_s, frames_per_s, window_tokens)
    decision = asked.decision(sessions, tokens)
    frame_s, bound_s, start_s = _frame_s(world, decision)
    fitting = asked.in_memory(tokens)
    growth = frames_per_s * _frame_tokens(world) * asked.token_bytes
    return FramePlan(
        model=world.name,
        part=hardware.name,
        sessions=sessions,
        frame_s=frame_s,
        frame_bound_s=bound_s,
        budget_s=budget_s,
        met=frame_s <= budget_s and sessions <= fitting,
        frames_per_s=1.0 / frame_s,
        start_s=start_s,
        sessions_in_time=asked.in_time(budget_s, tokens),
        sessions_in_memory=fitting,
        cache_tokens=tokens,
        session_bytes=asked.session_bytes(tokens),
        growth_bytes_per_s=growth,
        seconds_until_full=asked.seconds_until_full(sessions, window_tokens, growth),
        decision=decision,
        notes=world.notes,
    )


def _cached_tokens(world: WorldModelSpec, age_s: float, frames_per_s: float, window_tokens: int | None) -> int:
    """Tokens in the cache of a session of some age, the frame that it then finishes included. [token]"""
    frame, start = _frame_tokens(world), world.prompt_tokens
    if window_tokens is not None and cycle.one_count("window_tokens", window_tokens) < frame:
        raise CapacityError(f"window_tokens must hold one frame of {world.name}, {frame} tokens, got {window_tokens}")
    rate = frames_per_s * frame
    tokens = clients.cache_tokens(age_s, start_tokens=start, tokens_per_s=rate, window_tokens=window_tokens)
    if tokens > LARGEST_COUNT:
        raise CapacityError(f"elapsed_s: after {age_s:g} s a session has more than 2^31 tokens; give a window_tokens")
    return int(tokens)


@dataclass(frozen=True)
class _Sessions:
    """What the time and the memory of sessions depend on."""

    world: WorldModelSpec
    hardware: HardwareSpec
    deploy: Deployment
    launch_mode: str | None
    usable_bytes: int

    def decision(self, sessions: int, cached_tokens: int) -> Decision:
        """The phases of one batch whose frames end with ``cached_tokens`` in each cache."""
        start = max(0, cached_tokens - self.world.answer_tokens)
        found = phases(self.world, self.deploy, batch=sessions, context_tokens=start)
        return decide(found, self.hardware, self.deploy, launch_mode=self.launch_mode)

    def in_time(self, budget_s: float, cached_tokens: int) -> int:
        """Most sessions whose frames of one batch stay within the budget, for time grows with batch."""

        def meets(sessions: int) -> bool:
            return _frame_s(self.world, self.decision(sessions, cached_tokens))[0] <= budget_s

        return _most(meets, LARGEST_BATCH)

    def session_bytes(self, cached_tokens: int) -> int:
        """Cache and state of one session. [B]"""
        state = memory.sequence_state_bytes(self.world.model, self.deploy, 0)
        return cache_bytes(self.world, self.deploy, cached_tokens) + state

    @property
    def token_bytes(self) -> int:
        """Cache of one more token. [B]"""
        return cache_bytes(self.world, self.deploy, 2) - cache_bytes(self.world, self.deploy, 1)

    def free_bytes(self, sessions: int) -> int:
        """Memory left for caches and states beside weights, resident parts and the activations of a batch. [B]"""
        held = held_bytes(self.world, self.deploy, batch=1)
        fixed = sum(size for name, size in held.items() if name not in ("kv cache", "state", "activations"))
        return self.usable_bytes - fixed - activation_bytes(self.world, self.deploy, batch=sessions)

    def in_memory(self, cached_tokens: int) -> int:
        """Most sessions that fit; 2^31 where memory does not end them. [session]"""
        each = self.session_bytes(cached_tokens)
        return _most(lambda sessions: sessions * each <= self.free_bytes(sessions), LARGEST_COUNT)

    def seconds_until_full(self, sessions: int, window_tokens: int | None, growth_bytes_per_s: float) -> float | None:
        """Time from the start until the caches have filled the memory; None where they stop growing before. [s]"""
        free = self.free_bytes(sessions)
        if window_tokens is not None and sessions * self.session_bytes(window_tokens) <= free:
            return None
        start = sessions * self.session_bytes(self.world.prompt_tokens)
        if growth_bytes_per_s == 0:
            return None if start <= free else 0.0
        return float(clients.seconds_until_full(free - start, sessions=sessions, bytes_per_s=growth_bytes_per_s))


def _most(meets: Callable[[int], bool], largest: int) -> int:
    """The largest number from 0 to ``largest`` that meets a condition which no number meets once one does not."""
    low, high = 0, 1
    while high < largest and meets(high):
        low, high = high, min(2 * high, largest)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if meets(middle) else (low, middle - 1)
    return low


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
    """Tokens a frame adds to the context: its own and those of the action. [token]"""
    return (world.answer_tokens or world.image_tokens) + world.state_tokens
