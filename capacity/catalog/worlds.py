"""World model by shipped id, path, table or external configuration."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from capacity.catalog.hub import is_hub_id, not_shipped, shipped_under
from capacity.errors import SpecError, unknown_name
from capacity.files import package_data
from capacity.files.json_file import read_object
from capacity.files.text_file import name_or_path
from capacity.files.yaml_file import read_yaml
from capacity.importers.worlds.lerobot import policy_base, policy_changes
from capacity.importers.worlds.model import import_world_model
from capacity.inputs import check_kind
from capacity.specs.world import WorldModelSpec


def load_world_model(source: str | os.PathLike[str] | Mapping[str, Any], name: str | None = None) -> WorldModelSpec:
    """The world model of a shipped id, or the one in a file, folder or table.

    A file or table is a world model of this package, or an external configuration: OpenVLA, a LeRobot policy,
    DreamerV3 (``configs.yaml``, with the size at the end of ``name``), SigLIP, CLIP, DINOv2 or V-JEPA 2.

    Parameters
    ----------
    source : str, path or mapping
        A shipped id, a file or its folder, or the table itself.
    name : str or None
        Name of a model whose file gives none.

    Returns
    -------
    WorldModelSpec
        Stages by role, and what enters and leaves a decision.

    Raises
    ------
    SpecError
        If there is none of that name, or the file describes no world model.

    Examples
    --------
    >>> load_world_model("pi0").head.chunk_actions
    50
    """
    check_kind("name", name, str, none=True)
    if isinstance(source, Mapping):
        own = name or str(source.get("name", source.get("type", "world model")))
        return _from_table(source, own, where=own)
    name_or_file = name_or_path(source, "world model")
    if is_hub_id(name_or_file):
        name_or_file = shipped_under(name_or_file, world_model_ids()) or name_or_file
    if name_or_file in world_model_ids():
        return _shipped(name_or_file)
    path = Path(name_or_file, "config.json") if os.path.isdir(name_or_file) else Path(name_or_file)
    if path.suffix in (".json", ".yaml", ".yml") or os.path.exists(name_or_file):
        return _from_table(_read(path), name or path.resolve().parent.name, where=str(path))
    if is_hub_id(name_or_file):
        raise SpecError(not_shipped(name_or_file, world_model_ids()))
    raise SpecError(unknown_name("world model", name_or_file, world_model_ids()))


def _from_table(table: Mapping[str, Any], name: str, where: str) -> WorldModelSpec:
    if "model" in table and "head" in table:
        return WorldModelSpec.parse(table, where=where)
    if "type" not in table:
        return import_world_model(table, name, where)
    base = policy_base(table, where)
    shipped = _shipped(base)
    changes, notes, assumed = policy_changes(table, shipped, where)
    changed = shipped.replace(**changes).model_dump()
    described = (*shipped.notes, *notes, f"what is not in the configuration is taken from {base}")
    changed |= {"name": name, "notes": described, "assumed": (*shipped.assumed, *assumed)}
    return WorldModelSpec.parse(changed, where)


def world_model_ids() -> tuple[str, ...]:
    """Ids of the shipped world models.

    Returns
    -------
    tuple of str
        Ids that `load_world_model` takes.

    Examples
    --------
    >>> "openvla-7b" in world_model_ids()
    True
    """
    return package_data.names("data/world_models", ".json")


@cache
def _shipped(name: str) -> WorldModelSpec:
    return WorldModelSpec.parse(json.loads(package_data.text(f"data/world_models/{name}.json")), where=name)


def _read(path: Path) -> Mapping[str, Any]:
    return read_yaml(path) if path.suffix in (".yaml", ".yml") else read_object(path)
