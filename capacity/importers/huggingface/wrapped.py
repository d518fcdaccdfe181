"""Configurations of a text part and a vision tower: the tower as an encoder stage before the decoder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from capacity.errors import SpecError
from capacity.files import package_data
from capacity.files.json_file import kind_of
from capacity.importers.huggingface.config import Config
from capacity.specs.model import Attention, Dense, LayerGroup, Norms, Stage, Tensor

TEXT, VISION, TIED = "text_config", "vision_config", "tie_word_embeddings"
OF_CHECKPOINT = ("quantization_config", "compression_config", "torch_dtype", "dtype")
SHAPES = ("depth", "hidden_size", "intermediate_size", "num_heads", "out_hidden_size", "patch_size")
LAYERS = "model.language_model.layers"  # of the decoder, in the files of a checkpoint


def wrapper_types() -> dict[str, Any]:
    """Facts of the types that hold both parts, from ``data/wrapper_types.toml``."""
    return package_data.toml("data/wrapper_types.toml")


def text_part(data: Mapping[str, Any], kind: str, where: str) -> dict[str, Any]:
    """The text configuration, with what the whole says of its head.

    Raises
    ------
    SpecError
        If there is none, it is of another type, or the two disagree on whether the head is tied.
    """
    part = _inner(data, TEXT, where)
    types = wrapper_types()[kind]["text_types"]
    own = part.get("model_type", types[0])
    if own not in types:
        raise SpecError(
            f"{where}: {TEXT}.model_type must be {' or '.join(types)} in type {kind}, got {str(own)[:60]!r}"
        )
    places = ((data, where), (part, f"{where}: {TEXT}"))
    tied = [Config(one, place, {}, kind).flag(TIED) for one, place in places if one.get(TIED) is not None]
    if any(one != tied[0] for one in tied):
        raise SpecError(f"{where}: {TIED} is {tied[0]} in the whole and {tied[1]} in {TEXT}, and the two disagree")
    return {**part, "model_type": own, TIED: tied[0] if tied else False}


def rest_is_harmless(data: Mapping[str, Any], kind: str, where: str) -> tuple[str, ...]:
    """Notes on keys of the whole; one that may change memory is refused.

    Raises
    ------
    SpecError
        For an unknown key that may change memory.
    """
    parts = (TEXT, VISION, TIED, "model_type", *OF_CHECKPOINT)
    outer = Config(
        {key: value for key, value in data.items() if key not in parts}, where, {}, kind, ("language_model_only",)
    )
    outer.finish()
    return tuple(outer.notes)


def vision_stage(data: Mapping[str, Any], kind: str, where: str, hidden: int) -> tuple[Stage, tuple[str, ...]]:
    """The vision tower with its mergers, and notes: patches of several frames, learned positions, equal layers.

    Raises
    ------
    SpecError
        If a shape is missing or impossible, or its output is not as wide as the decoder.
    """
    facts = wrapper_types()[kind]
    part = {key: value for key, value in _inner(data, VISION, where).items() if key != "model_type"}
    defaults = {"in_channels": 3, "spatial_merge_size": 2, "temporal_patch_size": 2, "num_position_embeddings": 2304}
    config = Config(part, f"{where}: {VISION}", defaults, kind, required=frozenset(SHAPES))
    width, heads, out = config.count("hidden_size"), config.count("num_heads"), config.count("out_hidden_size")
    if width % heads:
        raise config.fault("hidden_size", f"= {width} does not divide into {heads} heads")
    if out != hidden:
        raise config.fault("out_hidden_size", f"= {out} must be the {hidden} of the decoder")
    merged = config.counts("deepstack_visual_indexes")
    if merged is None:
        merged = tuple(facts["deepstack"])
        config.leave_open("deepstack_visual_indexes", f"{list(merged)}: as in type {kind}")
    layers = config.count("depth", maximum=1000)
    mixer = Attention(
        query_heads=heads,
        kv_heads=heads,
        head_size=width // heads,
        biases=("query", "key", "value", "output"),
        causal=False,
    )
    stage = Stage(
        name="vision",
        role="encoder",
        hidden_size=width,
        layers=(
            LayerGroup(
                indices=tuple(range(layers)),
                mixer=mixer,
                feed_forward=Dense(intermediate_size=config.count("intermediate_size"), gated=False, bias=True),
                norms=Norms(kind="layer", bias=True),
            ),
        ),
        before=_before(config, width),
        after=_mergers(config.count("spatial_merge_size") ** 2 * width, width, out, len(merged)),
    )
    config.finish()
    return stage, tuple(f"{VISION}: {note}" for note in config.notes)


def _inner(data: Mapping[str, Any], key: str, where: str) -> Mapping[str, Any]:
    part = data.get(key)
    if not isinstance(part, Mapping):
        raise SpecError(f"{where}: {key} must be an object, got {'nothing' if part is None else f'a {kind_of(part)}'}")
    return part


def _before(config: Config, width: int) -> tuple[Tensor, ...]:
    inputs = config.count("in_channels") * config.count("temporal_patch_size") * config.count("patch_size") ** 2
    return (
        _tensor("patch_embedding", width, inputs),
        _tensor("patch_bias", width),
        _tensor("positions", config.count("num_position_embeddings"), width),
    )


def _mergers(merged: int, width: int, out: int, extra: int) -> tuple[Tensor, ...]:
    """The merger of neighbouring patches, and one for each layer whose output is merged as well."""
    tensors = [_tensor("merger_norm", 2 * width), *_merger("merger", merged, out)]
    for number in range(extra):
        tensors += [_tensor(f"merger_{number}_norm", 2 * merged), *_merger(f"merger_{number}", merged, out)]
    return tuple(tensors)


def _merger(name: str, merged: int, out: int) -> tuple[Tensor, ...]:
    return (
        _tensor(f"{name}_in", merged, merged),
        _tensor(f"{name}_in_bias", merged),
        _tensor(f"{name}_out", out, merged),
        _tensor(f"{name}_out_bias", out),
    )


def _tensor(name: str, *shape: int) -> Tensor:
    return Tensor(name=name, shape=shape, part="vision")
