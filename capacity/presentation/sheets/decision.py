"""The sheet of one decision: how long each of its phases keeps the device busy."""

from __future__ import annotations

from collections.abc import Iterator

from capacity.presentation.sheet import Cell, Column, Line, Parts, Section, Sheet
from capacity.results import Decision, PhaseTime


def decision_sheet(decision: Decision) -> Sheet:
    """The sheet of a decision."""
    return Sheet(
        title="Decision",
        head=(Line(("decision ", *time_words(decision))),),
        sections=(phase_section(decision),),
        assumptions=decision.assumed,
        notes=decision.notes,
        not_modelled=decision.not_modelled,
    )


def time_words(decision: Decision) -> Parts:
    """The bound, the attainable time where there is one, and the estimate with its band."""
    times: Parts = ("bound ", Cell(decision.bound_s, "s"), ", roofline ", Cell(decision.roofline_s, "s"))
    if decision.attainable_s is not None:
        times = (*times, ", attainable ", Cell(decision.attainable_s, "s"))
    if decision.value_s is not None:
        band = (" (band ", Cell(decision.low_s, "s"), " to ", Cell(decision.high_s, "s"), ")")
        times = (*times, ", estimate ", Cell(decision.value_s, "s"), *band)
    return times


def phase_section(decision: Decision) -> Section:
    """Passes, bound and estimate of each phase, and their sums."""
    attainable = any(phase.attainable_s is not None for phase in decision.phases)
    estimate = decision.value_s is not None
    rows = [tuple(_phase(phase, attainable=attainable, estimate=estimate)) for phase in decision.phases]
    rows.append(tuple(_total(decision, attainable=attainable, estimate=estimate)))
    columns = [Column("phase", "text"), Column("passes", rank=3), Column("bound"), Column("bound by", "id", 1)]
    columns += [Column("roofline", rank=2)]
    columns += [Column("attainable")] if attainable else []
    columns += [Column("estimate")] if estimate else []
    columns += [Column("bytes moved", rank=4), Column("FLOP", rank=5), Column("launches", rank=6)]
    return Section(
        title="Time of a decision by phase",
        columns=tuple(columns),
        rows=tuple(rows),
        rules=(len(decision.phases),),
        caption=_caption(decision),
        evidence=Column("evidence", "id", 3),
    )


def _caption(decision: Decision) -> str:
    phases: dict[str, list[str]] = {}
    for phase in decision.phases:
        if phase.launch_mode is not None:
            phases.setdefault(phase.launch_mode, []).append(phase.name)
    if not phases:
        return "bound computed on datasheet ceilings"
    mixed = len(phases) > 1
    modes = ", ".join(f"{mode} ({', '.join(names)})" if mixed else mode for mode, names in phases.items())
    word = "launch modes" if mixed else "launch mode"
    return f"bound computed on datasheet ceilings; estimate in {word} {modes}, {decision.evidence}"


def _phase(phase: PhaseTime, *, attainable: bool, estimate: bool) -> Iterator[Cell]:
    yield Cell(phase.name)
    yield Cell(phase.passes, "pass")
    yield Cell(phase.bound_s, "s")
    yield Cell(phase.bound_by)
    yield Cell(phase.roofline_s, "s")
    if attainable:
        yield Cell(phase.attainable_s, "s")
    if estimate:
        yield Cell(phase.value_s, "s")
    yield Cell(phase.moved_bytes, "B")
    yield Cell(phase.flop, "FLOP")
    yield Cell(phase.launches, "launch")


def _total(decision: Decision, *, attainable: bool, estimate: bool) -> Iterator[Cell]:
    phases = decision.phases
    yield Cell("decision")
    yield Cell(sum(phase.passes for phase in phases), "pass")
    yield Cell(decision.bound_s, "s")
    yield Cell("")
    yield Cell(decision.roofline_s, "s")
    if attainable:
        yield Cell(decision.attainable_s, "s")
    if estimate:
        yield Cell(decision.value_s, "s")
    yield Cell(sum(phase.moved_bytes for phase in phases), "B")
    yield Cell(sum(phase.flop for phase in phases), "FLOP")
    yield Cell(sum(phase.launches for phase in phases), "launch")
