"""The sheet of a control period: verdict, time of a decision, the cycle, robots per device, and changes tried."""

from __future__ import annotations

from collections.abc import Iterator

from capacity.presentation.figures import counted
from capacity.presentation.sheet import Cell, Column, Line, Parts, Section, Sheet, Tone, unique
from capacity.presentation.sheets.changes import change_sections, described
from capacity.presentation.sheets.decision import phase_section, time_words
from capacity.presentation.sheets.limits import runtime_words, shared_words
from capacity.studies.control_result import ControlPlan, Inputs, PowerSetting, Robots
from capacity.units import format_seconds

Row = tuple[Cell, ...]
TONES: dict[str, Tone] = {"met": "good", "missed": "bad", "not excluded": "doubtful"}
LIMITS = {  # what one cycle may take, by schedule
    "synchronous": "the period: each action is decided anew",
    "chunked": "the period: the robot waits for each chunk",
    "asynchronous": "the actions left when a decision starts, at most half the chunk",
}
POWER_FIGURES = {"bytes_per_s": "bandwidth", "peak_factor": "peak rates", "boost_hz": "clock"}


def control_sheet(plan: ControlPlan) -> Sheet:
    """The sheet of a control period."""
    sections = [phase_section(plan.decision), _cycle(plan), _shares(plan), _robots(plan.robots)]
    if plan.schedules:
        sections.insert(0, _schedules(plan))
    sections += change_sections(plan.changes, plan.not_evaluated, time="latency", capacity="robots in memory")
    return Sheet(
        title=f"{plan.model} on {plan.part}",
        head=tuple(_head(plan)),
        sections=tuple(sections),
        assumptions=unique((*plan.assumed, *plan.decision.assumed)),
        notes=unique((*plan.notes, *plan.decision.notes)),
        not_modelled=unique((*plan.not_modelled, *plan.decision.not_modelled)),
    )


def _head(plan: ControlPlan) -> Iterator[Line]:
    timing = plan.timing
    yield Line(_verdict(plan), "good" if plan.met else "bad")
    if plan.timing.chunk_actions > 1:
        yield Line(_period(plan))
    if plan.memory == "tight":
        yield Line(("memory is tight: ", *runtime_words(plan.left_bytes, plan.runtime_bytes)), "doubtful")
    if plan.shared is not None:
        yield Line(shared_words(plan.shared), "doubtful")
    yield Line(f"{plan.model} on {plan.part}")
    yield Line(("input: ", *_inputs(plan.inputs)))
    yield Line(("decision: ", *time_words(plan.decision)))
    if plan.verdict.fits:
        target = Cell(1 / timing.period_s, "action/s")
        applied = (Cell(plan.control_per_s, "action/s"), " of ", target, " actions per second applied")
        replans = ("; replans every ", Cell(plan.interval_s, "s"), "; reaction time ", Cell(plan.reaction_s, "s"))
        yield Line((*applied, *replans))
    yield Line(_binding(plan))
    if plan.power_mode is not None:
        yield Line(_power_mode_note(plan.power_mode), "" if plan.power_mode.stated else "doubtful")
    if plan.state not in ("met", "not excluded"):
        yield Line(f"cheapest change that meets the period: {described(plan.cheapest)}")


def _verdict(plan: ControlPlan) -> Parts:
    """Met or missed, and of what: a period without its schedule and limit says little."""
    verdict, timing = plan.verdict, plan.timing
    if not verdict.fits:
        return ("does not fit: ", Cell(plan.needed_bytes, "B"), " of ", Cell(plan.usable_bytes, "B"), " usable")
    words = {"missed at the bound": "missed even at the bound", "not excluded": "not excluded by the bound"}
    state = words.get(plan.state, plan.state)
    chunk = f", {timing.executed_actions:,} of {timing.chunk_actions:,} actions" if timing.chunk_actions > 1 else ""
    schedule = f" ({timing.schedule}{chunk}): "
    late = (f"p{timing.percentile:g} of a cycle ", Cell(verdict.late_s, "s"), ", limit ", Cell(verdict.limit_s, "s"))
    margin = (", ", Cell(abs(verdict.margin_s), "s"), " to spare" if verdict.margin_s >= 0 else " too late")
    assumed = f"; {timing.schedule} is assumed" if plan.schedules else ""
    return (state, schedule, *late, *margin, assumed)


def _period(plan: ControlPlan) -> Parts:
    """What the period is of a chunk, and how to ask for a decision in each period."""
    timing = plan.timing
    period = ("period: ", Cell(timing.period_s, "s"), " between two actions at the robot")
    if timing.executed_actions == 1:
        return (*period, ", each decided anew")
    due = (", so a decision for every ", Cell(timing.executed_actions * timing.period_s, "s"), " of motion")
    other = format_seconds(timing.period_s / timing.executed_actions)
    options = f'--period "{other}" --executed-actions {timing.executed_actions}'
    return (*period, *due, "; for a decision every ", Cell(timing.period_s, "s"), f" give {options}")


def _schedules(plan: ControlPlan) -> Section:
    columns = (
        Column("schedule", "text"),
        Column("verdict", "id"),
        Column("actions/s"),
        Column("decision every", rank=1),
        Column("limit", rank=2),
        Column("cycle", rank=3),
    )
    rows = tuple(
        (
            Cell(f"{one.schedule}, {one.executed_actions:,} of {plan.timing.chunk_actions:,} actions"),
            Cell(one.state, tone=TONES[one.state]),
            Cell(one.control_per_s, digits=2),
            Cell(one.interval_s, "s"),
            Cell(one.limit_s, "s"),
            Cell(one.late_s, "s"),
        )
        for one in plan.schedules
    )
    caption = "No schedule was stated: each is judged; --schedule chooses."
    return Section("Schedules", columns, rows, caption=caption)


def _binding(plan: ControlPlan) -> Parts:
    if plan.binds not in plan.shares:
        return (f"binding constraint: {plan.binds}",)
    phase = plan.decision.phase(plan.binds)
    side = f" (bound by {phase.bound_by})" if phase else ""
    share = Cell(plan.shares[plan.binds], "1", digits=0)
    return (f"largest part of the cycle: {plan.binds}, ", share, side)


def _inputs(inputs: Inputs) -> Parts:
    sizes = " and ".join(f"{height} x {width}" for height, width in inputs.image_px)
    frames = f" of {counted(inputs.frames, 'frame')}" if inputs.frames > 1 else ""
    views = counted(inputs.views, "view")
    images = f"{views}{frames} at {sizes} px ({inputs.image_tokens:,} tokens), " if sizes else ""
    state = f", {inputs.state_tokens:,} state tokens" if inputs.state_tokens else ""
    steps = f", {inputs.steps:,} steps" if inputs.steps > 1 else ""
    actions = counted(inputs.chunk_actions, "action")
    return (f"{images}{inputs.text_tokens:,} text tokens{state}; {inputs.head} head{steps}, {actions} per decision",)


def _power_mode_note(power: PowerSetting) -> str:
    if power.stated:
        figures = ", ".join(POWER_FIGURES[figure] for figure in power.stated)
        return f"power mode {power.name}: {figures} as the vendor states"
    unknown = "no source states how it slows the part; times are those of the full part, likely too short"
    return f"power mode {power.name}: {unknown}"


def _cycle(plan: ControlPlan) -> Section:
    return Section(
        title="Control cycle",
        columns=(Column("figure", "text"), Column("value")),
        rows=(*_times(plan), *_rates(plan), *_memory(plan)),
        notes=Column("meaning", "text", 1),
    )


def _times(plan: ControlPlan) -> Iterator[Row]:
    verdict, timing = plan.verdict, plan.timing
    late = ("jitter p99 / median ", Cell(timing.p99_over_p50))
    yield Cell("latency"), Cell(verdict.latency_s, "s", note="sensing, preprocessing, network and decision")
    yield Cell(f"latency, p{timing.percentile:g}"), Cell(verdict.late_s, "s", note=late)
    yield Cell("limit"), Cell(verdict.limit_s, "s", note=LIMITS[timing.schedule])
    yield Cell("miss rate"), Cell(verdict.miss_rate, "probability", note="of decisions, each judged alone")
    yield Cell("reaction time"), Cell(plan.reaction_s, "s", note="from an event to the first action that knows of it")
    overlap = "minimum interval of decisions whose phases overlap (bound)"
    yield Cell("overlapped interval"), Cell(plan.overlapped_interval_s, "s", note=overlap)


def _rates(plan: ControlPlan) -> Iterator[Row]:
    yield Cell("possible decisions"), Cell(plan.replan_per_s, "1/s", note="one after another", digits=2)
    yield (
        Cell("possible actions"),
        Cell(plan.action_throughput_per_s, "1/s", note="computed by those decisions", digits=2),
    )
    yield Cell("control rate"), Cell(plan.control_per_s, "1/s", note="actions applied at the robot", digits=2)
    outdated = "of a chunk, past when it arrives"
    yield Cell("outdated actions"), Cell(plan.delay_steps, "action", note=outdated)
    if plan.stall_share:
        yield Cell("stall"), Cell(plan.stall_share, "1", note="of the time, waiting for the next chunk", digits=0)


def _memory(plan: ControlPlan) -> Iterator[Row]:
    yield Cell("memory"), Cell(plan.needed_bytes, "B", note=("of ", Cell(plan.usable_bytes, "B"), " usable"))
    if plan.runtime_bytes:
        note = ("context and libraries, not counted in memory; ", Cell(plan.left_bytes, "B"), " are left for it")
        yield Cell("runtime"), Cell(plan.runtime_bytes, "B", note=note)


def _shares(plan: ControlPlan) -> Section:
    rows = tuple((Cell(name), Cell(share, "1")) for name, share in plan.shares.items())
    return Section("Cycle by part", (Column("part", "text"), Column("share")), rows)


def _robots(robots: Robots) -> Section:
    rows = (
        (Cell("served one after another"), Cell(robots.in_turns, "robot", note="no waiting, median time")),
        _served("with batching, unsynchronised requests", robots.batched_at_any_time, robots.largest_tried),
        _served(
            "with batching, synchronised requests (as with --robots)", robots.batched_together, robots.largest_tried
        ),
    )
    caption = "" if robots.judged else "Upper limits: counted on the bound, because there is no estimate."
    return Section("Robots per device", (Column("requests", "text"), Column("robots")), rows, caption=caption)


def _served(how: str, count: int, largest: int) -> Row:
    return Cell(how), Cell(count, "robot", note="or more" if count == largest else "")
