"""One decision judged against a control period: schedules, limits, rates and shares of the cycle."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from capacity.arrays import ArrayLike, FloatArray
from capacity.errors import CapacityError
from capacity.formulas import control_cycle as cycle
from capacity.formulas import jitter, schedules
from capacity.inputs import one_count, one_time
from capacity.results import Decision

Schedule = Literal["synchronous", "chunked", "asynchronous"]


@dataclass(frozen=True)
class Timing:
    """What the robot gives: required times, how it plays actions, and the jitter of a decision. [s], [action]

    ``p99_over_p50`` is the 99th percentile of the decision time over its median.
    """

    period_s: float
    sensing_s: float
    preprocessing_s: float
    network_s: float
    schedule: Schedule
    chunk_actions: int
    executed_actions: int
    percentile: float
    p99_over_p50: float


@dataclass(frozen=True)
class Verdict:
    """One case against its deadline. ``limit_s`` is the time that one cycle may take at the percentile. [s]"""

    latency_s: float
    late_s: float
    limit_s: float
    margin_s: float
    met: bool
    miss_rate: float
    fits: bool


def check_present(times: Mapping[str, object]) -> None:
    """Nothing, unless a required time is None.

    Raises
    ------
    CapacityError
        Naming all times that are missing.
    """
    if missing := [name for name, time in times.items() if time is None]:
        are = "is" if len(missing) == 1 else "are"
        raise CapacityError(f"{', '.join(missing)} {are} missing; say each time, with 0 for a step that takes none")


def check_timing(timing: Timing) -> Timing:
    """The same timing as plain numbers, or an error that names the first thing wrong with it.

    Raises
    ------
    CapacityError
        For a missing, negative or unknown value, more actions executed than made, or more than one where each
        action is decided anew.
    """
    required = ("period_s", "sensing_s", "preprocessing_s", "network_s")
    check_present({name: getattr(timing, name) for name in required})
    checked = replace(
        timing,
        period_s=one_time("period_s", timing.period_s),
        sensing_s=one_time("sensing_s", timing.sensing_s, zero=True),
        preprocessing_s=one_time("preprocessing_s", timing.preprocessing_s, zero=True),
        network_s=one_time("network_s", timing.network_s, zero=True),
        executed_actions=one_count("executed_actions", timing.executed_actions),
        percentile=one_time("percentile", timing.percentile),
        p99_over_p50=one_time("p99_over_p50", timing.p99_over_p50),
    )
    if not isinstance(timing.schedule, str) or timing.schedule not in RULES:
        raise CapacityError(f"schedule must be one of {', '.join(RULES)}, got {timing.schedule!r}")
    schedules.check_chunk(checked.executed_actions, timing.chunk_actions)
    if timing.schedule == "synchronous" and checked.executed_actions != 1:
        raise CapacityError(
            "executed_actions must be 1 under a synchronous schedule, which decides each action anew, got "
            f"{checked.executed_actions}; chunked and asynchronous play more"
        )
    jitter.percentile_latency_s(1.0, p99_over_p50=checked.p99_over_p50, percentile=checked.percentile)
    return checked


@dataclass(frozen=True)
class ScheduleRules:
    """What a schedule makes of a latency: the limit, the interval between decisions, the control rate, and the share of
    time in which the robot stands still. [s], [s], [action/s], [1]"""

    limit_s: Callable[[Timing], float]
    interval_s: Callable[[ArrayLike, Timing], FloatArray]
    control_per_s: Callable[[ArrayLike, Timing], FloatArray]
    stall_share: Callable[[ArrayLike, Timing], FloatArray] | None = None


def _asynchronous_limit_s(timing: Timing) -> float:
    """The actions left when a decision starts, H - s, must last until it ends, and a decision may not take longer than
    half the chunk. [s]"""
    steps = min(timing.chunk_actions - timing.executed_actions, timing.chunk_actions // 2)
    return steps * timing.period_s


# Synchronous: one action per decision, within its period. Chunked: the robot waits, so any wait is a stall and the wait
# must fit in the period between two actions.
RULES: dict[str, ScheduleRules] = {
    "synchronous": ScheduleRules(
        limit_s=lambda timing: timing.period_s,
        interval_s=lambda latency, t: schedules.synchronous_interval_s(latency, period_s=t.period_s),
        control_per_s=lambda latency, t: schedules.synchronous_control_per_s(latency, period_s=t.period_s),
    ),
    "chunked": ScheduleRules(
        limit_s=lambda timing: timing.period_s,
        interval_s=lambda latency, t: schedules.chunked_interval_s(
            latency, executed_actions=t.executed_actions, period_s=t.period_s
        ),
        control_per_s=lambda latency, t: schedules.chunked_control_per_s(
            latency, executed_actions=t.executed_actions, period_s=t.period_s
        ),
        stall_share=lambda latency, t: schedules.stall_share(
            latency, executed_actions=t.executed_actions, period_s=t.period_s
        ),
    ),
    "asynchronous": ScheduleRules(
        limit_s=_asynchronous_limit_s,
        interval_s=lambda latency, t: schedules.asynchronous_interval_s(
            latency, executed_actions=t.executed_actions, period_s=t.period_s
        ),
        control_per_s=lambda latency, t: schedules.asynchronous_control_per_s(
            latency, chunk_actions=t.chunk_actions, executed_actions=t.executed_actions, period_s=t.period_s
        ),
    ),
}


def limit_s(timing: Timing) -> float:
    """Longest cycle that still keeps the period under the schedule. [s]"""
    return RULES[timing.schedule].limit_s(timing)


def interval_s(latency_s: float, timing: Timing) -> float:
    """Time between starts of decisions under the schedule. [s]"""
    return float(RULES[timing.schedule].interval_s(latency_s, timing))


def control_rate(latency_s: float, timing: Timing) -> float:
    """Actions applied per second under the schedule. [action/s]"""
    return float(RULES[timing.schedule].control_per_s(latency_s, timing))


def stall_share(latency_s: float, timing: Timing) -> float:
    """Share of the time in which the robot stands still and waits for a chunk; 0 unless it waits. [1]"""
    rule = RULES[timing.schedule].stall_share
    return float(rule(latency_s, timing)) if rule else 0.0


@lru_cache(maxsize=256)
def fixed_s(timing: Timing) -> float:
    """Time of a cycle outside the model. [s]"""
    times = {name: getattr(timing, name) for name in ("sensing_s", "preprocessing_s", "network_s")}
    return float(cycle.cycle_latency_s(**times, model_s=0.0))


def late_s(decision_s: ArrayLike, timing: Timing) -> FloatArray:
    """The percentile of the latency of whole cycles, in the shape of ``decision_s``. [s]"""
    percentile = jitter.percentile_latency_s(decision_s, p99_over_p50=timing.p99_over_p50, percentile=timing.percentile)
    return fixed_s(timing) + percentile


def judge(decision_s: float, timing: Timing, *, fits: bool) -> Verdict:
    """Latency of the whole cycle, its percentile, the margin to the limit and the share of late decisions."""
    fixed, limit = fixed_s(timing), limit_s(timing)
    late, rest_s = float(late_s(decision_s, timing)), limit - fixed
    ratio = timing.p99_over_p50
    missed = float(jitter.miss_rate(decision_s, p99_over_p50=ratio, deadline_s=rest_s)) if rest_s > 0 else 1.0
    return Verdict(
        latency_s=fixed + decision_s,
        late_s=late,
        limit_s=limit,
        margin_s=limit - late,
        met=late <= limit,
        miss_rate=missed,
        fits=fits,
    )


def shares(decision: Decision, timing: Timing) -> dict[str, float]:
    """Share of one cycle that each part takes, largest first. [1]"""
    parts = {phase.name: phase.value_s or phase.bound_s for phase in decision.phases}
    parts |= {
        "sensing": timing.sensing_s,
        "preprocessing": timing.preprocessing_s,
        "network": timing.network_s,
    }
    total = sum(parts.values())
    ordered = sorted(parts.items(), key=lambda item: -item[1])
    return {name: time / total for name, time in ordered if time > 0}
