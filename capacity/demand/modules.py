"""One table of a model's weights: which operator reads a matrix, which part it belongs to, its shape, how it shards.

Parameters, weight bytes, FLOP and traffic all come from this table, so a shape is written down once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

from capacity.specs.model import (
    Attention,
    Dense,
    Experts,
    LatentAttention,
    LayerGroup,
    ModelSpec,
    Stage,
    StateMixer,
    Tensor,
)

Shard = Literal["rows", "columns", "vocabulary", "expert_rows", "expert_columns", "whole"]
Place = Literal["before", "layer", "after"]


@dataclass(frozen=True, slots=True)
class Module:
    """A weight of ``rows`` outputs from ``columns`` inputs, once in each of ``layers`` (or once, outside them).

    ``copies`` experts lie side by side, of which a token visits ``used``. ``unit`` rows stay together when rows
    are divided (a head). ``vector``: a norm, bias or sink, kept at 16 bit. ``stored`` is false where another
    module's memory is read again (a tied head, a shared block). ``source_tokens``: it projects another stage's
    tokens, once a sequence.
    """

    name: str
    operator: str
    part: str
    stage: str
    rows: int
    columns: int
    shard: Shard
    layers: tuple[int, ...] = ()
    place: Place = "layer"
    copies: int = 1
    used: int = 1
    unit: int = 1
    vector: bool = False
    stored: bool = True
    read: Literal["whole", "rows", "never"] = "whole"
    source_tokens: int = 0

    @property
    def repeats(self) -> int:
        """How often the module occurs: once a layer, or once."""
        return len(self.layers) if self.place == "layer" else 1

    @property
    def parameters(self) -> int:
        """Parameters of all layers and copies."""
        return self.rows * self.columns * self.copies * self.repeats


@lru_cache(maxsize=512)
def modules(model: ModelSpec) -> tuple[Module, ...]:
    """The weight table of all stages of ``model``, in the order in which a token meets them."""
    return tuple(module for stage in model.stages for module in _of_stage(stage))


def _of_stage(stage: Stage) -> Iterator[Module]:
    for tensor in stage.before:
        yield _outside(tensor, stage, "before")
    for group in stage.layers:
        yield from (_in_encoder(m) if stage.role == "encoder" else m for m in _of_group(group, stage))
    for tensor in stage.after:
        yield _outside(tensor, stage, "after")


def _in_encoder(module: Module) -> Module:
    """Encoders belong to the part ``vision`` and are held whole on every rank, as serving engines do by default."""
    part = module.part if module.part == "norm" else "vision"
    return replace(module, part=part, shard="whole")


def _outside(tensor: Tensor, stage: Stage, place: Place) -> Module:
    rows, columns = tensor.shape[0], 1
    for size in tensor.shape[1:]:
        columns *= size
    cut: Shard = "vocabulary" if tensor.part in ("embedding", "lm_head") and tensor.read != "never" else "whole"
    if tensor.part == "embedding" and "position" in tensor.name:
        cut = "whole"
    part = "vision" if stage.role == "encoder" and tensor.part != "norm" else tensor.part
    return Module(
        name=tensor.name,
        operator="head" if tensor.part in ("lm_head", "norm") else tensor.part,
        part=part,
        stage=stage.name,
        rows=rows,
        columns=columns,
        shard="whole" if stage.role == "encoder" else cut,
        place=place,
        vector=len(tensor.shape) == 1,
        stored=not tensor.tied,
        read=tensor.read,
    )


def _of_group(group: LayerGroup, stage: Stage) -> Iterator[Module]:
    width = stage.hidden_size
    mixing, forward = _mixer(group, width), _feed_forward(group, width)
    first = (mixing or forward)[0].operator if mixing or forward else "qkv"
    found = [*mixing, *forward, *_norms(group, width, first, forward[0].operator if forward else first)]
    for tensor in group.extra:
        size = _elements(tensor)
        vector = len(tensor.shape) == 1
        rows = size if vector else tensor.shape[0]
        found.append(
            Module(
                tensor.name,
                first,
                tensor.part,
                "",
                rows,
                size // rows,
                "whole",
                vector=vector,
                read=tensor.read,
            )
        )
    for module in found:
        yield replace(module, stage=stage.name, layers=group.indices)


def _norms(group: LayerGroup, width: int, first: str, second: str) -> Iterator[Module]:
    """Norms ride with the operator that reads what they make: half with the mixer, half with the feed-forward."""
    total = group.norms.parameters(width)
    if total:
        before = -(-group.norms.count // 2) * total // group.norms.count
        yield _vector("mixer_norms", first, before, part="norm")
        if total > before:
            yield _vector("feed_forward_norms", second, total - before, part="norm")


def _mixer(group: LayerGroup, width: int) -> list[Module]:
    mixer = group.mixer
    if isinstance(mixer, Attention):
        return list(_attention(mixer, width))
    if isinstance(mixer, LatentAttention):
        return list(_latent(mixer, width))
    if isinstance(mixer, StateMixer):
        return list(_state(mixer))
    return []


def _attention(a: Attention, width: int) -> Iterator[Module]:
    query_rows = a.query_heads * a.head_size * (2 if a.output_gate else 1)
    key_rows, value_rows = a.kv_heads * a.head_size, a.kv_heads * a.value_head_size
    source = a.source_size or width
    yield _matrix("query", "qkv", "attention", query_rows, width, "rows", unit=query_rows // a.query_heads)
    if a.kv_projections:
        once = a.source_tokens or 0 if a.span == "cross" else 0
        key = _matrix("key", "qkv", "attention", key_rows, source, "rows", unit=a.head_size)
        yield replace(key, source_tokens=once)
        if not a.value_is_key:
            value = _matrix("value", "qkv", "attention", value_rows, source, "rows", unit=a.value_head_size)
            yield replace(value, source_tokens=once)
    yield _matrix("output", "output", "attention", width, a.query_heads * a.value_head_size, "columns")
    heads: dict[str, tuple[int, int]] = {
        "query": (query_rows, a.query_heads),
        "key": (key_rows, a.kv_heads),
        "value": (value_rows, a.kv_heads),
    }
    for projection in a.biases:
        if projection == "output":
            yield _vector("output_bias", "output", width)
        else:
            rows, count = heads[projection]
            yield _vector(f"{projection}_bias", "qkv", rows, shard="rows", unit=rows // count)
    yield from _attention_vectors(a)


def _attention_vectors(a: Attention) -> Iterator[Module]:
    times = 2 if a.query_key_norm_bias else 1
    if a.query_key_norm == "head":
        norms = (2 if a.kv_projections else 1) * a.head_size * times
        yield _vector("query_key_norm", "qkv", norms, part="norm")
    if a.query_key_norm == "full":
        heads = a.query_heads + (a.kv_heads if a.kv_projections else 0)
        yield _vector("query_key_norm", "qkv", heads * a.head_size * times, part="norm")
    if a.sinks:
        yield _vector("sinks", "attention", a.query_heads, shard="rows")


def _latent(a: LatentAttention, width: int) -> Iterator[Module]:
    head_rows = a.nope_size + a.rope_size
    if a.query_rank is None:
        yield _matrix("query", "qkv", "attention", a.query_heads * head_rows, width, "rows", unit=head_rows)
    else:
        yield _matrix("query_a", "qkv", "attention", a.query_rank, width, "whole")
        yield _vector("query_a_norm", "qkv", a.query_rank, part="norm")
        rows = a.query_heads * head_rows
        yield _matrix("query_b", "qkv", "attention", rows, a.query_rank, "rows", unit=head_rows)
    yield _matrix("kv_a", "qkv", "attention", a.latent_size, width, "whole")
    yield _vector("kv_a_norm", "qkv", a.kv_rank, part="norm")
    unit = a.nope_size + a.value_size
    yield _matrix("kv_b", "qkv", "attention", a.query_heads * unit, a.kv_rank, "rows", unit=unit)
    yield _matrix("output", "output", "attention", width, a.query_heads * a.value_size, "columns")
    if a.biases:
        yield _vector("query_a_bias", "qkv", a.query_rank or a.query_heads * head_rows)
        yield _vector("kv_a_bias", "qkv", a.latent_size)
        yield _vector("output_bias", "output", width)
    if a.indexer is not None:
        columns = a.query_rank or width
        yield _matrix("index_query", "qkv", "attention", a.indexer.heads * a.indexer.head_size, columns, "whole")
        yield _matrix("index_key", "qkv", "attention", a.indexer.head_size, width, "whole")
        yield _matrix("index_weights", "qkv", "attention", a.indexer.heads, width, "whole")
        yield _vector("index_key_norm", "qkv", 2 * a.indexer.head_size, part="norm")


def _state(mixer: StateMixer) -> Iterator[Module]:
    for matrix in mixer.matrices:
        unit = max(1, matrix.rows // mixer.heads) if matrix.shard == "rows" else 1
        yield _matrix(matrix.name, "state", "attention", matrix.rows, matrix.columns, matrix.shard, unit=unit)
    if mixer.vector_parameters:
        yield _vector("state_vectors", "state", mixer.vector_parameters)


def _feed_forward(group: LayerGroup, width: int) -> list[Module]:
    feed_forward = group.feed_forward
    if isinstance(feed_forward, Dense):
        return list(_dense(feed_forward.intermediate_size, feed_forward.gated, feed_forward.bias, width))
    if isinstance(feed_forward, Experts):
        return list(_experts(feed_forward, width))
    return []


def _dense(size: int, gated: bool, bias: bool, width: int) -> Iterator[Module]:
    up = 2 * size if gated else size
    yield _matrix("gate_up" if gated else "up", "gate_up", "mlp", up, width, "rows", unit=up // size)
    yield _matrix("down", "down", "mlp", width, size, "columns")
    if bias:
        yield _vector("up_bias", "gate_up", up, part="mlp", shard="rows", unit=up // size)
        yield _vector("down_bias", "down", width, part="mlp")


def _experts(e: Experts, width: int) -> Iterator[Module]:
    yield _matrix("router", "router", "router", e.experts, width, "whole")
    if e.router_bias:
        yield _vector("router_bias", "router", e.experts, part="router")
    up = 2 * e.intermediate_size if e.gated else e.intermediate_size
    each: dict[str, Any] = {"copies": e.experts, "used": e.experts_per_token}
    unit = up // e.intermediate_size
    yield replace(_matrix("expert_up", "experts", "experts", up, width, "expert_rows", unit=unit), **each)
    yield replace(_matrix("expert_down", "experts", "experts", width, e.intermediate_size, "expert_columns"), **each)
    if e.bias:
        yield replace(_vector("expert_up_bias", "experts", up, part="experts", shard="expert_rows", unit=unit), **each)
        yield replace(_vector("expert_down_bias", "experts", width, part="experts", shard="expert_rows"), **each)
    if size := e.shared_intermediate_size:
        rows = 2 * size if e.gated else size
        yield _matrix("shared_up", "shared_expert", "experts", rows, width, "rows", unit=rows // size)
        yield _matrix("shared_down", "shared_expert", "experts", width, size, "columns")
    if e.shared_gate:
        yield _vector("shared_gate", "shared_expert", width, part="experts")


def _matrix(name: str, operator: str, part: str, rows: int, columns: int, shard: Shard, *, unit: int = 1) -> Module:
    return Module(name, operator, part, "", rows, columns, shard, unit=unit)


def _vector(
    name: str, operator: str, size: int, *, part: str = "attention", shard: Shard = "whole", unit: int = 1
) -> Module:
    return Module(name, operator, part, "", size, 1, shard, unit=unit, vector=True)


def _elements(tensor: Tensor) -> int:
    count = 1
    for size in tensor.shape:
        count *= size
    return count
