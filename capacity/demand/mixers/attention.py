"""Softmax attention: its matrices, key-value cache, query-key pairs, activations and how it shards.

Query heads divide over tensor-parallel ranks; KV heads divide too, or are replicated where there are more ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from capacity.demand.costs import LayerCache, LayerFormats, OperatorCost
from capacity.demand.weights import Module, matrix, vector
from capacity.errors import CapacityError
from capacity.specs.model import Attention
from capacity.units import NumberFormat

OVERRIDE_PART = "kv_cache"
SUMS = 1


def weights(a: Attention, width: int) -> Iterator[Module]:
    """Query, key, value and output matrices with their biases, norms and sinks."""
    query_rows = a.query_heads * a.head_size * (2 if a.output_gate else 1)
    yield matrix("query", "qkv", "attention", query_rows, width, "rows", unit=query_rows // a.query_heads)
    yield from _key_and_value(a, width)
    yield matrix("output", "output", "attention", width, a.query_heads * a.value_head_size, "columns")
    yield from _biases(a, width, query_rows)
    yield from _norms_and_sinks(a)


def _key_and_value(a: Attention, width: int) -> Iterator[Module]:
    if not a.kv_projections:
        return
    source = a.source_size or width
    once = a.source_tokens or 0 if a.span == "cross" else 0
    key = matrix("key", "qkv", "attention", a.kv_heads * a.head_size, source, "rows", unit=a.head_size)
    yield replace(key, source_tokens=once)
    if not a.value_is_key:
        rows = a.kv_heads * a.value_head_size
        value = matrix("value", "qkv", "attention", rows, source, "rows", unit=a.value_head_size)
        yield replace(value, source_tokens=once)


def _biases(a: Attention, width: int, query_rows: int) -> Iterator[Module]:
    heads = {
        "query": (query_rows, a.query_heads),
        "key": (a.kv_heads * a.head_size, a.kv_heads),
        "value": (a.kv_heads * a.value_head_size, a.kv_heads),
    }
    for projection in a.biases:
        if projection == "output":
            yield vector("output_bias", "output", width)
        else:
            rows, count = heads[projection]
            yield vector(f"{projection}_bias", "qkv", rows, shard="rows", unit=rows // count)


def _norms_and_sinks(a: Attention) -> Iterator[Module]:
    times = 2 if a.query_key_norm_bias else 1
    if a.query_key_norm == "head":
        norms = (2 if a.kv_projections else 1) * a.head_size * times
        yield vector("query_key_norm", "qkv", norms, part="norm")
    if a.query_key_norm == "full":
        heads = a.query_heads + (a.kv_heads if a.kv_projections else 0)
        yield vector("query_key_norm", "qkv", heads * a.head_size * times, part="norm")
    if a.sinks:
        yield vector("sinks", "attention", a.query_heads, shard="rows")


def costs(a: Attention, formats: LayerFormats, *, layers: int, tensor_parallel: int) -> Iterator[OperatorCost]:
    """Scores and weighted values: 2 (d_k + d_v) FLOP per head and query-key pair.

    Parameters
    ----------
    a : Attention
        The mixer.
    formats : LayerFormats
        Formats of cache and states.
    layers : int
        Equal layers. [layer]
    tensor_parallel : int
        Ranks that divide the heads. [1]
    """
    pair = 2.0 * (a.query_heads / tensor_parallel) * (a.head_size + a.value_head_size) * layers
    yield OperatorCost(
        operator="attention",
        arithmetic=formats.attention,
        layers=layers,
        launches=layers,
        key_flop=pair,
        expanded_key_flop=pair,
        key_bytes=layers * _token_bits(a, formats.cache, tensor_parallel) / 8,
        window=a.window or 0,
        source_tokens=a.source_tokens or 0 if a.span == "cross" else 0,
        chunked=a.span == "chunked",
    )


def _token_bits(a: Attention, stored: NumberFormat, tensor_parallel: int) -> int:
    """Key and value of one token on one device. [bit]"""
    heads = max(1, a.kv_heads // tensor_parallel)
    return stored.cache_bits(heads * a.head_size) + stored.cache_bits(heads * a.value_head_size)


def cache(a: Attention, formats: LayerFormats, *, tensor_parallel: int) -> LayerCache:
    """Keys and values of the tokens in reach, or of the source of a cross attention."""
    if not a.keeps_cache:
        return LayerCache()
    token_bytes = -(-_token_bits(a, formats.cache, tensor_parallel) // 8)
    if a.span == "cross":
        return LayerCache(constant_bytes=token_bytes * (a.source_tokens or 0))
    return LayerCache(token_bytes, window=a.window or 0)


def cache_makers(a: Attention) -> frozenset[str]:
    """The matrices whose outputs the layer keeps for later tokens."""
    return frozenset(("key", "value"))


def state_bits(a: Attention, formats: LayerFormats, *, tensor_parallel: int, spared_columns: int = 0) -> int:
    """No recurrent state.

    Parameters
    ----------
    a : Attention
        The mixer.
    formats : LayerFormats
        Formats of the states.
    tensor_parallel : int
        Ranks that divide the heads. [1]
    spared_columns : int
        Columns of the window of a convolution that an engine does not keep between passes. [token]

    Returns
    -------
    int
        0. [bit]
    """
    return 0


def activation_tensors(a: Attention, *, tensor_parallel: int) -> dict[str, int]:
    """What is alive per token at the end of attention, by name. [element]"""
    kv_heads = max(1, a.kv_heads // tensor_parallel)
    query_heads = a.query_heads // tensor_parallel
    query, key, value = query_heads * a.head_size, kv_heads * a.head_size, kv_heads * a.value_head_size
    attended = query_heads * a.value_head_size
    return {
        "query": query,
        "key": key,
        "value": value,
        "rotated query": query,
        "rotated key": key,
        "attended values": attended,
    }


def check_sharding(a: Attention, model: str, *, tensor_parallel: int) -> None:
    """Refuse a degree that divides no heads.

    Raises
    ------
    CapacityError
        If it does not divide the query heads, or neither divides the KV heads nor is divided by them.
    """
    if a.query_heads % tensor_parallel:
        raise CapacityError(
            f"tensor_parallel {tensor_parallel} must divide the {a.query_heads} attention heads of {model}"
        )
    if a.kv_heads % tensor_parallel and tensor_parallel % a.kv_heads:
        raise CapacityError(
            f"tensor_parallel {tensor_parallel} and the {a.kv_heads} KV heads of {model}: one must divide the other"
        )


def rotary_size(a: Attention) -> int:
    """Columns of a table of rotary positions: the whole head, as engines keep it. [element]"""
    return a.head_size


def is_ordinary(a: Attention) -> bool:
    """Whether the reference decoder has this mixer: attention over all or over the last keys."""
    return a.span in ("full", "sliding")


def summary(a: Attention) -> str:
    """The mixer in a few words."""
    window = f", window {a.window:,}" if a.window else ""
    return f"{a.span} attention, {a.query_heads} heads, {a.kv_heads} KV heads of {a.head_size}{window}"
