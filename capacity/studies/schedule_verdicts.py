"""Each schedule that a robot could play a chunk by, judged side by side where none was stated."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from capacity.studies.deadline import RULES, Schedule, Timing, control_rate, interval_s, judge

State = Literal["met", "missed", "not excluded"]


@dataclass(frozen=True)
class ScheduleVerdict:
    """One schedule: actions played of each chunk, time of a cycle at the percentile, its limit, and what is applied.

    ``state`` is "not excluded" where only a bound is known that was not asked for. [action], [s], [action/s]
    """

    schedule: Schedule
    executed_actions: int
    late_s: float
    limit_s: float
    interval_s: float
    control_per_s: float
    state: State


def default_executed(schedule: str, chunk_actions: int) -> int:
    """Actions played of a chunk where nothing is stated: one, all, or half of it. [action]

    >>> [default_executed(name, 50) for name in ("synchronous", "chunked", "asynchronous")]
    [1, 50, 25]
    """
    return {"synchronous": 1, "chunked": chunk_actions}.get(schedule, max(1, chunk_actions // 2))


def judged_schedules(
    decision_s: float, timing: Timing, *, executed_actions: int | None, judged: bool
) -> tuple[ScheduleVerdict, ...]:
    """All schedules of a chunk of several actions; none for a model that decides each action anew.

    Parameters
    ----------
    decision_s : float
        Time of one decision. [s]
    timing : Timing
        What the robot gives; its schedule is replaced by each in turn.
    executed_actions : int or None
        Actions played of each chunk, where stated. [action]
    judged : bool
        Whether the time is an estimate, or a bound that was asked for.
    """
    if timing.chunk_actions == 1:
        return ()
    verdicts = []
    for schedule in RULES:
        played = executed_actions if executed_actions and schedule != "synchronous" else None
        executed = played or default_executed(schedule, timing.chunk_actions)
        candidate = replace(timing, schedule=schedule, executed_actions=executed)  # type: ignore[arg-type]
        verdicts.append(_judged(decision_s, candidate, judged=judged))
    return tuple(verdicts)


def _judged(decision_s: float, timing: Timing, *, judged: bool) -> ScheduleVerdict:
    verdict = judge(decision_s, timing, fits=True)
    state: State = "missed" if not verdict.met else "met" if judged else "not excluded"
    return ScheduleVerdict(
        schedule=timing.schedule,
        executed_actions=timing.executed_actions,
        late_s=verdict.late_s,
        limit_s=verdict.limit_s,
        interval_s=interval_s(verdict.latency_s, timing),
        control_per_s=control_rate(verdict.latency_s, timing),
        state=state,
    )
