"""The sheet of published measurements of world models: bounds, held-out estimates, conflicts and memory."""

from __future__ import annotations

from collections.abc import Sequence

from capacity.presentation.sheet import Cell, Column, Line, Section, Sheet
from capacity.validation.compare import Pair
from capacity.validation.published_world import (
    TARGET_MEDIAN,
    TARGET_WITHIN,
    WITHIN,
    Conflict,
    Exceeded,
    MemoryRow,
    ModeSummary,
    WorldValidation,
)

Row = tuple[Cell, ...]
UNEXPLAINED = "NOT EXPLAINED"


def world_sheet(result: WorldValidation) -> Sheet:
    """The sheet of a table of published measurements; sections without a row are left out."""
    sections = (
        _not_judged(result.unjudged),
        _exceeded(result.exceeded),
        _modes(result.modes),
        _conflicts(result.conflicts),
        _memory(result.memory),
        _memory_outside(result.memory),
        _pairs(result.pairs),
    )
    return Sheet(
        title="Published measurements of world models",
        head=tuple(_head(result)),
        sections=tuple(section for section in sections if section.rows),
        assumptions=result.assumed,
        notes=result.notes,
        not_modelled=result.not_modelled,
    )


def _head(result: WorldValidation) -> list[Line]:
    rows, judged = Cell(result.rows, "row"), Cell(len(result.pairs), "row")
    above, bounds = Cell(len(result.exceeded), "row"), Cell(result.bound_rows, "row")
    return [
        Line("passed" if result.passed else "FAILED", "good" if result.passed else "bad"),
        Line((rows, " rows, of which ", judged, " times are judged")),
        Line(("bounds: ", above, " of ", bounds, " rows with a stated format lie above the measurement")),
        _target(result),
    ]


def _target(result: WorldValidation) -> Line:
    if result.target_median is None or result.target_within is None:
        return Line("target: no graph or TensorRT row that another source could predict", "doubtful")
    words = (
        f"target {'met' if result.target_met else 'MISSED'}: graph and TensorRT, source left out, ",
        Cell(result.target_rows, "row"),
        " rows: median error ",
        Cell(result.target_median, "1"),
        " (at most ",
        Cell(TARGET_MEDIAN, "1", digits=0),
        "), ",
        Cell(result.target_within, "1", digits=0),
        " within ",
        Cell(WITHIN, "1", digits=0),
        " (at least ",
        Cell(TARGET_WITHIN, "1", digits=0),
        ")",
    )
    return Line(words, "good" if result.target_met else "bad")


def _not_judged(reasons: dict[str, tuple[str, ...]]) -> Section:
    rows = tuple((Cell(reason), Cell(len(ids), "row")) for reason, ids in reasons.items())
    return Section("Rows not judged", (Column("reason", "text"), Column("rows")), rows)


def _exceeded(items: Sequence[Exceeded]) -> Section:
    rows = tuple(
        (Cell(item.case_id), Cell(item.bound_s, "s"), Cell(item.measured_s, "s"), _cause(item.cause)) for item in items
    )
    columns = (Column("row", "id"), Column("bound"), Column("measured"), Column("cause", "text"))
    return Section("Bounds above the measurement", columns, rows)


def _cause(cause: str) -> Cell:
    return Cell(cause) if cause else Cell(UNEXPLAINED, tone="bad")


def _modes(modes: Sequence[ModeSummary]) -> Section:
    columns = (
        Column("launch mode", "id"),
        Column("rows"),
        Column("median bound / measured"),
        Column("rows held out", rank=3),
        Column("median error"),
        Column("mean", rank=2),
        Column("p90", rank=1),
        Column("worst", rank=1),
    )
    caption = "Errors of estimates with the source of the row left out; none where one source has all rows."
    return Section("Launch modes", columns, tuple(_mode(mode) for mode in modes), caption=caption)


def _mode(mode: ModeSummary) -> Row:
    errors = mode.errors
    figures = (None,) * 4 if errors is None else (errors.median, errors.mean_absolute, errors.p90, errors.worst)
    return (
        Cell(mode.mode),
        Cell(mode.rows, "row"),
        Cell(mode.median_bound_share, "ratio", digits=2),
        Cell(None if errors is None else errors.rows, "row"),
        *(Cell(value, "1") for value in figures),
    )


def _conflicts(items: Sequence[Conflict]) -> Section:
    rows = tuple(
        (Cell(item.configuration), Cell(item.low_s, "s"), Cell(item.high_s, "s"), Cell(item.estimate_s, "s"))
        for item in items
    )
    columns = (Column("configuration", "text"), Column("min"), Column("max"), Column("estimate"))
    return Section("Configurations with several published values", columns, rows)


def _memory(items: Sequence[MemoryRow]) -> Section:
    columns = (
        Column("row", "id"),
        Column("computed"),
        Column("published"),
        Column("difference", rank=1),
        Column("verdict", "id"),
    )
    rows = tuple(
        (
            Cell(item.pair.name),
            Cell(item.pair.predicted, "B"),
            Cell(item.pair.measured, "B"),
            Cell(item.fixed_bytes, "B"),
            Cell("within") if item.within else Cell("outside", tone="doubtful"),
        )
        for item in items
    )
    return Section("Memory", columns, rows)


def _memory_outside(items: Sequence[MemoryRow]) -> Section:
    rows = tuple((Cell(item.pair.name), _cause(item.cause)) for item in items if not item.within)
    return Section("Memory outside the tolerance", (Column("row", "id"), Column("cause", "text")), rows)


def _pairs(pairs: Sequence[Pair]) -> Section:
    columns = (
        Column("row", "id"),
        Column("launch mode", "id", 1),
        Column("bound"),
        Column("estimate"),
        Column("measured"),
        Column("estimate / measured"),
        Column("band", "id", 2),
    )
    return Section("Times", columns, tuple(_pair(pair) for pair in pairs))


def _pair(pair: Pair) -> Row:
    bands = {None: Cell(""), True: Cell("inside"), False: Cell("outside", tone="doubtful")}
    return (
        Cell(pair.name),
        Cell(pair.note),
        Cell(pair.bound, "s", tone="bad" if pair.bound_holds is False else ""),
        Cell(pair.predicted, "s"),
        Cell(pair.measured, "s"),
        Cell(pair.ratio, "ratio", digits=2),
        bands[pair.in_band],
    )
