"""What `control` answers, and how one decision is judged against a control period."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from capacity.errors import CapacityError
from capacity.formulas import control_cycle as cycle
from capacity.formulas import jitter
from capacity.results import Decision, Result
from capacity.units import format_bytes, format_seconds

Schedule = Literal["synchronous", "chunked", "asynchronous"]
SCHEDULES = ("synchronous", "chunked", "asynchronous")
LARGEST_BATCH = 64  # robots that a batch is tried for
NOT_MODELLED = (
    "actuator and controller dynamics",
    "correlation of late decisions (each is judged alone)",
    "other programs on the same device, beyond taken_bytes",
    "warm-up: first calls compile, capture graphs and load weights",
)


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
class Judged:
    """One case against its deadline. ``limit_s`` is the time that one cycle may take at the percentile. [s]"""

    latency_s: float
    late_s: float
    limit_s: float
    margin_s: float
    met: bool
    miss_rate: float
    fits: bool


@dataclass(frozen=True)
class Change:
    """One change, computed as a case of its own: what it saves, and whether the period is then met. [s], [B]

    ``given_as`` is what to ask `control` for to get this case: options of the command, a field of the model's file,
    or another argument; empty where ``what`` says it all. ``cost_rank`` orders kinds of change from a setting to new
    hardware.
    """

    kind: str
    what: str
    given_as: str
    cost_rank: int
    latency_s: float
    saved_s: float
    margin_s: float
    met: bool
    needed_bytes: int

    @property
    def told(self) -> str:
        """The change and how to ask for it."""
        return f"{self.what} ({self.given_as})" if self.given_as else self.what


@dataclass(frozen=True)
class Refused:
    """A change that was asked about and has no answer, and why."""

    kind: str
    what: str
    reason: str


@dataclass(frozen=True)
class Robots:
    """Most robots of one device: one after the other, each in its turn; in batches, asking at any time, so that one may
    wait for the batch before its own; and in one batch, asking together, which is how a plan for several is judged.
    """

    in_turns: int
    batched_at_any_time: int
    batched_together: int

    @property
    def told(self) -> str:
        """The three counts in words; batches were tried up to `LARGEST_BATCH` robots."""
        at_any_time, together = (
            f"at least {count}" if count == LARGEST_BATCH else str(count)
            for count in (self.batched_at_any_time, self.batched_together)
        )
        return (
            f"{self.in_turns:,} in turns, unbatched; {at_any_time} in batches if each asks at any time (one may wait "
            f"for the batch before its own); {together} in one batch if all ask together (as with --robots)"
        )


@dataclass(frozen=True, repr=False)
class ControlPlan(Result):
    """The answer of `control`. Rates carry their meaning in their names; there is no bare "Hz". [s], [1/s], [B]

    ``power_mode`` is what a named power mode changes, in words, and None where none was asked for.
    """

    model: str
    part: str
    power_mode: str | None
    timing: Timing
    decision: Decision
    judged: Judged
    missed_at_bound: bool
    binds: str
    shares: dict[str, float]
    replan_per_s: float
    action_throughput_per_s: float
    control_per_s: float
    stall_share: float
    overlapped_interval_s: float
    delay_steps: int
    reaction_s: float
    robots: Robots
    needed_bytes: int
    usable_bytes: int
    changes: tuple[Change, ...]
    refused: tuple[Refused, ...]
    cheapest: Change | None
    assumed: tuple[str, ...]
    notes: tuple[str, ...]
    not_modelled: tuple[str, ...] = NOT_MODELLED

    @property
    def met(self) -> bool:
        """Whether it fits and the period is met at the percentile."""
        return self.judged.met and self.judged.fits

    def table(self) -> list[tuple[str, str]]:
        judged, timing = self.judged, self.timing
        rows = [
            ("model", self.model),
            ("part", self.part),
            ("verdict", self._verdict()),
            *([("power mode", self.power_mode)] if self.power_mode else []),
            ("binds", self.binds),
            *self.decision.table(),
            ("latency", f"{format_seconds(judged.latency_s)}, p{timing.percentile:g} {format_seconds(judged.late_s)}"),
            ("miss rate", f"{_percent(judged.miss_rate)} of decisions"),
            ("replan rate", f"{self.replan_per_s:,.2f} decisions a second"),
            ("action throughput", f"{self.action_throughput_per_s:,.2f} actions made a second"),
            ("control rate", f"{self.control_per_s:,.2f} actions applied a second"),
            ("reaction time", format_seconds(self.reaction_s)),
            ("overlap", f"{format_seconds(self.overlapped_interval_s)} between decisions at best (bound)"),
            ("robots a device", self.robots.told),
            ("memory", f"{format_bytes(self.needed_bytes)} of {format_bytes(self.usable_bytes)} usable"),
        ]
        rows += [("change", _change_text(change)) for change in self.changes]
        rows += [("change", f"{change.what}: no answer, {change.reason}") for change in self.refused]
        rows.append(("cheapest change", self._cheapest_text()))
        return rows + [("assumed", text) for text in self.assumed] + [("note", note) for note in self.notes]

    def _verdict(self) -> str:
        """Met or missed, and of what: a period without its schedule, limit and reaction time says little."""
        judged, timing = self.judged, self.timing
        if not judged.fits:
            return f"does not fit: {format_bytes(self.needed_bytes)} of {format_bytes(self.usable_bytes)} usable"
        state = "met" if judged.met else "missed even at the bound" if self.missed_at_bound else "missed"
        wanted, applied = f"{1 / timing.period_s:.4g}", f"{self.control_per_s:.4g}"
        rate = wanted if applied == wanted else f"{applied} of {wanted}"
        interval = format_seconds(interval_s(judged.latency_s, timing))
        played = f"{timing.schedule}, {timing.executed_actions} of {timing.chunk_actions} actions"
        limit, late, margin = (format_seconds(abs(x)) for x in (judged.limit_s, judged.late_s, judged.margin_s))
        return (
            f"{state}: {rate} actions/s, replans every {interval} ({played}), reaction "
            f"{format_seconds(self.reaction_s)}; decision limit {limit}, p{timing.percentile:g} {late}, "
            f"{margin} {'to spare' if judged.margin_s >= 0 else 'too late'}"
        )

    def _cheapest_text(self) -> str:
        if self.met:
            return "none needed"
        return self.cheapest.told if self.cheapest else "none of those asked about"


def _percent(share: float) -> str:
    """A share in whole percents: what stands on an estimate and an assumed jitter has no more digits."""
    return "under 1%" if share < 0.01 else "over 99%" if share > 0.99 else f"{share:.0%}"


def _change_text(change: Change) -> str:
    verdict = "met" if change.met else "still missed"
    effect = "saves" if change.saved_s >= 0 else "costs"
    return f"{change.told}: {effect} {format_seconds(abs(change.saved_s))}, {verdict}"


def refuse_missing(times: Mapping[str, object]) -> None:
    """Nothing, unless a required time is None.

    Raises
    ------
    CapacityError
        Naming all times that are missing.
    """
    if missing := [name for name, given in times.items() if given is None]:
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
    refuse_missing({name: getattr(timing, name) for name in required})
    checked = replace(
        timing,
        period_s=cycle.one_time("period_s", timing.period_s),
        sensing_s=cycle.one_time("sensing_s", timing.sensing_s, zero=True),
        preprocessing_s=cycle.one_time("preprocessing_s", timing.preprocessing_s, zero=True),
        network_s=cycle.one_time("network_s", timing.network_s, zero=True),
        executed_actions=cycle.one_count("executed_actions", timing.executed_actions),
        percentile=cycle.one_time("percentile", timing.percentile),
        p99_over_p50=cycle.one_time("p99_over_p50", timing.p99_over_p50),
    )
    if timing.schedule not in SCHEDULES:
        raise CapacityError(f"schedule must be one of {', '.join(SCHEDULES)}, got {timing.schedule!r}")
    cycle.check_chunk(checked.executed_actions, timing.chunk_actions)
    if timing.schedule == "synchronous" and checked.executed_actions != 1:
        raise CapacityError(
            "executed_actions must be 1 under a synchronous schedule, which decides each action anew, got "
            f"{checked.executed_actions}; chunked and asynchronous play more"
        )
    jitter.percentile_latency_s(1.0, p99_over_p50=checked.p99_over_p50, percentile=checked.percentile)
    return checked


def limit_s(timing: Timing) -> float:
    """Longest cycle that still keeps the period. [s]

    Synchronous: one action a decision, within its period. Chunked: the robot waits, so any wait is a stall and the
    wait must fit in the period between two actions. Asynchronous: the actions left when a decision starts, H - s,
    must last until it ends, and a decision may not take longer than half the chunk.
    """
    if timing.schedule == "asynchronous":
        steps = min(timing.chunk_actions - timing.executed_actions, timing.chunk_actions // 2)
        return steps * timing.period_s
    return timing.period_s


def judge(decision_s: float, timing: Timing, *, fits: bool) -> Judged:
    """Latency of the whole cycle, its percentile, the margin to the limit and the share of late decisions."""
    fixed = float(
        cycle.cycle_latency_s(
            sensing_s=timing.sensing_s,
            preprocessing_s=timing.preprocessing_s,
            network_s=timing.network_s,
            model_s=0.0,
        )
    )
    late = fixed + float(
        jitter.percentile_latency_s(decision_s, p99_over_p50=timing.p99_over_p50, percentile=timing.percentile)
    )
    limit = limit_s(timing)
    left = limit - fixed
    missed = float(jitter.miss_rate(decision_s, p99_over_p50=timing.p99_over_p50, deadline_s=left)) if left > 0 else 1.0
    return Judged(
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


def interval_s(latency_s: float, timing: Timing) -> float:
    """Time between starts of decisions under the schedule. [s]"""
    moves = {"executed_actions": timing.executed_actions, "period_s": timing.period_s}
    if timing.schedule == "synchronous":
        return float(cycle.synchronous_interval_s(latency_s, period_s=timing.period_s))
    if timing.schedule == "chunked":
        return float(cycle.chunked_interval_s(latency_s, **moves))
    return float(cycle.asynchronous_interval_s(latency_s, **moves))


def control_rate(latency_s: float, timing: Timing) -> float:
    """Actions applied a second under the schedule. [action/s]"""
    moves = {"executed_actions": timing.executed_actions, "period_s": timing.period_s}
    if timing.schedule == "synchronous":
        return float(cycle.synchronous_control_per_s(latency_s, period_s=timing.period_s))
    if timing.schedule == "chunked":
        return float(cycle.chunked_control_per_s(latency_s, **moves))
    return float(cycle.asynchronous_control_per_s(latency_s, chunk_actions=timing.chunk_actions, **moves))


def cheapest(changes: Iterable[Change]) -> Change | None:
    """The change that meets the period at the least cost: by kind, then by the smallest effect that is enough."""
    enough = [change for change in changes if change.met]
    return min(enough, key=lambda change: (change.cost_rank, change.saved_s), default=None)
