"""Configurations of world models and robot policies from outside, as tables of a `WorldModelSpec`.

What a configuration leaves to code (an action expert, a fixed prompt) comes from a shipped model of the same type;
the importer then says which shipped model it changes and how.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from capacity.errors import SpecError, unknown_name
from capacity.importers.checkpoints.quantization import checkpoint_of
from capacity.importers.huggingface.config import Config
from capacity.importers.huggingface.model import import_config
from capacity.importers.huggingface.vision import vision_checkpoint, vision_tables, world_types
from capacity.importers.worlds.dreamer import dreamer_table, is_dreamer
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


def _openvla(data: Mapping[str, Any], name: str, where: str) -> dict[str, Any]:
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
    ids, known = data.get("timm_model_ids"), world_types()["openvla"]["timm"]
    if not isinstance(ids, list) or not 1 <= len(ids) <= 4 or not all(isinstance(item, str) for item in ids):
        raise SpecError(f"{where}: timm_model_ids must be a list of 1 to 4 names, got {str(ids)[:60]!r}")
    for identifier in ids:
        if identifier not in known:
            raise SpecError(f"{where}: timm_model_ids: {unknown_name('encoder', identifier, known)}")
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


def policy_base(config: Mapping[str, Any], where: str) -> str:
    """The id of the shipped model that a LeRobot policy configuration starts from.

    Raises
    ------
    SpecError
        If the policy is unknown.
    """
    return str(world_types()["policy"][_policy(config, where)]["base"])


def policy_changes(
    data: Mapping[str, Any], base: WorldModelSpec, where: str
) -> tuple[dict[str, Any], tuple[str, ...], tuple[str, ...]]:
    """Fields of the shipped model ``base`` that a LeRobot policy configuration changes, notes, and what was assumed.

    Raises
    ------
    SpecError
        If the policy executes more actions than a chunk holds, changes what cannot be changed, or has a key that may
        change memory and is not understood.
    """
    kind = _policy(data, where)
    facts = world_types()["policy"][kind]
    defaults = {"dtype": facts["dtype"]} if "dtype" in facts else {}
    config = Config(data, where, defaults, kind, tuple(world_types()["policy_harmless"]["keys"]))
    _refuse_other_shapes(config, facts["only"])
    changes: dict[str, Any] = {field: config.count(key) for key, field in facts["fields"].items() if config.has(key)}
    executed = config.optional_count("n_action_steps")
    chunk = changes.get("head.chunk_actions", base.head.chunk_actions)
    if executed is not None and "head.chunk_actions" in changes and executed > chunk:
        raise SpecError(f"{where}: n_action_steps {executed} is longer than the chunk of {chunk} actions")
    limits = [config.count(key) for key in facts.get("answer_limits", ()) if config.has(key)]
    if limits:
        changes["head.tokens_per_action"] = min(base.head.tokens_per_action, min(limits) / chunk)
    views = _views(config)
    if views:
        changes["views"] = views
    stored: tuple[str, ...] = ()
    if defaults:
        checkpoint, stored = checkpoint_of({"dtype": config.value("dtype")}, where)
        changes["model.checkpoint"] = checkpoint
    config.finish()
    return changes, (f"policy keys: {facts['source']}", *config.notes, *stored), tuple(config.assumed)


def _policy(config: Mapping[str, Any], where: str) -> str:
    kind, known = ALIASES.get(str(config.get("type")), str(config.get("type"))), world_types()["policy"]
    if kind not in known:
        raise SpecError(f"{where}: {unknown_name('policy type', kind, known)}")
    return kind


def _refuse_other_shapes(config: Config, only: Mapping[str, list[Any]]) -> None:
    """The shapes of the shipped model are fixed: a configuration may only repeat them."""
    for key, allowed in only.items():
        if key in config.data and config.data[key] is None:
            raise config.fault(key, f"null is not supported for type {config.kind}")
        config.require(key, allowed)


def _views(config: Config) -> int:
    """Cameras of an observation, with the empty ones that a policy adds under a name of their own; 0 if unsaid."""
    features = config.given("input_features") if config.has("input_features") else {}
    if not isinstance(features, Mapping):
        raise config.fault("input_features", "must be a table")
    images = [key for key, item in features.items() if isinstance(item, Mapping) and item.get("type") == "VISUAL"]
    seen = [key for key in images if ".empty_camera_" not in str(key)]
    return len(seen) + (config.optional_count("empty_cameras", least=0) or 0)
