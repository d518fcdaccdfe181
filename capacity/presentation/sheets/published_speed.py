"""The sheet of published speeds: bounds and attainable times compared with what was measured, by kind of row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from capacity.presentation.figures import counted
from capacity.presentation.sheet import Cell, Column, Line, Listing, Section, Sheet
from capacity.validation.compare import Errors, Pair
from capacity.validation.published_speed import Agreement, PublishedSpeed


def speed_sheet(result: PublishedSpeed, *, every_row: bool = False) -> Sheet:
    """The sheet of tables of published speeds, on request with every row."""
    count, above = Cell(len(result.pairs), "row"), Cell(len(result.above), "row")
    verdict = ("no bound is above its measurement, of ", count, " rows") if result.bounds_hold else (
        "a bound is ABOVE its measurement in ", above, " of ", count, " rows")  # fmt: skip
    head = [Line(verdict, "good" if result.bounds_hold else "bad")]
    if result.single_stream_median is not None:
        share = Cell(result.single_stream_median, "ratio", digits=2)
        head.append(Line(("bound / measured of single streams on one device, engines with graphs: median ", share)))
    sections = [_agreements(result.agreements)]
    sections += [_rows("Bounds above the measurement", result.above)] if result.above else []
    sections += [_rows("Rows", result.pairs)] if every_row else []
    return Sheet(
        title="Published speed",
        head=tuple(head),
        sections=tuple(sections),
        listings=(
            Listing("Rows listed apart", reasons(result.apart)),
            Listing("Rows left out", reasons(result.left_out)),
        ),
        assumptions=result.assumed,
        notes=result.notes,
        not_modelled=result.not_modelled,
    )


def reasons(ids: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Rows that are not compared, by reason, the most frequent first."""
    ordered = sorted(ids.items(), key=lambda item: -len(item[1]))
    return tuple(f"{counted(len(rows), 'row')}: {reason} ({_first(rows)})" for reason, rows in ordered)


def _first(rows: Sequence[str]) -> str:
    return ", ".join(rows[:3]) + (", …" if len(rows) > 3 else "")


def error_words(errors: Errors) -> tuple[str | Cell, ...]:
    """Errors in words: mean absolute, p90 and worst."""
    mean, p90, worst = (Cell(value, "1") for value in (errors.mean_absolute, errors.p90, errors.worst))
    return ("mean absolute error ", mean, ", p90 ", p90, ", worst ", worst)


def _agreements(agreements: Sequence[Agreement]) -> Section:
    columns = (
        Column("rows", "text"),
        Column("count"),
        Column("bound above", rank=1),
        Column("bound / measured, median"),
        Column("p10", rank=3),
        Column("max", rank=1),
        Column("attainable / measured, median", rank=2),
        Column("p10", rank=5),
        Column("max", rank=4),
        Column("attainable above", rank=6),
    )
    return Section("Bounds and attainable times by kind of row", columns, tuple(map(_agreement, agreements)))


def _agreement(agreement: Agreement) -> tuple[Cell, ...]:
    return (
        Cell(agreement.group),
        Cell(agreement.rows, "row"),
        Cell(agreement.above, "row", tone="bad" if agreement.above else ""),
        Cell(agreement.bound_median, "ratio", digits=2),
        Cell(agreement.bound_p10, "ratio", digits=2),
        Cell(agreement.bound_max, "ratio", digits=2),
        Cell(agreement.attainable_median, "ratio", digits=2),
        Cell(agreement.attainable_p10, "ratio", digits=2),
        Cell(agreement.attainable_max, "ratio", digits=2),
        Cell(agreement.attainable_above, "row"),
    )


def _rows(title: str, pairs: Sequence[Pair]) -> Section:
    columns = (
        Column("case", "text"),
        Column("measured"),
        Column("bound", rank=1),
        Column("attainable", rank=1),
        Column("bound / measured"),
        Column("attainable / measured"),
    )
    return Section(title, columns, tuple(map(_row, pairs)))


def _row(pair: Pair) -> tuple[Cell, ...]:
    share = None if pair.bound is None else pair.bound / pair.measured
    reached = pair.predicted == pair.predicted  # not a number where the part has no attainable time
    return (
        Cell(pair.name),
        Cell(pair.measured, "s", note=pair.note),
        Cell(pair.bound, "s"),
        Cell(pair.predicted if reached else None, "s"),
        Cell(share, "ratio", digits=2, tone="bad" if pair.bound_holds is False else ""),
        Cell(pair.ratio if reached else None, "ratio", digits=2),
    )
