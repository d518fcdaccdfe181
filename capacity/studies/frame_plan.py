"""What `frames` answers: frozen values with their units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from capacity.results import OUTSIDE_DECISION, OUTSIDE_MEMORY, Decision, Result
from capacity.studies.what_if import Change, NotEvaluated

NOT_MODELLED = (
    *OUTSIDE_MEMORY,
    *OUTSIDE_DECISION,
    "rendering, video encoding and the network between user and device",
    "queueing of frames (sessions of a batch start and end together)",
)


@dataclass(frozen=True, repr=False, eq=False)
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
    changes: tuple[Change, ...] = ()
    not_evaluated: tuple[NotEvaluated, ...] = ()
    cheapest: Change | None = None
    not_modelled: tuple[str, ...] = NOT_MODELLED

    @property
    def met(self) -> bool:
        """Whether the frame rate is met; a bound counts only with ``bound_only``."""
        return self.state == "met"

    @property
    def sessions_at_most(self) -> int:
        """Sessions that fit in memory and keep the frame rate. [session]"""
        return min(self.sessions_in_time, self.sessions_in_memory)

    @property
    def in_budget(self) -> bool:
        """Whether the sessions fit and each frame is within its budget, on whatever that rests."""
        return self.state != "missed"
