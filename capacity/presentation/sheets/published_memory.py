"""The sheet of published memory figures: targets, errors by engine, misses with what is known of their cause."""

from __future__ import annotations

from collections.abc import Sequence

from capacity.presentation.sheet import Cell, Column, Line, Listing, Section, Sheet
from capacity.presentation.sheets.published_speed import reasons
from capacity.validation.published_memory import MemoryAgreement, MemoryPair, MemoryTarget, PublishedMemory


def memory_sheet(result: PublishedMemory, *, every_row: bool = False) -> Sheet:
    """The sheet of tables of published memory figures, on request with every row."""
    count, missed = Cell(len(result.pairs), "row"), Cell(len(result.misses), "row")
    state = "every target is met" if result.passed else "a target is MISSED"
    verdict = (f"{state}: ", missed, " of ", count, " rows are off by more than they allow")
    known = tuple(f"{pair.row_id}: {pair.explanation}" for pair in result.misses if pair.explanation)
    sections = [_targets(result.targets), _agreements(result.agreements)]
    sections += [_rows("Rows that are off by more than they allow", result.misses)] if result.misses else []
    sections += [_rows("Rows", result.pairs)] if every_row else []
    return Sheet(
        title="Published memory",
        head=(Line(verdict, "good" if result.passed else "bad"),),
        sections=tuple(sections),
        listings=(
            *([Listing("Causes known", known)] if known else []),
            Listing("Rows left out", reasons(result.left_out)),
        ),
        assumptions=result.assumed,
        notes=result.notes,
        not_modelled=result.not_modelled,
    )


def _targets(targets: Sequence[MemoryTarget]) -> Section:
    rows = tuple(
        (
            Cell(target.name),
            Cell(target.value, "1"),
            Cell(target.limit, "1"),
            Cell("met" if target.met else "missed", tone="good" if target.met else "bad"),
        )
        for target in targets
    )
    columns = (Column("target", "text"), Column("reached"), Column("limit"), Column("verdict", "text"))
    return Section("Targets", columns, rows)


def _agreements(agreements: Sequence[MemoryAgreement]) -> Section:
    columns = (
        Column("engine", "id"),
        Column("rows"),
        Column("within tolerance"),
        Column("mean absolute error"),
        Column("p90", rank=1),
        Column("worst"),
    )
    rows = tuple(
        (
            Cell(one.group),
            Cell(one.errors.rows, "row"),
            Cell(one.within, "1"),
            *(Cell(value, "1", digits=2) for value in (one.errors.mean_absolute, one.errors.p90, one.errors.worst)),
        )
        for one in agreements
    )
    return Section("Errors by engine", columns, rows, rules=(1,))


def _rows(title: str, pairs: Sequence[MemoryPair]) -> Section:
    columns = (Column("row", "text"), Column("printed"), Column("predicted"), Column("error"))
    rows = tuple(
        (
            Cell(pair.name),
            Cell(pair.measured, pair.unit, note=pair.note),
            Cell(pair.predicted, pair.unit),
            Cell(pair.ratio - 1, "1", digits=2),
        )
        for pair in pairs
    )
    return Section(title, columns, rows, notes=Column("source", "text", 1))
