"""The sheets of servers and of dated prices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from capacity.presentation.figures import counted
from capacity.presentation.sheet import Cell, Column, Line, Listing, Section, Sheet
from capacity.presentation.sheets.hardware import source_lines
from capacity.specs.prices import Price
from capacity.specs.provenance import unit_of
from capacity.specs.server import ServerSpec


def servers_sheet(servers: Sequence[ServerSpec]) -> Sheet:
    """Servers, one per row."""
    columns = (
        Column("server", "id"),
        Column("devices"),
        Column("device", "id", 3),
        Column("full power", rank=1),
        Column("rack units", rank=2),
    )
    rows = tuple(
        (
            Cell(one.id or one.name),
            Cell(one.devices, "device"),
            Cell(one.device),
            Cell(one.full_w, "W"),
            Cell(one.rack_units, "U", digits=0),
        )
        for one in servers
    )
    return Sheet("Servers", (Line(counted(len(servers), "server")),), (Section("", columns, rows, evidence=None),))


def server_sheet(server: ServerSpec, prices: Sequence[Price]) -> Sheet:
    """Every figure of a server with its evidence, prices of its device, and sources."""
    data = server.model_dump(exclude_none=True)
    rows = tuple(
        (Cell(figure), Cell(_value(data, figure), unit_of(figure), server.evidence(figure)))
        for figure in server.figures()
    )
    name = f"{server.name} ({server.id})" if server.id else server.name
    head = (Line(name), Line(f"{counted(server.devices, 'device')} {server.device}"))
    return Sheet(
        title=server.name,
        head=head,
        sections=(Section("Figures", (Column("figure", "id"), Column("value")), rows), *price_sections(prices)),
        listings=(Listing("Sources", source_lines(server.sources)),),
        notes=server.notes,
    )


def _value(data: Any, dotted: str) -> Any:
    """The value at a dotted name, whose parts may be numbers of a list."""
    for key in dotted.split("."):
        data = data[int(key)] if isinstance(data, list | tuple) else data[key]
    return data


def price_sections(prices: Sequence[Price]) -> tuple[Section, ...]:
    """Dated prices of an hour of one device, newest first; none where no price is known."""
    if not prices:
        return ()
    columns = (
        Column("seller", "text"),
        Column("offer", "text", 2),
        Column("USD per hour"),
        Column("date", "id"),
        Column("source", "text", 3),
    )
    rows = tuple(
        (Cell(one.seller or "range of sellers"), Cell(one.offer), Cell(_range(one)), Cell(one.date), Cell(one.source))
        for one in prices
    )
    caption = "Per device and hour; prices change, so each has its date."
    return (Section("Prices", columns, rows, caption=caption, evidence=None),)


def _range(price: Price) -> str:
    low, high = f"{price.usd_per_hour_low:.2f}", f"{price.usd_per_hour_high:.2f}"
    return low if low == high else f"{low} to {high}"
