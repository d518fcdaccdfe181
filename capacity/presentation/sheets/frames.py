"""The sheet of an interactive world model: frame time against its budget, sessions per device, growth of caches."""

from __future__ import annotations

from collections.abc import Iterator

from capacity.inputs import LARGEST_COUNT
from capacity.presentation.figures import counted, figure
from capacity.presentation.sheet import Cell, Column, Line, Section, Sheet, unique
from capacity.presentation.sheets.changes import change_sections, described
from capacity.presentation.sheets.decision import phase_section
from capacity.studies.frame_plan import FramePlan

Row = tuple[Cell, ...]


def frames_sheet(plan: FramePlan) -> Sheet:
    """The sheet of a frame rate."""
    state = "not excluded by the bound" if plan.state == "not excluded" else plan.state
    sessions = counted(plan.sessions, "session")
    frame = (": frame ", Cell(plan.frame_s, "s"), ", budget ", Cell(plan.budget_s, "s"))
    return Sheet(
        title=f"{plan.model} on {plan.part}",
        head=(
            Line((f"frame budget {state} with {sessions}", *frame), "good" if plan.met else "bad"),
            Line(f"{plan.model} on {plan.part}"),
            *_cheapest(plan),
        ),
        sections=(
            _section("Frames", _frames(plan)),
            _section("Sessions", _sessions(plan)),
            phase_section(plan.decision),
            *change_sections(plan.changes, plan.not_evaluated, time="frame", capacity="sessions in memory"),
        ),
        assumptions=unique((*plan.assumed, *plan.decision.assumed)),
        notes=unique((*plan.notes, *plan.decision.notes)),
        not_modelled=unique((*plan.not_modelled, *plan.decision.not_modelled)),
    )


def _cheapest(plan: FramePlan) -> Iterator[Line]:
    if not plan.in_budget:
        yield Line(f"cheapest change that meets the budget: {described(plan.cheapest)}")


def _section(title: str, rows: Iterator[Row]) -> Section:
    columns = (Column("figure", "text"), Column("value"))
    return Section(title, columns, tuple(rows), notes=Column("meaning", "text", 1))


def _frames(plan: FramePlan) -> Iterator[Row]:
    yield Cell("frame"), Cell(plan.frame_s, "s", note="of each session, all sessions in one batch")
    yield Cell("frame bound"), Cell(plan.frame_bound_s, "s", note="on datasheet ceilings")
    rate = Cell(1 / plan.budget_s)
    note = (rate, " frame" if figure(rate) == "1" else " frames", " per second requested")
    yield Cell("budget"), Cell(plan.budget_s, "s", note=note)
    yield Cell("frame rate"), Cell(plan.frames_per_s, "1/s", note="per session", digits=2)
    yield Cell("start of a session"), Cell(plan.start_s, "s", note="encodes the prompt, once per session")


def _sessions(plan: FramePlan) -> Iterator[Row]:
    yield Cell("sessions in time"), Cell(plan.sessions_in_time, "session", note="that keep the frame rate in one batch")
    unlimited = plan.sessions_in_memory >= LARGEST_COUNT
    note = ("of ", Cell(plan.session_bytes, "B"), " each, ", Cell(plan.cache_tokens, "token"), " tokens in the cache")
    in_memory = (
        Cell(None, note="not limited by memory") if unlimited else Cell(plan.sessions_in_memory, "session", note=note)
    )
    yield Cell("sessions in memory"), in_memory
    yield Cell("cache growth"), Cell(plan.growth_bytes_per_s, "B/s", note="per session")
    never = plan.seconds_until_full is None
    full = "never: the caches stop growing" if never else "from the start of all sessions"
    yield Cell("memory full after"), Cell(plan.seconds_until_full, "s", note=full)
