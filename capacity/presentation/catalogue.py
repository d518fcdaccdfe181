"""Parts and models as tables of the terminal, each figure with its evidence and sources."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Console
from rich.text import Text

from capacity.errors import CapacityError
from capacity.presentation.tables import NARROW, bullets, table
from capacity.specs.base import Source
from capacity.specs.hardware import HardwareSpec
from capacity.specs.model import Attention, Dense, Experts, LatentAttention, LayerGroup, ModelSpec, StateMixer
from capacity.supply.ceilings import ridge_point
from capacity.units import format_bytes

_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def show_parts(parts: list[HardwareSpec], computes: str, console: Console | None = None) -> None:
    """Print parts, one a row."""
    screen = console or Console(highlight=False)
    columns: list[tuple[str, Any]] = [("part", "left"), ("memory", "right"), ("bandwidth", "right")]
    columns += [(f"{computes} peak", "right"), ("ridge", "right")]
    wide = screen.width >= NARROW
    shown = table(*columns, *([("TDP", "right"), ("links", "left")] if wide else []))
    for part in parts:
        peak = part.peak(computes)
        cells = [part.id, _memory(part), in_units(part.memory.bytes_per_s, "B/s")]
        cells += ["-", "-"] if peak is None else [in_units(peak, "FLOP/s"), f"{peak / part.memory.bytes_per_s:,.0f}"]
        if wide:
            cells += [f"{part.power.tdp_w:,.0f} W" if part.power.tdp_w else "-", part.links.kind if part.links else "-"]
        shown.add_row(*cells)
    screen.print(shown)
    screen.print(f"{len(parts)} parts; memory as the driver reports it, dense peaks, ridge in FLOP/B")
    if any(_memory(part).endswith("?") for part in parts):
        screen.print("?  memory that no good source states: unverified")


def show_part(part: HardwareSpec, console: Console | None = None) -> None:
    """Print every figure of a part with its evidence, then ridge points, notes and sources."""
    screen = console or Console(highlight=False)
    screen.print(Text(f"{part.name}  ({part.id})", style="bold") if part.id else Text(part.name, style="bold"))
    shown = table(("figure", "left"), ("value", "right"), ("evidence", "left"))
    data = part.model_dump()
    for figure in part.figures():
        evidence = part.evidence(figure)
        shown.add_row(figure, _value(figure, _lookup(data, figure)), Text(evidence, "yellow" * (evidence == "assumed")))
    screen.print(shown)
    screen.print(_ridges(part))
    bullets(screen, "Notes", part.notes)
    _sources(screen, part.sources)


def _ridges(part: HardwareSpec) -> Any:
    shown = table(("ridge point", "left"), ("datasheet", "right"), ("measured", "right"))
    for name in part.peak_flop_per_s:
        try:
            datasheet = f"{ridge_point(part, name):,.1f} FLOP/B"
        except CapacityError:
            continue
        try:
            measured = f"{ridge_point(part, name, attainable=True):,.1f} FLOP/B"
        except CapacityError:
            measured = "-"
        shown.add_row(name, datasheet, measured)
    return shown


def show_models(rows: list[dict[str, Any]], console: Console | None = None) -> None:
    """Print models, one a row, from the ids and summaries that the command makes."""
    screen = console or Console(highlight=False)
    wide = screen.width >= NARROW
    columns: list[tuple[str, Any]] = [("model", "left"), ("parameters", "right"), ("token cache", "right")]
    columns += [("layers", "right"), ("stored", "left")]
    shown = table(*columns, *([("active", "right"), ("positions", "right")] if wide else []))
    for column in shown.columns:
        column.no_wrap = column.header != "stored"  # what folds is the mixture of formats
    for row in rows:
        cells = [row["id"], f"{row['parameters']:,}", f"{row['token_bytes']:,} B", str(row["layers"])]
        cells.append(row["stored"] or "-")
        if wide:
            cells += [f"{row['active_parameters']:,}", f"{row['positions']:,}" if row["positions"] else "-"]
        shown.add_row(*cells)
    screen.print(shown)
    screen.print(f"{len(rows)} models; cache of a token in 16 bit, within all windows")


def show_world_models(rows: list[dict[str, Any]], console: Console | None = None) -> None:
    """Print world models, one a row, with how the head makes actions or frames."""
    screen = console or Console(highlight=False)
    shown = table(("world model", "left"), ("parameters", "right"), ("head", "left"), ("stored", "left"))
    for row in rows:
        shown.add_row(row["id"], f"{row['parameters']:,}", row["head"], row["stored"] or "-")
    screen.print(shown)
    screen.print(f"{len(rows)} world models, for capacity control MODEL PART")


def show_model(model: ModelSpec, summary: Mapping[str, Any], console: Console | None = None) -> None:
    """Print stages, layers, parameters by module, checkpoint, notes and sources of a model."""
    screen = console or Console(highlight=False)
    screen.print(Text(model.name, style="bold"))
    facts = table(("fact", "left"), ("value", "right"))
    facts.add_row("parameters", f"{summary['parameters']:,}")
    facts.add_row("active parameters", f"{summary['active_parameters']:,}")
    facts.add_row("vocabulary", f"{model.vocabulary:,}")
    facts.add_row("positions", f"{model.positions:,}" if model.positions else "no limit known")
    facts.add_row("cache of a token, 16 bit", f"{summary['token_bytes']:,} B")
    if summary["token_bytes_beyond_windows"] != summary["token_bytes"]:
        facts.add_row("the same beyond all windows", f"{summary['token_bytes_beyond_windows']:,} B")
    if summary["state_bytes"]:
        facts.add_row("state of a sequence", format_bytes(summary["state_bytes"]))
    if model.checkpoint:
        parts = "".join(f"; {part} {stored}" for part, stored in model.checkpoint.parts.items())
        facts.add_row(f"stored ({model.checkpoint.evidence})", model.checkpoint.default + parts)
    screen.print(facts)
    screen.print(_layers(model))
    modules = table(("module", "left"), ("parameters", "right"))
    for name, size in summary["by_module"].items():
        modules.add_row(name, f"{size:,}")
    screen.print(modules)
    bullets(screen, "Notes", model.notes)
    bullets(screen, "Assumed", model.assumed)
    _sources(screen, (*model.sources, *(model.checkpoint.sources if model.checkpoint else ())))


def _layers(model: ModelSpec) -> Any:
    shown = table(("stage", "left"), ("layers", "right"), ("mixer", "left"), ("feed-forward", "left"))
    for stage in model.stages:
        for group in stage.layers:
            shown.add_row(stage.name, str(len(group.indices)), _mixer(group), _feed_forward(group))
    return shown


def _mixer(group: LayerGroup) -> str:
    mixer = group.mixer
    if isinstance(mixer, Attention):
        window = f", window {mixer.window:,}" if mixer.window else ""
        heads = f"{mixer.query_heads} heads, {mixer.kv_heads} KV heads of {mixer.head_size}"
        return f"{mixer.span} attention, {heads}{window}"
    if isinstance(mixer, LatentAttention):
        return f"latent attention, {mixer.query_heads} heads, latent {mixer.latent_size}"
    return f"state, {mixer.name}" if isinstance(mixer, StateMixer) else "none"


def _feed_forward(group: LayerGroup) -> str:
    inner = group.feed_forward
    if isinstance(inner, Experts):
        shared = f", shared width {inner.shared_intermediate_size:,}" if inner.shared_intermediate_size else ""
        return f"{inner.experts} experts of {inner.intermediate_size:,}, {inner.experts_per_token} a token{shared}"
    if isinstance(inner, Dense):
        return f"{'gated, ' if inner.gated else ''}width {inner.intermediate_size:,}"
    return "none"


def in_units(value: float, unit: str) -> str:
    """A rate with a decimal prefix.

    >>> in_units(3.35e12, "B/s")
    '3.35 TB/s'
    """
    for factor, prefix in _PREFIXES:
        if abs(value) >= factor:
            return f"{value / factor:,.4g} {prefix}{unit}"
    return f"{value:,.4g} {unit}"


def _memory(part: HardwareSpec) -> str:
    """Capacity, with a question mark where no good source states it."""
    if part.memory.capacity_bytes is None:
        return "not given"
    doubt = " ?" if part.evidence("memory.capacity_bytes") == "assumed" else "  "
    return format_bytes(part.memory.capacity_bytes, 1) + doubt


def _value(figure: str, value: float) -> str:
    endings = (("bytes_per_s", "B/s"), ("flop_per_s", "FLOP/s"), ("_hz", "Hz"), ("_w", "W"), ("_s", "s"))
    if figure.endswith("_bytes"):
        return format_bytes(value)
    if "bytes_per_s" in figure:
        return in_units(value, "B/s")
    if "flop_per_s" in figure:
        return in_units(value, "FLOP/s")
    unit = next((unit for ending, unit in endings if figure.endswith(ending)), "")
    return in_units(value, unit).rstrip() if unit in ("Hz", "W") else f"{value:,g} {unit}".rstrip()


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


def _sources(screen: Console, sources: Iterable[Source]) -> None:
    lines = []
    for source in sources:
        confidence = f" [confidence {source.confidence}]" if source.confidence else ""
        lines.append(f"{', '.join(source.fields)}: {source.cite}{confidence}")
    bullets(screen, "Sources", lines)
