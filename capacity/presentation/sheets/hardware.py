"""The sheets of parts: a list of them, and one with every figure, its evidence, ridge points and sources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from capacity.errors import CapacityError
from capacity.presentation.figures import counted
from capacity.presentation.sheet import Cell, Column, Line, Listing, Section, Sheet
from capacity.specs.base import Source
from capacity.specs.hardware import HardwareSpec
from capacity.specs.provenance import unit_of
from capacity.supply.ceilings import ridge_point

Row = tuple[Cell, ...]


def parts_sheet(parts: Sequence[HardwareSpec], computes: str) -> Sheet:
    """Parts, one per row, with their peak in the format ``computes``."""
    columns = (
        Column("part", "id"),
        Column("memory"),
        Column("bandwidth"),
        Column(f"{computes} peak", rank=1),
        Column("ridge", rank=2),
        Column("TDP", rank=3),
        Column("links", "id", 4),
    )
    rows = tuple(_part(part, computes) for part in parts)
    doubt = "; ? marks what is unverified" if any(cell.evidence == "assumed" for row in rows for cell in row) else ""
    caption = f"Memory as the driver reports it, dense peaks, ridge point in FLOP/B{doubt}."
    section = Section("", columns, rows, caption=caption, evidence=None)
    return Sheet("Parts", (Line(counted(len(parts), "part")),), (section,))


def _part(part: HardwareSpec, computes: str) -> Row:
    peak = part.peak(computes)
    ridge = None if peak is None else peak / part.memory.bytes_per_s
    has_capacity = part.memory.capacity_bytes is not None
    return (
        Cell(part.id or part.name),
        Cell(part.memory.capacity_bytes, "B", part.evidence("memory.capacity_bytes") if has_capacity else "", digits=1),
        Cell(part.memory.bytes_per_s, "B/s"),
        Cell(peak, "FLOP/s"),
        Cell(ridge, digits=0),
        Cell(part.power.tdp_w, "W"),
        Cell(part.links.kind if part.links else None),
    )


def part_sheet(part: HardwareSpec) -> Sheet:
    """Every figure of a part."""
    name = f"{part.name} ({part.id})" if part.id else part.name
    return Sheet(
        title=part.name,
        head=(Line(name),),
        sections=(_figures(part), _ridges(part)),
        listings=(Listing("Sources", source_lines(part.sources)),),
        notes=part.notes,
    )


def _figures(part: HardwareSpec) -> Section:
    data = part.model_dump()
    rows = tuple(
        (Cell(figure), Cell(_lookup(data, figure), unit_of(figure), part.evidence(figure))) for figure in part.figures()
    )
    return Section("Figures", (Column("figure", "id"), Column("value")), rows)


def _lookup(data: Any, dotted: str) -> Any:
    """The value at a dotted name whose parts may hold dots themselves."""
    if not dotted:
        return data
    for key in data:
        if dotted == str(key):
            return data[key]
        if dotted.startswith(f"{key}.") and isinstance(data[key], Mapping):
            return _lookup(data[key], dotted[len(str(key)) + 1 :])
    raise KeyError(dotted)


def _ridges(part: HardwareSpec) -> Section:
    columns = (Column("number format", "id"), Column("datasheet"), Column("measured"))
    return Section("Ridge points", columns, tuple(_ridge_rows(part)))


def _ridge_rows(part: HardwareSpec) -> Iterator[Row]:
    for name in part.peak_flop_per_s:
        datasheet = _ridge(part, name, attainable=False)
        if datasheet is not None:
            measured = Cell(_ridge(part, name, attainable=True), "FLOP/B", digits=1)
            yield Cell(name), Cell(datasheet, "FLOP/B", digits=1), measured


def _ridge(part: HardwareSpec, name: str, *, attainable: bool) -> float | None:
    try:
        return ridge_point(part, name, attainable=attainable)
    except CapacityError:
        return None


def source_lines(sources: Sequence[Source]) -> tuple[str, ...]:
    """Sources, one per line, with the fields that they cover."""
    return tuple(
        f"{', '.join(source.fields)}: {source.cite}"
        + (f" [confidence {source.confidence}]" if source.confidence else "")
        for source in sources
    )
