"""The sheet of one model on many parts: those that fit, what they reach, and why others have no answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from capacity.presentation.figures import counted
from capacity.presentation.sheet import Cell, Column, Line, Parts, Section, Sheet
from capacity.presentation.sheets.limits import shortage_words
from capacity.studies.parts import PartRow, PartTable


def part_table_sheet(table: PartTable) -> Sheet:
    """The sheet of a model on many parts."""
    answered = [row for row in table.rows if row.devices is not None]
    never = [row for row in table.rows if row.devices is None]
    sections = []
    if answered:
        sections.append(_answered(table, answered))
    if never:
        sections.append(_never(never))
    return Sheet(
        title=f"{table.model} on {len(table.rows)} parts",
        head=(Line(_verdict(table, answered, never)), _where(table)),
        sections=tuple(sections),
        assumptions=(*table.assumed, *_of_parts(table.rows)),
        notes=table.notes,
        not_modelled=table.not_modelled,
    )


def _verdict(table: PartTable, answered: Sequence[PartRow], never: Sequence[PartRow]) -> Parts:
    fitting = sum(row.fits for row in answered)
    parts: Parts = (
        f"{table.model} fits ",
        Cell(fitting, "part"),
        " of ",
        Cell(len(table.rows), "part"),
        " parts as given",
    )
    if more := len(answered) - fitting:
        parts = (*parts, ", ", Cell(more, "part"), " with more devices")
    return (*parts, "; ", Cell(len(never), "part"), " without an answer") if never else parts


def _where(table: PartTable) -> Line:
    batch, tokens = Cell(table.batch, "sequence"), Cell(table.memory_tokens, "token")
    devices = table.deployment["tensor_parallel"] * table.deployment["pipeline_parallel"]
    devices *= table.deployment["data_parallel"]
    replica = counted(devices, "device")
    return Line(("batch ", batch, " at ", tokens, f" tokens; given {replica} per replica, more where needed"))


def _answered(table: PartTable, rows: Sequence[PartRow]) -> Section:
    missed, tight = any(row.missed for row in rows), any(row.tight for row in rows)
    ttft_rank = 2 if table.workload["max_ttft_s"] is None else 0
    columns = [Column("part", "id"), Column("devices", rank=1), Column("TPOT bound"), Column("max batch", rank=1)]
    columns += [Column("misses", "id")] if missed else []
    columns += [Column("memory", "id")] if tight else []
    columns += [
        Column("TTFT bound", rank=ttft_rank),
        Column("token/s bound", rank=3),
        Column("to spare", rank=4),
        Column("max context", rank=5),
        Column("bound by", "id", 7),
    ]
    return Section(
        title="Parts",
        columns=tuple(columns),
        rows=tuple(_row(row, missed=missed, tight=tight) for row in rows),
        caption="Fewest devices of one replica on which the case fits, and bounds there; spare memory per device.",
        evidence=Column("evidence", "id", 6),
    )


def _row(row: PartRow, *, missed: bool, tight: bool) -> tuple[Cell, ...]:
    return (
        Cell(row.part, tone="good" if row.fits else ""),
        Cell(row.devices, "device"),
        Cell(row.tpot_bound_s, "s", row.evidence),
        Cell(row.max_batch, "sequence"),
        *([Cell("both" if len(row.missed) > 1 else "".join(row.missed), tone="bad")] if missed else []),
        *([Cell("tight" if row.tight else "fits", tone="doubtful" if row.tight else "")] if tight else []),
        Cell(row.ttft_bound_s, "s"),
        Cell(row.tokens_per_s_bound, digits=0),
        Cell(row.margin_bytes, "B"),
        Cell(row.max_context_tokens, "token"),
        Cell(row.bound_by),
    )


def _never(rows: Sequence[PartRow]) -> Section:
    columns = (Column("part", "id"), Column("reason", "text"))
    return Section("Parts without an answer", columns, tuple((Cell(row.part), _why(row)) for row in rows))


def _why(row: PartRow) -> Cell:
    if row.shortage is None:
        return Cell(row.reason)
    devices = f"on {counted(row.shortage.devices, 'device')} "
    assumed = "".join(f"; assuming {line}" for line in row.assumed)
    return Cell("", note=(devices, *shortage_words(row.shortage), assumed))


def _of_parts(rows: Sequence[PartRow]) -> tuple[str, ...]:
    """What is assumed of parts, and of how many."""
    count = Counter(line for row in rows for line in row.assumed)
    return tuple(f"{line}, for {number:,} parts whose sources state none" for line, number in count.items())
