"""Results as tables of the terminal: the verdict first, then memory, limits, times and what to know about them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from capacity.results import Estimate, Ledger, Result, Sizing
from capacity.studies.parts import PartRow, PartTable
from capacity.units import format_bytes, format_seconds

NARROW = 100  # columns; below it optional columns are left out


def show_sizing(sizing: Sizing, console: Console | None = None) -> None:
    """Print one sizing."""
    screen = console or Console(highlight=False)
    screen.print(_headline(sizing))
    for ledger in sizing.ledger:
        _spaced(screen, _ledger_table(ledger, sizing))
    _spaced(screen, _limits_and_times(sizing))
    _spaced(screen, _operators(sizing.tpot, wide=screen.width >= NARROW))
    _remarks(screen, sizing)


def _spaced(screen: Console, shown: Table) -> None:
    """Print a table after an empty line, its title free of the width of the table."""
    screen.print(Text(f"\n{shown.title}", style="bold"))
    shown.title = None
    screen.print(shown)


def show_part_table(found: PartTable, console: Console | None = None) -> None:
    """Print one model on many parts."""
    screen = console or Console(highlight=False)
    fitting = [row for row in found.rows if row.fits]
    several = [row for row in found.rows if not row.fits and row.devices is not None]
    never = [row for row in found.rows if row.devices is None]
    screen.print(Text(f"{found.model}: fits {len(fitting)} of {len(found.rows)} parts as asked", style="bold"))
    wide = screen.width >= NARROW
    if fitting or several:
        screen.print(_parts_table([*fitting, *several], wide))
    if never:
        screen.print(Text(f"{len(never)} parts without an answer", style="bold"))
        screen.print(table(("part", "left"), ("why", "left"), rows=[(row.part, row.reason) for row in never]))
    assumed = Counter(line for row in found.rows for line in row.assumed)
    bullets(screen, "Assumed, for nobody said otherwise", (f"{line}, of {n} parts" for line, n in assumed.items()))
    bullets(screen, "Notes", found.notes)


def show_result(result: Result, console: Console | None = None) -> None:
    """Print any result as its rows of label and text."""
    screen = console or Console(highlight=False)
    grid = Table.grid(padding=(0, 2))
    grid.add_column(overflow="fold", max_width=screen.width // 3)
    grid.add_column(overflow="fold")
    for label, text in result.table():
        grid.add_row(Text(label), Text(text))
    screen.print(grid)


def _headline(sizing: Sizing) -> Text:
    colour = "bold green" if sizing.fits else "bold red"
    count = f"{sizing.parameters:,} parameters"
    if sizing.active_parameters != sizing.parameters:
        count += f", {sizing.active_parameters:,} active"
    text = Text()
    text.append(sizing.verdict, style=colour)
    text.append(f"\n{sizing.model} ({count}) on {sizing.devices} x {sizing.part}")
    text.append(f"\nbinding: {sizing.binding}")
    for objective in sizing.objectives:
        state = "missed even at the bound" if objective.missed else "not excluded by the bound"
        text.append(f"\nobjective {objective.name} <= {format_seconds(objective.limit_s)}: ")
        text.append(f"{state} ({format_seconds(objective.bound_s)})", style="bold red" if objective.missed else "green")
    return text


def _ledger_table(ledger: Ledger, sizing: Sizing) -> Table:
    which = f"each of {ledger.devices} devices" if ledger.devices > 1 else "the device"
    rank = f" of pipeline stage {ledger.rank + 1}" if len(sizing.ledger) > 1 else ""
    title = f"Memory of {which}{rank}, batch {sizing.batch:,} at {sizing.memory_tokens:,} tokens"
    shown = table(("held by", "left"), ("size", "right"), ("share", "right"), ("evidence", "left"), title=title)
    for line in ledger.lines:
        shown.add_row(line.name, format_bytes(line.held_bytes), _share(line.held_bytes, ledger), line.evidence)
    shown.add_section()
    shown.add_row("total", format_bytes(ledger.total_bytes), _share(ledger.total_bytes, ledger), "")
    shown.add_row("usable", format_bytes(ledger.usable_bytes), "", f"of {format_bytes(ledger.capacity_bytes)}")
    margin = Text(format_bytes(ledger.margin_bytes), style="green" if ledger.margin_bytes >= 0 else "bold red")
    shown.add_row("margin", margin, _share(ledger.margin_bytes, ledger), "")
    return shown


def _share(count: int, ledger: Ledger) -> str:
    return f"{count / ledger.usable_bytes:.1%}" if ledger.usable_bytes > 0 else ""


def _limits_and_times(sizing: Sizing) -> Table:
    title = "Limits and times" if sizing.fits else "Limits, and times that memory does not allow"
    shown = table(("figure", "left"), ("value", "right"), ("evidence", "left"), ("what it means", "left"), title=title)
    known = sizing.evidence
    bounded = (
        "nothing ends it" if sizing.max_context_bound_by == "nothing" else f"ended by {sizing.max_context_bound_by}"
    )
    shown.add_row(
        "max batch", f"{sizing.max_batch:,}", known["max_batch"], f"sequences of {sizing.memory_tokens:,} tokens"
    )
    context = f"{sizing.max_context_tokens:,}"
    shown.add_row("max context", context, known["max_context"], f"tokens at batch {sizing.batch:,}; {bounded}")
    shown.add_section()
    for estimate, condition in _times(sizing):
        _add_estimate(shown, estimate, condition, known)
    _add_derived(shown, sizing)
    return shown


def _times(sizing: Sizing) -> list[tuple[Estimate, str]]:
    return [
        (sizing.ttft, f"one prompt of {sizing.prompt_tokens:,}"),
        (sizing.tpot, f"batch {sizing.batch:,} at {sizing.tpot_context_tokens:,}"),
    ]


def _add_estimate(shown: Table, estimate: Estimate, condition: str, known: Mapping[str, str]) -> None:
    name = estimate.quantity
    kind = {side: known.get(f"{name.lower()}.{side}", "") for side in ("bound", "attainable", "value")}
    shown.add_row(
        f"{name} bound", format_seconds(estimate.bound), kind["bound"], f"{condition}; bound by {estimate.bound_by}"
    )
    if estimate.attainable is not None:
        shown.add_row(
            f"{name} attainable",
            format_seconds(estimate.attainable),
            kind["attainable"],
            "on measured ceilings; no bound",
        )
    if estimate.value is not None:
        band = f"{format_seconds(estimate.low)} to {format_seconds(estimate.high)}"
        shown.add_row(f"{name} estimate", format_seconds(estimate.value), kind["value"], band)


def _add_derived(shown: Table, sizing: Sizing) -> None:
    output = sizing.workload["output_tokens"]
    bound = sizing.evidence["tpot.bound"]
    shown.add_row("request bound", format_seconds(sizing.request_bound_s), bound, f"{output:,} tokens out")
    shown.add_row("throughput bound", f"{sizing.tokens_per_s_bound:,.0f} token/s", bound, "a replica, in decode")
    side = "memory" if sizing.intensity_flop_per_byte < sizing.ridge_flop_per_byte else "compute"
    intensity, ridge = f"{sizing.intensity_flop_per_byte:,.1f} FLOP/B", f"{sizing.ridge_flop_per_byte:,.1f} FLOP/B"
    shown.add_row("intensity", intensity, "computed", f"of a decode step: the {side} side of the ridge")
    shown.add_row("ridge point", ridge, sizing.evidence["ridge point"], sizing.deployment["activations"])


def _operators(estimate: Estimate, *, wide: bool) -> Table:
    columns = [("operator", "left"), ("moved", "right"), ("FLOP", "right"), ("bound", "right"), ("bound by", "left")]
    if wide:
        columns.append(("share", "right"))
    shown = table(*columns, title=f"{estimate.quantity} bound by operator, a device")
    for row in sorted(estimate.rows, key=lambda row: -row.bound_s):
        cells = [
            row.operator, format_bytes(row.moved_bytes), f"{row.flop:.3g}", format_seconds(row.bound_s), row.bound_by,
        ]  # fmt: skip
        shown.add_row(*cells, *([f"{row.bound_s / estimate.bound:.1%}"] if wide and estimate.bound else []))
    return shown


def _remarks(screen: Console, sizing: Sizing) -> None:
    bullets(screen, "Assumed, for nobody said otherwise", sizing.assumed)
    bullets(screen, "Notes", dict.fromkeys((*sizing.notes, *sizing.ttft.notes, *sizing.tpot.notes)))
    bullets(screen, "Not modelled", sizing.not_modelled)


def bullets(screen: Console, title: str, lines: Iterable[str]) -> None:
    """Print lines under a title; nothing when there are none."""
    kept = list(lines)
    if kept:
        screen.print(Text(f"\n{title}", style="bold"))
    for line in kept:
        grid = Table.grid(padding=(0, 1))
        grid.add_row(Text("-"), Text(line))
        screen.print(grid)


def _parts_table(rows: list[PartRow], wide: bool) -> Table:
    columns = [("part", "left"), ("devices", "right"), ("TPOT bound", "right"), ("max batch", "right")]
    objectives = any(row.missed for row in rows)
    if objectives:
        columns.append(("misses", "left"))
    if wide:
        columns += [("TTFT bound", "right"), ("max context", "right"), ("to spare", "right"), ("bound by", "left")]
    shown = table(*columns)
    for row in rows:
        cells: list[str | Text] = [
            Text(row.part, style="green" if row.fits else ""), f"{row.devices}", _seconds(row.tpot_bound_s),
            f"{row.max_batch:,}",
        ]  # fmt: skip
        if objectives:
            cells.append(Text(", ".join(row.missed), style="bold red"))
        if wide:
            cells += [_seconds(row.ttft_bound_s), f"{row.max_context_tokens:,}"]
            cells += [format_bytes(row.margin_bytes or 0), row.bound_by]
        shown.add_row(*cells)
    return shown


def _seconds(value: float | None) -> str:
    return "" if value is None else format_seconds(value)


def table(*columns: tuple[str, Any], title: str | None = None, rows: Iterable[tuple[str, ...]] = ()) -> Table:
    """A table of the house style: ``columns`` are pairs of heading and justification."""
    shown = Table(box=box.SIMPLE, title=title, pad_edge=False, show_edge=False)
    for name, justify in columns:
        shown.add_column(name, justify=justify, overflow="fold")
    for row in rows:
        shown.add_row(*row)
    return shown
