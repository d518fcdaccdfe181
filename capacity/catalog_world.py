"""World model by shipped id, path or table."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from capacity.errors import SpecError, unknown_name
from capacity.specs.world import WorldModelSpec

_LARGEST_FILE_BYTES = 8_000_000


def load_world_model(source: str | os.PathLike[str] | Mapping[str, Any]) -> WorldModelSpec:
    """The world model called ``source``, or the one in a JSON file or table.

    Raises
    ------
    SpecError
        If there is none of that name, or the file is not a world model.
    """
    if isinstance(source, Mapping):
        return WorldModelSpec.parse(source, where=str(source.get("name", "world model")))
    name = os.fspath(source)
    if name in world_model_ids():
        return _shipped(name)
    path = Path(name)
    if path.suffix == ".json" or path.exists():
        return WorldModelSpec.parse(_read(path), where=name)
    raise SpecError(unknown_name("world model", name, world_model_ids()))


@cache
def world_model_ids() -> tuple[str, ...]:
    """Ids of the shipped world models."""
    folder = files("capacity").joinpath("data/world_models")
    return tuple(sorted(item.name.removesuffix(".json") for item in folder.iterdir() if item.name.endswith(".json")))


@cache
def _shipped(name: str) -> WorldModelSpec:
    text = files("capacity").joinpath(f"data/world_models/{name}.json").read_text(encoding="utf-8")
    return WorldModelSpec.parse(json.loads(text), where=name)


def _read(path: Path) -> Any:
    try:
        if path.stat().st_size > _LARGEST_FILE_BYTES:
            raise SpecError(f"{path}: larger than {_LARGEST_FILE_BYTES:,} bytes, not a world model")
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise SpecError(f"{path}: not a readable JSON file ({error.__class__.__name__})") from None
    if not isinstance(data, dict):
        raise SpecError(f"{path}: a world model is a JSON object")
    return data
