"""OpenVLA: vision encoders of timm, a projector and a language model, as a table of a `WorldModelSpec`.

The length of the prompt and the number of action tokens are fixed in its code and not part of the configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from capacity.errors import SpecError, unknown_name
from capacity.importers.checkpoints.quantization import checkpoint_of
from capacity.importers.huggingface.config import Config
from capacity.importers.huggingface.model import import_config
from capacity.importers.huggingface.vision import vision_tables, world_types


def openvla_table(data: Mapping[str, Any], name: str, where: str) -> dict[str, Any]:
    """The table of a `WorldModelSpec` for a fused vision backbone, a projector and a language model.

    Raises
    ------
    SpecError
        If an encoder is unknown, or a value is missing or not supported.
    """
    facts = world_types()["openvla"]
    config = Config(data, where, {}, "openvla", ("text_config", "timm_model_ids", *facts["harmless"]))
    for key, allowed in facts["only"].items():
        config.require(key, allowed)
    identifiers = _timm_ids(data, where)
    sizes = [facts["timm"][identifier]["image_size"] for identifier in identifiers]
    config.require("image_sizes", [sizes])
    config.finish()
    stages, encoders = [], []
    for index, identifier in enumerate(identifiers):
        vision = vision_tables(facts["timm"][identifier], where, stage=f"vision_{index + 1}")
        stages.append(vision.stage)
        encoders.append({**vision.encoder, "feeds_core": index == 0})
    core = import_config(_text_config(data, where), name, f"{where}: text_config", nested=True)
    checkpoint, stored = checkpoint_of(data, where)
    stages[-1]["after"] += _projector(sum(stage["hidden_size"] for stage in stages), core.stages[0].hidden_size)
    text = core.model_dump()
    return {
        "name": name,
        "model": {**text, "stages": [*stages, text["stages"][0]], "checkpoint": checkpoint},
        "encoders": encoders,
        "core": core.stages[0].name,
        "text_tokens": 25,
        "head": {"kind": "autoregressive", "tokens_per_action": 7.0},
        "sources": [{"fields": ["*"], "cite": facts["source"], "confidence": facts["confidence"]}],
        "notes": (
            "a prompt of 25 text tokens and 7 action tokens are not in the configuration",
            *config.notes,
            *stored,
        ),
        "assumed": ("text_tokens", "head.tokens_per_action"),
    }


def _timm_ids(data: Mapping[str, Any], where: str) -> list[str]:
    """Encoders in the order in which the fused backbone runs them: the last one is followed by the projector."""
    ids, encoders = data.get("timm_model_ids"), world_types()["openvla"]["timm"]
    if not isinstance(ids, list) or not 1 <= len(ids) <= 4 or not all(isinstance(item, str) for item in ids):
        raise SpecError(f"{where}: timm_model_ids must be a list of 1 to 4 names, got {str(ids)[:60]!r}")
    for identifier in ids:
        if identifier not in encoders:
            raise SpecError(f"{where}: timm_model_ids: {unknown_name('encoder', identifier, encoders)}")
    return ids


def _text_config(data: Mapping[str, Any], where: str) -> dict[str, Any]:
    text = data.get("text_config")
    if not isinstance(text, Mapping):
        raise SpecError(f"{where}: text_config must be a table, got {type(text).__name__}")
    return {"model_type": "llama", **text}


def _projector(vision: int, width: int) -> list[dict[str, Any]]:
    """Three matrices: up to four times the vision width, to the width of the core, and once more."""
    shapes = {"projector_1": [4 * vision, vision], "projector_2": [width, 4 * vision], "projector_3": [width, width]}
    biases = {"projector_biases": [4 * vision + 2 * width]}
    return [{"name": key, "shape": shape, "part": "vision"} for key, shape in (shapes | biases).items()]
