"""What `control` answers: frozen values with their units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from capacity.results import OUTSIDE_MEMORY, Decision, MemoryVerdict, Result, SharedMemory
from capacity.studies.deadline import Timing, Verdict
from capacity.studies.schedule_verdicts import ScheduleVerdict
from capacity.studies.what_if import Change, NotEvaluated

MAX_BATCH = 64  # robots that a batch is tried for
NOT_MODELLED = (
    *OUTSIDE_MEMORY,
    "actuator and controller dynamics",
    "correlation of late decisions (each is judged alone)",
    "other programs on the same device, beyond taken_bytes",
    "warm-up: first calls compile, capture graphs and load weights",
)


@dataclass(frozen=True)
class Robots:
    """Largest number of robots per device, by how their requests are served; batches are tried up to `MAX_BATCH`.

    ``in_turns`` one after another; ``batched_at_any_time`` with batching and unsynchronised requests, of which one may
    wait for the batch before its own; ``batched_together`` with batching and synchronised requests, as a plan for
    several robots is judged. ``judged`` is false where the counts rest on a bound that was not asked for: there are
    then at most so many. [robot]
    """

    in_turns: int
    batched_at_any_time: int
    batched_together: int
    judged: bool
    largest_tried: int = MAX_BATCH


@dataclass(frozen=True)
class Inputs:
    """What one decision takes in and makes: images, tokens, steps of the head and actions. [px], [token]"""

    views: int
    frames: int
    image_px: tuple[tuple[int, int], ...]
    image_tokens: int
    text_tokens: int
    state_tokens: int
    head: str
    steps: int
    chunk_actions: int


@dataclass(frozen=True)
class PowerSetting:
    """A named power mode, and the figures of the part for which the vendor says what it changes."""

    name: str
    stated: tuple[str, ...]


@dataclass(frozen=True, repr=False, eq=False)
class ControlPlan(Result):
    """The answer of `control`. Rates carry their meaning in their names; there is no bare "Hz". [s], [1/s], [B]

    ``binds`` is the largest entry of ``shares``, or "memory" where the case does not fit. ``interval_s`` is the time
    between starts of decisions under the schedule. ``memory`` is "tight" where all that is counted fits and
    ``left_bytes`` are fewer than ``runtime_bytes``, which are not; ``shared`` is None for a part with a memory of its
    own. ``schedules`` are all that a chunk could be played by, where none was stated.
    """

    DERIVED: ClassVar = ("met", "state")

    model: str
    part: str
    inputs: Inputs
    power_mode: PowerSetting | None
    timing: Timing
    decision: Decision
    verdict: Verdict
    missed_at_bound: bool
    binds: str
    shares: dict[str, float]
    replan_per_s: float
    action_throughput_per_s: float
    control_per_s: float
    stall_share: float
    interval_s: float
    overlapped_interval_s: float
    delay_steps: int
    reaction_s: float
    robots: Robots
    needed_bytes: int
    usable_bytes: int
    memory: MemoryVerdict
    runtime_bytes: int
    left_bytes: int
    shared: SharedMemory | None
    changes: tuple[Change, ...]
    not_evaluated: tuple[NotEvaluated, ...]
    cheapest: Change | None
    assumed: tuple[str, ...]
    notes: tuple[str, ...]
    not_modelled: tuple[str, ...] = NOT_MODELLED
    bound_only: bool = False
    schedules: tuple[ScheduleVerdict, ...] = ()

    @property
    def met(self) -> bool:
        """Whether it fits and the period is met at the percentile; a bound counts only with ``bound_only``."""
        return self.state == "met"

    @property
    def state(self) -> Literal["met", "missed", "missed at the bound", "not excluded", "does not fit"]:
        """The verdict as a code; without an estimate a bound within the period excludes nothing."""
        if not self.verdict.fits:
            return "does not fit"
        if self.verdict.met:
            return "met" if self.bound_only or self.decision.value_s is not None else "not excluded"
        return "missed at the bound" if self.missed_at_bound else "missed"
