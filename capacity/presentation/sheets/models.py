"""The sheets of models: lists of them, and one with its layers, parameters, checkpoint and sources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from capacity.demand import feed_forwards, mixers
from capacity.presentation.figures import counted
from capacity.presentation.sheet import Cell, Column, Line, Listing, Section, Sheet, unique
from capacity.presentation.sheets.hardware import source_lines
from capacity.specs.model import ModelSpec
from capacity.specs.world import WorldModelSpec

Row = tuple[Cell, ...]


def models_sheet(models: Sequence[Mapping[str, Any]], worlds: Sequence[Mapping[str, Any]]) -> Sheet:
    """Models and world models, one per row, from the ids and summaries that the command makes."""
    sections = []
    if models:
        sections.append(_models(models))
    if worlds:
        sections.append(_worlds(worlds))
    counts = [counted(len(rows), word) for rows, word in ((models, "model"), (worlds, "world model")) if rows]
    return Sheet("Models", (Line(", ".join(counts)),), tuple(sections))


def _models(rows: Sequence[Mapping[str, Any]]) -> Section:
    columns = (
        Column("model", "id"),
        Column("parameters"),
        Column("active", rank=3),
        Column("cache per token", rank=1),
        Column("layers", rank=4),
        Column("positions", rank=5),
        Column("stored in", "text", 2),
    )
    cells = tuple(
        (
            Cell(row["id"]),
            Cell(row["parameters"], "parameter"),
            Cell(row["active_parameters"], "parameter"),
            Cell(row["token_bytes"], "byte"),
            Cell(row["layers"], "layer"),
            Cell(row["positions"], "token"),
            Cell(row["stored"]),
        )
        for row in rows
    )
    return Section("Models", columns, cells, caption="Cache per token in bytes, in 16 bit and within all windows.")


def _worlds(rows: Sequence[Mapping[str, Any]]) -> Section:
    columns = (Column("world model", "id"), Column("parameters"), Column("head", "id"), Column("stored in", "text", 1))
    cells = tuple(
        (Cell(row["id"]), Cell(row["parameters"], "parameter"), Cell(row["head"]), Cell(row["stored"])) for row in rows
    )
    return Section("World models", columns, cells, caption="For capacity control MODEL PART.")


def model_sheet(model: ModelSpec, summary: Mapping[str, Any]) -> Sheet:
    """One model, with the counts that the command makes."""
    checkpoint = model.checkpoint.sources if model.checkpoint else ()
    modules = tuple((Cell(name), Cell(count, "parameter")) for name, count in summary["by_module"].items())
    return Sheet(
        title=model.name,
        head=(Line(model.name), *_stored(model)),
        sections=(
            Section("Model", (Column("fact", "text"), Column("value")), tuple(_facts(model, summary))),
            _layers(model),
            Section("Parameters by module", (Column("module", "text"), Column("parameters")), modules),
        ),
        listings=(Listing("Sources", source_lines((*model.sources, *checkpoint))),),
        assumptions=model.assumed,
        notes=model.notes,
    )


def world_model_sheet(world: WorldModelSpec, summary: Mapping[str, Any]) -> Sheet:
    """One world model: what enters and leaves a decision, its network, residents and sources."""
    network = model_sheet(world.model, summary)
    residents = tuple((Cell(item.name), Cell(item.held_bytes, "B")) for item in world.residents)
    resident_section = Section("Held with the network", (Column("part", "text"), Column("size")), residents)
    checkpoint = world.model.checkpoint.sources if world.model.checkpoint else ()
    sources = tuple(dict.fromkeys((*world.sources, *world.model.sources, *checkpoint)))
    summary_lines = str(world).splitlines()[:2]
    return Sheet(
        title=world.name,
        head=(*(Line(line.strip()) for line in summary_lines), *_stored(world.model)),
        sections=(*network.sections, resident_section) if residents else network.sections,
        listings=(Listing("Sources", source_lines(sources)),),
        assumptions=unique((*world.assumed, *world.model.assumed)),
        notes=unique((*world.notes, *world.model.notes)),
    )


def _stored(model: ModelSpec) -> Iterator[Line]:
    if model.checkpoint is not None:
        parts = "".join(f"; {part} {stored}" for part, stored in model.checkpoint.parts.items())
        yield Line(f"stored in {model.checkpoint.default}{parts} ({model.checkpoint.evidence})")


def _facts(model: ModelSpec, summary: Mapping[str, Any]) -> Iterator[Row]:
    yield Cell("parameters"), Cell(summary["parameters"], "parameter")
    yield Cell("active parameters"), Cell(summary["active_parameters"], "parameter", note="embedding and head included")
    yield Cell("vocabulary"), Cell(model.vocabulary, "token")
    yield Cell("positions"), Cell(model.positions, "token", note="" if model.positions else "no limit known")
    yield Cell("cache per token"), Cell(summary["token_bytes"], "byte", note="bytes in 16 bit, within all windows")
    if summary["token_bytes_beyond_windows"] != summary["token_bytes"]:
        beyond = "bytes in 16 bit, beyond all windows"
        yield Cell("cache per token"), Cell(summary["token_bytes_beyond_windows"], "byte", note=beyond)
    if summary["state_bytes"]:
        yield Cell("state per sequence"), Cell(summary["state_bytes"], "B")


def _layers(model: ModelSpec) -> Section:
    columns = (Column("stage", "id"), Column("layers"), Column("mixer", "text"), Column("feed-forward", "text"))
    rows = tuple(
        (
            Cell(stage.name),
            Cell(len(group.indices), "layer"),
            Cell(mixers.of(group.mixer).summary(group.mixer)),
            Cell(feed_forwards.of(group.feed_forward).summary(group.feed_forward)),
        )
        for stage in model.stages
        for group in stage.layers
    )
    return Section("Layers", columns, rows)
