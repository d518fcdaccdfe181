"""Policy configurations of LeRobot, as changes to the shipped world model of the same type.

What a configuration leaves to code (an action expert, a fixed prompt) stays that of the shipped model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from capacity.errors import SpecError, unknown_name
from capacity.importers.checkpoints.quantization import checkpoint_of
from capacity.importers.huggingface.config import Config
from capacity.importers.huggingface.vision import world_types
from capacity.specs.world import WorldModelSpec

ALIASES = {"pi0fast": "pi0_fast", "pi0.5": "pi05", "Gr00tN1d7": "groot"}


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
    if executed is not None:
        changes["head.executed_actions"] = min(executed, chunk)
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
    kind, policies = ALIASES.get(str(config.get("type")), str(config.get("type"))), world_types()["policy"]
    if kind not in policies:
        raise SpecError(f"{where}: {unknown_name('policy type', kind, policies)}")
    return kind


def _refuse_other_shapes(config: Config, only: Mapping[str, list[Any]]) -> None:
    """The shapes of the shipped model are fixed: a configuration may only repeat them."""
    for key, allowed in only.items():
        if key in config.data and config.data[key] is None:
            raise config.fault(key, f"null is not supported for type {config.kind}")
        if not _local_copy(config, key, allowed):
            config.require(key, allowed)


def _local_copy(config: Config, key: str, allowed: list[Any]) -> bool:
    """Whether a key names an allowed model by a path of which the last part is its name; a note then says so."""
    name = config.given(key) if config.has(key) else None
    hub_ids = [one for one in allowed if isinstance(one, str) and "/" in one]
    if not isinstance(name, str) or name in allowed:
        return False
    last = name.replace("\\", "/").rstrip("/").rpartition("/")[2]
    meant = next((one for one in hub_ids if one.rpartition("/")[2] == last), None)
    if meant is None and hub_ids:
        raise config.fault(
            key,
            f"is supported for type {config.kind} only as {', '.join(hub_ids)}, or a local copy whose folder has that "
            f"name, got {name!r:.80}; set it so where the weights are a copy",
        )
    if meant is not None:
        config.notes.append(f"{key} is read as {meant}, by the last part of the path")
    return meant is not None


def _views(config: Config) -> int:
    """Cameras of an observation, with the empty ones that a policy adds under separate names; 0 if unstated."""
    features = config.given("input_features") if config.has("input_features") else {}
    if not isinstance(features, Mapping):
        raise config.fault("input_features", "must be a table")
    images = [key for key, item in features.items() if isinstance(item, Mapping) and item.get("type") == "VISUAL"]
    cameras = [key for key in images if ".empty_camera_" not in str(key)]
    return len(cameras) + (config.optional_count("empty_cameras", minimum=0) or 0)
