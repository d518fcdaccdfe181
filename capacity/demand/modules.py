"""One table of a model's weights, in the order in which a token passes them, from which parameters, weight bytes, FLOP
and traffic all come, so that a shape is written down once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from math import prod

from capacity.demand import feed_forwards, mixers
from capacity.demand.weights import Module, Place, Shard, vector
from capacity.errors import CapacityError
from capacity.specs.model import LayerGroup, ModelSpec, Stage, Tensor

MAX_PARAMETERS = 10**15  # hundreds of times the largest model there is


@lru_cache(maxsize=512)
def modules(model: ModelSpec) -> tuple[Module, ...]:
    """The weight table of all stages of ``model``.

    Raises
    ------
    CapacityError
        If there are more than `MAX_PARAMETERS`.
    """
    table = tuple(module for stage in model.stages for module in _of_stage(stage))
    total = sum(module.parameters for module in table if module.stored)
    if total > MAX_PARAMETERS:
        raise CapacityError(
            f"{model.name} has {total:.2g} parameters, at most {MAX_PARAMETERS:.0e} are sized: see whether a digit is "
            "wrong in its shape"
        )
    return table


def _of_stage(stage: Stage) -> Iterator[Module]:
    for tensor in stage.before:
        yield _outside(tensor, stage, "before")
    for group in stage.layers:
        yield from (_in_encoder(m) if stage.role == "encoder" else m for m in _of_group(group, stage))
    for tensor in stage.after:
        yield _outside(tensor, stage, "after")


def _in_encoder(module: Module) -> Module:
    """Encoders belong to the part ``vision`` and are held whole on every rank."""
    part = module.part if module.part == "norm" else "vision"
    return replace(module, part=part, shard="whole")


def _outside(tensor: Tensor, stage: Stage, place: Place) -> Module:
    cut: Shard = "vocabulary" if tensor.part in ("embedding", "lm_head") and tensor.read != "never" else "whole"
    if tensor.part == "embedding" and "position" in tensor.name:
        cut = "whole"
    part = "vision" if stage.role == "encoder" and tensor.part != "norm" else tensor.part
    return Module(
        name=tensor.name,
        operator="head" if tensor.part in ("lm_head", "norm") else tensor.part,
        part=part,
        stage=stage.name,
        rows=tensor.shape[0],
        columns=prod(tensor.shape[1:]),
        shard="whole" if stage.role == "encoder" else cut,
        place=place,
        vector=len(tensor.shape) == 1,
        stored=not tensor.tied,
        read=tensor.read,
    )


def _of_group(group: LayerGroup, stage: Stage) -> Iterator[Module]:
    width = stage.hidden_size
    mixing = list(mixers.of(group.mixer).weights(group.mixer, width))
    forward = list(feed_forwards.of(group.feed_forward).weights(group.feed_forward, width))
    first = (mixing or forward)[0].operator if mixing or forward else "qkv"
    members = [*mixing, *forward, *_norms(group, width, first, forward[0].operator if forward else first)]
    members += [_extra(tensor, first) for tensor in group.extra]
    for module in members:
        yield replace(module, stage=stage.name, layers=group.indices)


def _extra(tensor: Tensor, operator: str) -> Module:
    """A tensor of a layer outside the pattern of mixer and feed-forward, read with the first operator."""
    size, is_vector = prod(tensor.shape), len(tensor.shape) == 1
    rows = size if is_vector else tensor.shape[0]
    return Module(
        tensor.name, operator, tensor.part, "", rows, size // rows, "whole", vector=is_vector, read=tensor.read
    )


def _norms(group: LayerGroup, width: int, first: str, second: str) -> Iterator[Module]:
    """Norm weights are charged to the operator that consumes their output: mixer and feed-forward, half each."""
    total = group.norms.parameters(width)
    if total:
        before = -(-group.norms.count // 2) * total // group.norms.count
        yield vector("mixer_norms", first, before, part="norm")
        if total > before:
            yield vector("feed_forward_norms", second, total - before, part="norm")
