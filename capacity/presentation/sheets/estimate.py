"""The sheet of one time, scalar or over a grid of points, and the table of its operators."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from capacity.presentation.sheet import Cell, Column, Line, Section, Sheet
from capacity.results import Estimate

Row = tuple[Cell, ...]
UNREACHABLE = "does not fit in memory: such a time cannot be reached"


def estimate_sheet(estimate: Estimate) -> Sheet:
    """The sheet of a time; of an array its range over the points that have one."""
    points = np.size(estimate.fits) if np.ndim(estimate.bound) else 0
    sections = [_grid(estimate)] if points else [_times(estimate)]
    if estimate.rows:
        sections.append(operator_section(estimate))
    return Sheet(
        title=estimate.quantity,
        head=tuple(_head(estimate, points)),
        sections=tuple(sections),
        assumptions=estimate.assumed,
        notes=estimate.notes,
        not_modelled=estimate.not_modelled,
    )


ROOFLINE = "operators one after another on the datasheet; not a bound"


def _head(estimate: Estimate, points: int) -> Iterator[Line]:
    where = f" at {points:,} points" if points else ""
    yield Line((f"{estimate.quantity} bound{where}: ", *_range(estimate.bound)))
    missing = int(np.sum(np.logical_not(estimate.fits)))
    if missing and np.ndim(estimate.fits):
        yield Line(f"{UNREACHABLE} at {missing:,} of {np.size(estimate.fits):,} points", "bad")
    elif missing:
        yield Line(UNREACHABLE, "bad")


def _range(seconds: Any) -> tuple[str | Cell, ...]:
    if np.ndim(seconds) == 0:
        return (Cell(float(seconds), "s"),)
    low, high = _ends(seconds)
    return (Cell(low, "s"), " to ", Cell(high, "s"))


def _ends(seconds: Any) -> tuple[float | None, float | None]:
    """Minimum and maximum of an array of times, None where no point has one."""
    finite = np.asarray(seconds)[np.isfinite(seconds)]
    return (float(finite.min()), float(finite.max())) if finite.size else (None, None)


def _times(estimate: Estimate) -> Section:
    binding = f"bound by {estimate.bound_by}, largest operator {estimate.largest_operator}"
    rows = [(Cell("bound"), Cell(float(estimate.bound), "s", "computed", binding))]
    if estimate.roofline is not None:
        rows.append((Cell("roofline"), Cell(float(estimate.roofline), "s", "computed", ROOFLINE)))
    if estimate.attainable is not None:
        ceilings = "from measured ceilings; not a bound"
        rows.append((Cell("attainable"), Cell(float(estimate.attainable), "s", note=ceilings)))
    if estimate.value is not None:
        band = ("band ", Cell(float(estimate.low), "s"), " to ", Cell(float(estimate.high), "s"))
        rows.append((Cell("estimate"), Cell(float(estimate.value), "s", estimate.evidence, band)))
    return Section("", (Column(estimate.quantity, "text"), Column("time")), tuple(rows))


def _grid(estimate: Estimate) -> Section:
    """Minimum and maximum of each kind of time over the points that have one."""
    times = {
        "bound": (estimate.bound, "computed"),
        "roofline": (estimate.roofline, "computed"),
        "attainable": (estimate.attainable, ""),
        "estimate": (estimate.value, estimate.evidence),
        "low end of the band": (estimate.low, estimate.evidence),
        "high end of the band": (estimate.high, estimate.evidence),
    }
    rows = []
    for name, (seconds, evidence) in times.items():
        if seconds is not None:
            low, high = _ends(seconds)
            count = int(np.sum(np.isfinite(seconds)))
            rows.append((Cell(name), Cell(low, "s", evidence), Cell(high, "s"), Cell(count, "point")))
    columns = (Column(estimate.quantity, "text"), Column("min"), Column("max"), Column("points", rank=3))
    return Section("", columns, tuple(rows))


def operator_section(estimate: Estimate) -> Section:
    """What each operator of one pass moves and computes on one device, the slowest first."""
    total = sum(row.roofline_s for row in estimate.rows)
    rows = [
        (
            Cell(row.operator),
            Cell(row.moved_bytes, "B"),
            Cell(row.flop, "FLOP"),
            Cell(row.roofline_s, "s"),
            Cell(row.bound_by),
            Cell(row.roofline_s / total, "1") if total else Cell(None),
        )
        for row in sorted(estimate.rows, key=lambda row: -row.roofline_s)
    ]
    columns = (
        Column("operator", "text"),
        Column("bytes moved", rank=2),
        Column("FLOP", rank=3),
        Column("roofline"),
        Column("longer side", "id", 4),
        Column("share", rank=1),
    )
    return Section(f"{estimate.quantity} roofline by operator, per device", columns, tuple(rows))
