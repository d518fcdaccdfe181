"""The sheet of published decode rates: bounds and attainable times compared with what was measured."""

from __future__ import annotations

from capacity.presentation.sheet import Cell, Column, Line, Listing, Section, Sheet
from capacity.validation.compare import Errors, Pair
from capacity.validation.published_speed import PublishedSpeed


def speed_sheet(found: PublishedSpeed) -> Sheet:
    """The sheet of a table of published rates."""
    verdict = "no bound is above its measurement" if found.bounds_hold else "a bound is ABOVE its measurement"
    count = Cell(len(found.pairs), "row")
    return Sheet(
        title="Published speed",
        head=(
            Line((f"{verdict}, of ", count, " rows"), "good" if found.bounds_hold else "bad"),
            Line(("attainable time compared with the published one: ", *error_words(found.attainable))),
        ),
        sections=(_rows(found.pairs),),
        listings=(Listing("Rows left out", found.left_out),),
        assumptions=found.assumed,
        notes=found.notes,
        not_modelled=found.not_modelled,
    )


def error_words(errors: Errors) -> tuple[str | Cell, ...]:
    """Errors in words: mean absolute, p90 and worst."""
    mean, p90, worst = (Cell(value, "1") for value in (errors.mean_absolute, errors.p90, errors.worst))
    return ("mean absolute error ", mean, ", p90 ", p90, ", worst ", worst)


def _rows(pairs: tuple[Pair, ...]) -> Section:
    columns = (
        Column("case", "text"),
        Column("measured"),
        Column("bound", rank=1),
        Column("attainable", rank=1),
        Column("bound / measured"),
        Column("attainable / measured"),
    )
    return Section("Rows", columns, tuple(_row(pair) for pair in pairs))


def _row(pair: Pair) -> tuple[Cell, ...]:
    share = None if pair.bound is None else pair.bound / pair.measured
    return (
        Cell(pair.name),
        Cell(pair.measured, "s", note=pair.note),
        Cell(pair.bound, "s"),
        Cell(pair.predicted, "s"),
        Cell(share, "ratio", digits=2, tone="bad" if pair.bound_holds is False else ""),
        Cell(pair.ratio, "ratio", digits=2),
    )
