"""Configurations of world models and robot policies from outside, as tables of a `WorldModelSpec`.

What a configuration leaves to code (an action expert, a fixed prompt) comes from a shipped model of the same type;
the importer then says which shipped model it changes and how.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from capacity.errors import SpecError, unknown_name
from capacity.importers.dreamer import dreamer_table, is_dreamer
from capacity.importers.huggingface import import_config
from capacity.importers.vision import vision_tables, world_types
from capacity.specs.world import WorldModelSpec

ALIASES = {"pi0fast": "pi0_fast", "pi0.5": "pi05", "Gr00tN1d7": "groot"}


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
        return WorldModelSpec.parse(_openvla(data, name, where), where)
    known = [*world_types()["vision"], "openvla", "siglip", "clip", "dreamerv3 (a table with agent or size presets)"]
    if kind not in (*world_types()["vision"], "siglip", "clip"):
        raise SpecError(f"{where}: {unknown_name('model_type', kind, known)}")
    stage, encoder, source = vision_tables(data, where)
    frames = encoder["tokens"].get("temporal_patch", 1) * encoder["tokens"].get("frames_together", 1)
    table = {
        "name": name,
        "model": {"name": name, "stages": [stage], "checkpoint": {"default": "bf16", "evidence": "assumed"}},
        "encoders": [encoder],
        "frames": frames,
        "head": {"kind": "none"},
        "sources": [source],
    }
    return WorldModelSpec.parse(table, where)


def _openvla(data: Mapping[str, Any], name: str, where: str) -> dict[str, Any]:
    facts = world_types()["openvla"]
    if data.get("arch_specifier", "no-align+fused-gelu-mlp") not in ("no-align+fused-gelu-mlp", "no-align+gelu-mlp"):
        raise SpecError(f"{where}: arch_specifier {data['arch_specifier']!r} is not supported; a gelu-mlp projector is")
    stages, encoders = [], []
    for index, identifier in enumerate(_timm_ids(data, where)):
        if identifier not in facts["timm"]:
            raise SpecError(f"{where}: timm_model_ids: {unknown_name('encoder', identifier, facts['timm'])}")
        config = facts["timm"][identifier]
        stage, encoder, _ = vision_tables(config, where, stage=f"vision_{index + 1}")
        stages.append(stage)
        encoders.append({**encoder, "feeds_core": index == 0})
    core = import_config(_text_config(data, where), name, f"{where}: text_config")
    stages[-1]["after"] += _projector(sum(stage["hidden_size"] for stage in stages), core.stages[0].hidden_size)
    text = core.model_dump()
    return {
        "name": name,
        "model": {**text, "stages": [*stages, text["stages"][0]], "checkpoint": _checkpoint(data)},
        "encoders": encoders,
        "core": core.stages[0].name,
        "text_tokens": 25,
        "head": {"kind": "autoregressive", "tokens_per_action": 7.0},
        "sources": [{"fields": ["*"], "cite": facts["source"], "confidence": facts["confidence"]}],
        "notes": ["a prompt of 25 text tokens and 7 action tokens are not in the configuration"],
        "assumed": ["text_tokens", "head.tokens_per_action"],
    }


def _timm_ids(data: Mapping[str, Any], where: str) -> list[str]:
    """Encoders in the order in which the fused backbone runs them: the last one is followed by the projector."""
    ids = data.get("timm_model_ids")
    if not isinstance(ids, list) or not 1 <= len(ids) <= 4 or not all(isinstance(item, str) for item in ids):
        raise SpecError(f"{where}: timm_model_ids must be a list of 1 to 4 names, got {str(ids)[:60]!r}")
    return ids


def _text_config(data: Mapping[str, Any], where: str) -> dict[str, Any]:
    text = data.get("text_config")
    if not isinstance(text, Mapping):
        raise SpecError(f"{where}: text_config must be a table, got {type(text).__name__}")
    return {"model_type": "llama", "torch_dtype": "bfloat16", **text}


def _checkpoint(data: Mapping[str, Any]) -> dict[str, Any]:
    formats = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
    stored = formats.get(str(data.get("torch_dtype")), "bf16")
    return {"default": stored, "evidence": "published" if "torch_dtype" in data else "assumed"}


def _projector(vision: int, width: int) -> list[dict[str, Any]]:
    """Three matrices: up to four times the vision width, to the width of the core, and once more."""
    shapes = {"projector_1": [4 * vision, vision], "projector_2": [width, 4 * vision], "projector_3": [width, width]}
    biases = {"projector_biases": [4 * vision + 2 * width]}
    return [{"name": key, "shape": shape, "part": "vision"} for key, shape in (shapes | biases).items()]


def policy_changes(config: Mapping[str, Any], where: str) -> tuple[str, dict[str, Any], tuple[str, ...]]:
    """Which shipped model a LeRobot policy configuration starts from, its changed fields, and notes.

    Raises
    ------
    SpecError
        If the policy is unknown, executes more actions than a chunk holds, or changes what cannot be changed.
    """
    policies = world_types()["policy"]
    kind = ALIASES.get(str(config.get("type")), str(config.get("type")))
    if kind not in policies:
        raise SpecError(f"{where}: {unknown_name('policy type', kind, policies)}")
    facts = policies[kind]
    for key, value in facts.get("fixed", {}).items():
        if config.get(key, value) != value:
            raise SpecError(f"{where}: {key} {config[key]!r} is not supported for {kind}; only {value!r} is")
    changes = {field: _count(config, key, where) for key, field in facts["fields"].items() if key in config}
    chunk, executed = changes.get("head.chunk_actions"), config.get("n_action_steps")
    if chunk is not None and isinstance(executed, int) and executed > chunk:
        raise SpecError(f"{where}: n_action_steps {executed} is longer than the chunk of {chunk} actions")
    views = _views(config, where)
    if views:
        changes["views"] = views
    said = "from documentation only: " if facts["confidence"] == "C" and "documentation" not in facts["source"] else ""
    return facts["base"], changes, (f"policy keys: {said}{facts['source']}",)


def _count(config: Mapping[str, Any], key: str, where: str) -> int:
    value = config[key]
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 2**31:
        raise SpecError(f"{where}: {key} must be a whole number of at least 1, got {str(value)[:40]!r}")
    return value


def _views(config: Mapping[str, Any], where: str) -> int:
    features = config.get("input_features", {})
    if not isinstance(features, Mapping):
        raise SpecError(f"{where}: input_features must be a table")
    images = [key for key, item in features.items() if isinstance(item, Mapping) and item.get("type") == "VISUAL"]
    empty = config.get("empty_cameras", 0)
    return len(images) + (empty if isinstance(empty, int) and images else 0)
