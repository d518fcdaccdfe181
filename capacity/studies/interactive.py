"""Interactive world models: frames a second of each session, sessions a card with growing caches, frame budget."""

from __future__ import annotations

from dataclasses import dataclass

from capacity import evaluate
from capacity.errors import CapacityError
from capacity.estimators import clients, memory
from capacity.estimators import control as cycle
from capacity.estimators.phases import phases
from capacity.evaluate_world import Decision, decide, held_bytes
from capacity.results import Result
from capacity.specs.deployment import Deployment
from capacity.specs.hardware import HardwareSpec
from capacity.specs.world import WorldModelSpec
from capacity.units import format_bytes, format_seconds

PER_FRAME = ("decode", "denoise", "plan", "detokenise")
LARGEST_BATCH = 256


@dataclass(frozen=True, repr=False)
class FramePlan(Result):
    """The answer of `frames`. The prompt is encoded once a session and is not in the frame time. [s], [1/s], [B]"""

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
        Sessions decided for in one batch. [session]
    elapsed_s : float
        Age of a session at which memory is judged. [s]
    window_tokens : int or None
        Longest context kept; None keeps all. [token]
    launch_mode : str or None
        ``eager``, ``compiled``, ``graph``, ``tuned``; None judges the bound.
    taken_bytes : int
        Device memory that other programs hold. [B]

    Raises
    ------
    CapacityError
        If the model makes no frame, or a number is not positive.
    """
    chosen = deploy or Deployment()
    budget_s = 1.0 / float(cycle.check_time("frames_per_s", frames_per_s))
    cycle.check_count("sessions", sessions)
    decision = _decision(world, hardware, chosen, launch_mode, sessions)
    frame_s, bound_s, start_s = _frame_s(world, decision)
    tokens = int(
        clients.cache_tokens(elapsed_s, tokens_per_s=frames_per_s * _frame_tokens(world), window_tokens=window_tokens)
    )
    each = int(memory.sequence_cache_bytes(world.model, chosen, context_tokens=max(tokens, 1), rank=0))
    each += memory.sequence_state_bytes(world.model, chosen, 0)
    free = _free_bytes(world, hardware, chosen, taken_bytes)
    fitting = clients.sessions_that_fit(free, constant_bytes=0, cache_bytes=each)
    growth = _growth_bytes_per_s(world, chosen, frames_per_s)
    full = float(clients.seconds_until_full(free, sessions=sessions, bytes_per_s=growth)) if growth else None
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
        sessions_in_time=_in_time(world, hardware, chosen, launch_mode, budget_s),
        sessions_in_memory=int(min(fitting, 2**31)),
        cache_tokens=tokens,
        session_bytes=each,
        growth_bytes_per_s=growth,
        seconds_until_full=full if window_tokens is None else None,
        decision=decision,
        notes=world.notes,
    )


def _decision(
    world: WorldModelSpec, hardware: HardwareSpec, deploy: Deployment, launch_mode: str | None, sessions: int
) -> Decision:
    return decide(phases(world, deploy, batch=sessions), hardware, deploy, launch_mode=launch_mode)


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


def _growth_bytes_per_s(world: WorldModelSpec, deploy: Deployment, frames_per_s: float) -> float:
    token = int(memory.sequence_cache_bytes(world.model, deploy, context_tokens=2, rank=0)) - int(
        memory.sequence_cache_bytes(world.model, deploy, context_tokens=1, rank=0)
    )
    return frames_per_s * _frame_tokens(world) * token


def _free_bytes(world: WorldModelSpec, hardware: HardwareSpec, deploy: Deployment, taken_bytes: int) -> int:
    held = held_bytes(world, deploy, batch=1)
    fixed = sum(size for name, size in held.items() if name not in ("kv cache", "state"))
    return evaluate.usable_bytes(hardware, deploy) - taken_bytes - fixed


def _in_time(
    world: WorldModelSpec, hardware: HardwareSpec, deploy: Deployment, launch_mode: str | None, budget_s: float
) -> int:
    """Most sessions whose frames of one batch stay within the budget: a bisection, for time grows with batch."""
    low, high = 0, LARGEST_BATCH
    while low < high:
        middle = (low + high + 1) // 2
        decision = _decision(world, hardware, deploy, launch_mode, middle)
        if _frame_s(world, decision)[0] <= budget_s:
            low = middle
        else:
            high = middle - 1
    return low
