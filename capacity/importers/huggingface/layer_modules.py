"""The matrices of the layers of a decoder, under the names they have in the files of its checkpoint."""

from __future__ import annotations

from collections.abc import Iterator

from capacity.importers.checkpoints.unquantized import LayerModule
from capacity.importers.huggingface.facts import ModuleNames
from capacity.specs.model import Attention, Dense, Experts, LatentAttention, LayerGroup, Stage, StateMixer


def layer_modules(stage: Stage, names: ModuleNames) -> tuple[LayerModule, ...]:
    """The matrices of attention, feed-forward, experts and head, and routers that a method for linear layers may reach.

    The first two experts of a layer represent all of them.
    """
    inside = tuple(
        LayerModule(part, layer, f"{names.layers}.{layer}.{name}")
        for group in stage.layers
        for layer in group.indices
        for part, name in _of_layer(group, names)
    )
    heads = [LayerModule("lm_head", 0, names.head, tensor.tied) for tensor in stage.after if tensor.name == "lm_head"]
    return (*inside, *heads)


def _of_layer(group: LayerGroup, names: ModuleNames) -> Iterator[tuple[str, str]]:
    if isinstance(group.mixer, Attention | LatentAttention):
        yield from (("attention", name) for name in _attention(group.mixer, names))
    if isinstance(group.mixer, StateMixer):
        yield from (("attention", name) for name in names.state)
    if isinstance(group.feed_forward, Dense):
        yield from (("mlp", name) for name in names.mlp)
    if isinstance(group.feed_forward, Experts):
        several = range(min(2, group.feed_forward.experts))
        yield from (("experts", name.format(expert=number)) for number in several for name in names.experts)
        if group.feed_forward.shared_intermediate_size:
            yield from (("experts", name) for name in names.shared)
        if names.router:
            yield "router", names.router


def _attention(mixer: Attention | LatentAttention, names: ModuleNames) -> tuple[str, ...]:
    if isinstance(mixer, LatentAttention) and mixer.query_rank is None:
        return (names.whole_query, *names.attention[2:])
    return names.attention
