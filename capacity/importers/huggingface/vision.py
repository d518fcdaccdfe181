"""Vision encoder configurations (SigLIP, CLIP, DINOv2, V-JEPA 2) as stages with their token rule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from capacity.errors import SpecError, unknown_name
from capacity.files import package_data
from capacity.importers.checkpoints.quantization import checkpoint_of
from capacity.importers.huggingface.config import Config
from capacity.specs.checkpoint import Checkpoint


def world_types() -> dict[str, Any]:
    """Defaults and sources of the types that can be imported, from ``data/world_types.toml``."""
    return package_data.toml("data/world_types.toml")


@dataclass(frozen=True)
class Vision:
    """Tables of one encoder: its stage, its token rule and its source; what was ignored and what was assumed."""

    stage: dict[str, Any]
    encoder: dict[str, Any]
    source: dict[str, Any]
    notes: tuple[str, ...]
    assumed: tuple[str, ...]


def vision_tables(data: Mapping[str, Any], where: str, *, stage: str = "vision") -> Vision:
    """The stage of a vision configuration, with its token rule and source.

    A configuration of a pair (text and vision) is read at its ``vision_config``.

    Raises
    ------
    SpecError
        If the type is unknown, a value is not what it must be, a key may change memory and is not understood, or the
        patch is larger than the image.
    """
    data, notes = _vision_part(data, where)
    kinds = world_types()["vision"]
    kind = str(data.get("model_type"))
    if kind not in kinds:
        raise SpecError(f"{where}: {unknown_name('vision model_type', kind, kinds)}")
    facts = kinds[kind]
    config = Config(data, where, facts["defaults"], kind, tuple(world_types()["vision_harmless"]["keys"]))
    for key, allowed in facts.get("only", {}).items():
        config.require(key, allowed)
    shape = _shape(config, facts["defaults"])
    if shape["patch"] > shape["image"]:
        raise SpecError(f"{where}: patch_size {shape['patch']} is larger than the image, {shape['image']} px")
    rule = _token_rule(config, shape, facts)
    vision_stage = _stage(config, shape, facts, rule, stage)
    config.finish()
    uncounted = [facts["uncounted"]] if "uncounted" in facts else []
    notes = (*notes, *config.notes, *uncounted)
    return Vision(vision_stage, {"stage": stage, "tokens": rule}, _source(facts), notes, tuple(config.assumed))


def _vision_part(data: Mapping[str, Any], where: str) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """The vision configuration itself, which a pair holds inside, and notes on what else a pair holds."""
    inner, older = data.get("vision_config"), data.get("vision_config_dict")
    if not isinstance(inner, Mapping):
        return data, ()
    kind = f"{data.get('model_type', '')}_vision_model"
    pair = Config(data, where, {}, str(data.get("model_type")), tuple(world_types()["pair_harmless"]["keys"]))
    pair.finish()
    notes = (*pair.notes, "only vision_config is counted: the text model and what joins the two are not")
    return {"model_type": kind, **inner, **(older if isinstance(older, Mapping) else {})}, notes


def vision_checkpoint(data: Mapping[str, Any], where: str) -> tuple[Checkpoint | None, tuple[str, ...]]:
    """How a vision configuration is stored, and notes; the vision part of a pair may differ from the pair.

    Raises
    ------
    SpecError
        For an unknown data type.
    """
    inner = data.get("vision_config")
    own = inner if isinstance(inner, Mapping) else {}
    dtypes = {key: own[key] for key in ("torch_dtype", "dtype") if own.get(key) is not None}
    return checkpoint_of(dtypes or data, where)


def _source(facts: Mapping[str, Any]) -> dict[str, Any]:
    origin = "from documentation only: " if facts["confidence"] == "C" else ""
    return {"fields": ["*"], "cite": f"{origin}{facts['source']}", "confidence": facts["confidence"]}


def _present_key(defaults: Mapping[str, Any], *keys: str) -> str:
    """The key that a type uses for one fact."""
    return next(key for key in keys if key in defaults)


def _shape(config: Config, facts: Mapping[str, Any]) -> dict[str, int]:
    width = config.count("hidden_size")
    heads = config.count("num_attention_heads")
    if width % heads:
        raise SpecError(f"{config.where}: hidden_size {width} does not divide into {heads} heads")
    return {
        "width": width,
        "heads": heads,
        "layers": config.count("num_hidden_layers", maximum=1000),
        "feed_forward": _feed_forward(config, width),
        "channels": config.count(_present_key(facts, "num_channels", "in_chans")),
        "image": config.count(("crop_size", "image_size") if "crop_size" in facts else "image_size"),
        "patch": config.count("patch_size"),
    }


def _feed_forward(config: Config, width: int) -> int:
    if "intermediate_size" in config.defaults or "intermediate_size" in config.data:
        return config.count("intermediate_size")
    ratio = config.value("mlp_ratio")
    if isinstance(ratio, bool) or not isinstance(ratio, int | float) or not 0 < ratio <= 100:
        raise SpecError(f"{config.where}: mlp_ratio must be a number from above 0 to 100, got {ratio!r}")
    if config.kind.startswith("dinov2") and config.flag("use_swiglu_ffn"):
        return -(-(int(width * ratio) * 2 // 3) // 8) * 8
    return int(width * ratio)


def _token_rule(config: Config, shape: Mapping[str, int], facts: Mapping[str, Any]) -> dict[str, int]:
    rule = {"height_px": shape["image"], "width_px": shape["image"], "patch_px": shape["patch"]}
    extra = int(facts["extra_tokens"])
    if "num_register_tokens" in facts["defaults"]:
        extra += config.count("num_register_tokens", minimum=0)
    rule["extra_tokens"] = extra
    if "tubelet_size" in facts["defaults"]:
        rule["temporal_patch"] = config.count("tubelet_size")
        rule["frames_together"] = -(-config.count("frames_per_clip") // rule["temporal_patch"])
    return rule


def _stage(
    config: Config, shape: Mapping[str, int], facts: Mapping[str, Any], rule: Mapping[str, int], name: str
) -> dict[str, Any]:
    width = shape["width"]
    swiglu = config.kind.startswith("dinov2") and config.flag("use_swiglu_ffn")
    queries = ["query", "key", "value"] if "qkv_bias" not in facts["defaults"] or config.flag("qkv_bias") else []
    layer = {
        "indices": list(range(shape["layers"])),
        "mixer": {
            "kind": "attention",
            "query_heads": shape["heads"],
            "kv_heads": shape["heads"],
            "head_size": width // shape["heads"],
            "biases": [*queries, "output"],
            "causal": False,
        },
        "feed_forward": {"kind": "dense", "intermediate_size": shape["feed_forward"], "gated": swiglu, "bias": True},
        "norms": {"kind": "layer", "bias": True},
    }
    if facts.get("layer_scale"):
        layer["extra"] = [_tensor("layer_scale", [2 * width])]
    return {
        "name": name,
        "role": "encoder",
        "hidden_size": width,
        "layers": [layer],
        "before": _before(shape, facts, rule, timm=config.data.get("library") == "timm"),
        "after": _after(config, shape, facts),
    }


def _before(
    shape: Mapping[str, int], facts: Mapping[str, Any], rule: Mapping[str, int], *, timm: bool
) -> list[dict[str, Any]]:
    width, extra = shape["width"], rule["extra_tokens"]
    inputs = shape["channels"] * shape["patch"] ** 2 * rule.get("temporal_patch", 1)
    tensors = [_tensor("patch_embedding", [width, inputs])]
    if facts["patch_bias"]:
        tensors.append(_tensor("patch_bias", [width]))
    if extra:
        tensors.append(_tensor("class_and_registers", [extra, width], read="never"))
    if facts.get("learned_positions", True):
        # Registers have no position of their own; the class token does, but not in timm's models with registers.
        grid = (shape["image"] // shape["patch"]) ** 2
        of_class = 0 if timm else facts["extra_tokens"]
        tensors.append(_tensor("positions", [grid + of_class, width], read="never"))
    if facts.get("mask_token") and not timm:
        tensors.append(_tensor("mask_token", [width], read="never"))
    if facts["pre_norm"]:
        tensors.append(_tensor("pre_norm", [2 * width], part="norm"))
    return tensors


def _after(config: Config, shape: Mapping[str, int], facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    width, inner = shape["width"], shape["feed_forward"]
    tensors = [_tensor("final_norm", [2 * width], part="norm")]
    if facts["pooling_head"] and (not config.has("vision_use_head") or config.flag("vision_use_head")):
        size = 4 * width**2 + 2 * width * inner + 8 * width + inner
        tensors.append(_tensor("pooling_head", [size], read="never"))
    return tensors


def _tensor(name: str, shape: list[int], *, part: str = "vision", read: str = "whole") -> dict[str, Any]:
    return {"name": name, "shape": shape, "part": part, "read": read}
