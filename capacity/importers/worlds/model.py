"""A configuration of OpenVLA, a vision encoder or DreamerV3, made into a `WorldModelSpec`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from capacity.errors import SpecError, unknown_name
from capacity.importers.huggingface.vision import vision_checkpoint, vision_tables, world_types
from capacity.importers.worlds.dreamer import dreamer_table, is_dreamer
from capacity.importers.worlds.openvla import openvla_table
from capacity.specs.world import WorldModelSpec


def import_world_model(data: Mapping[str, Any], name: str, where: str) -> WorldModelSpec:
    """The world model that a configuration of OpenVLA, a vision encoder or DreamerV3 describes.

    Raises
    ------
    SpecError
        If the type is unknown, or a value is missing or impossible.
    """
    if is_dreamer(data):
        return WorldModelSpec.parse(dreamer_table(data, name, where), where)
    kind = str(data.get("model_type"))
    if kind == "openvla":
        return WorldModelSpec.parse(openvla_table(data, name, where), where)
    kinds = [*world_types()["vision"], "openvla", "siglip", "clip", "dreamerv3 (a table with agent or size presets)"]
    if kind not in (*world_types()["vision"], "siglip", "clip"):
        raise SpecError(f"{where}: {unknown_name('model_type', kind, kinds)}")
    vision = vision_tables(data, where)
    checkpoint, stored = vision_checkpoint(data, where)
    tokens = vision.encoder["tokens"]
    table = {
        "name": name,
        "model": {"name": name, "stages": [vision.stage], "checkpoint": checkpoint},
        "encoders": [vision.encoder],
        "frames": tokens.get("temporal_patch", 1) * tokens.get("frames_together", 1),
        "head": {"kind": "none"},
        "sources": [vision.source],
        "notes": (*vision.notes, *stored),
        "assumed": vision.assumed,
    }
    return WorldModelSpec.parse(table, where)
