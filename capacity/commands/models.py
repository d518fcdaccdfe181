"""`capacity models list|show|check`: the models that can be named, what one consists of, whether a config is read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

import typer

from capacity.catalog.models import load_model, model_ids
from capacity.catalog.worlds import load_world_model, world_model_ids
from capacity.commands.app import CommandApp
from capacity.commands.names import load_subject
from capacity.commands.options import Json
from capacity.commands.output import as_json
from capacity.demand.memory import cache_rows, sequence_state_bytes
from capacity.demand.parameters import parameter_count
from capacity.errors import CapacityError, unknown_name
from capacity.presentation.figures import printable
from capacity.specs.checkpoint import Checkpoint
from capacity.specs.deployment import Deployment
from capacity.specs.model import ModelSpec
from capacity.specs.world import WorldModelSpec

app = CommandApp(
    no_args_is_help=True, add_completion=False, help="Models: list them, show one with its shapes, check a config.json."
)
Words = Annotated[list[str] | None, typer.Argument(help="Only names with all of these words.", show_default=False)]


@app.command("list")
def list_models(words: Words = None, json: Json = False) -> None:
    """List the models shipped by name, with parameters and 16-bit cache per token, then the world models."""
    models, world_models = _matching(model_ids(), words), _matching(world_model_ids(), words)
    if not models and not world_models:
        raise CapacityError(unknown_name("model", " ".join(words or ()), [*model_ids(), *world_model_ids()]))
    rows = [{"id": name, "kind": "model"} | summary(load_model(name)) for name in models]
    worlds = [_world_row(name) for name in world_models]
    if json:
        print(as_json([*rows, *worlds]))
        return
    from capacity.presentation import terminal
    from capacity.presentation.sheets.models import models_sheet

    terminal.show(models_sheet(rows, worlds))


def _matching(names: Iterable[str], words: list[str] | None) -> list[str]:
    return [name for name in names if all(word.lower() in name for word in words or ())]


def _world_row(name: str) -> dict[str, Any]:
    world = load_world_model(name)
    return {"id": name, "kind": "world model", "head": world.head.kind} | summary(world.model)


@app.command("show", no_args_is_help=True)
def show_model(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A name, config.json or folder.", show_default=False)],
    json: Json = False,
) -> None:
    """Show layers, parameters by module, checkpoint, notes and sources of one model or world model."""
    spec = load_subject(model)
    network = spec.model if isinstance(spec, WorldModelSpec) else spec
    if json:
        print(as_json(summary(network) | {"name": spec.name, "spec": spec.model_dump(mode="json")}))
        return
    from capacity.presentation import terminal
    from capacity.presentation.sheets.models import model_sheet, world_model_sheet

    if isinstance(spec, WorldModelSpec):
        terminal.show(world_model_sheet(spec, summary(network)))
    else:
        terminal.show(model_sheet(spec, summary(network)))


@app.command("check", no_args_is_help=True)
def check_models(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="config.json or folders.", show_default=False)],
) -> None:
    """Check that each configuration is understood to the last key that changes memory; the first fault ends it."""
    for file in files:
        spec = load_model(file)
        notes = f", {len(spec.notes)} notes" if spec.notes else ""
        print(printable(f"{file}: understood, {parameter_count(spec).total:,} parameters{notes}"))


def summary(model: ModelSpec) -> dict[str, Any]:
    """What a list says of a model: counts, layers, positions, cache and state in 16 bit. [parameter], [B]"""
    count, sixteen_bit = parameter_count(model), Deployment(weights="bf16")
    has_decoder = any(stage.role == "decoder" for stage in model.stages)
    rows = cache_rows(model, sixteen_bit)
    return {
        "name": model.name,
        "parameters": count.total,
        "active_parameters": count.active,
        "layers": model.decoder.layer_count if has_decoder else sum(stage.layer_count for stage in model.stages),
        "positions": model.positions,
        "token_bytes": sum(row.layers * row.layer.token_bytes for row in rows),
        "token_bytes_beyond_windows": sum(row.layers * row.layer.token_bytes for row in rows if not row.layer.window),
        "state_bytes": sequence_state_bytes(model, sixteen_bit)[0],
        "stored": mixture(model.checkpoint) if model.checkpoint else None,
        "by_module": dict(count.by_module),
    }


def mixture(checkpoint: Checkpoint) -> str:
    """The formats that a checkpoint is stored in, with the parts that are not in the first.

    >>> mixture(load_model("gpt-oss-120b").checkpoint)
    'bf16, experts mxfp4'
    """
    parts: dict[str, list[str]] = {}
    for part, stored in checkpoint.parts.items():
        if stored != checkpoint.default:
            parts.setdefault(stored, []).append(part)
    layers = [f"some layers of {item.part} {item.format}" for item in checkpoint.overrides]
    lines = [f"{' + '.join(names)} {stored}" for stored, names in parts.items()]
    return ", ".join(dict.fromkeys((checkpoint.default, *lines, *layers)))
