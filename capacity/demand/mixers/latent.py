"""Multi-head latent attention: matrices, cache of latents, pairs absorbed and expanded, activations, sharding.

Heads divide over tensor-parallel ranks; the latent, its projections and the indexer are whole on every rank.
Per query-key pair and head, the absorbed form of decode takes 2 (2 r + rope) FLOP on the latent, the expanded form
of prefill 2 (nope + rope + v) on keys and values.
"""

from __future__ import annotations

from collections.abc import Iterator

from capacity.demand.costs import LayerCache, LayerFormats, OperatorCost
from capacity.demand.weights import Module, matrix, vector
from capacity.errors import CapacityError
from capacity.specs.model import Indexer, LatentAttention

OVERRIDE_PART = "kv_cache"
SUMS = 1


def weights(a: LatentAttention, width: int) -> Iterator[Module]:
    """Down and up projections of query and latent, output, biases, and the indexer's projections."""
    head_rows = a.nope_size + a.rope_size
    query_rows = a.query_heads * head_rows
    if a.query_rank is None:
        yield matrix("query", "qkv", "attention", query_rows, width, "rows", unit=head_rows)
    else:
        yield matrix("query_a", "qkv", "attention", a.query_rank, width, "whole")
        yield vector("query_a_norm", "qkv", a.query_rank, part="norm")
        yield matrix("query_b", "qkv", "attention", query_rows, a.query_rank, "rows", unit=head_rows)
    yield matrix("kv_a", "qkv", "attention", a.latent_size, width, "whole")
    yield vector("kv_a_norm", "qkv", a.kv_rank, part="norm")
    unit = a.nope_size + a.value_size
    yield matrix("kv_b", "qkv", "attention", a.query_heads * unit, a.kv_rank, "rows", unit=unit)
    yield matrix("output", "output", "attention", width, a.query_heads * a.value_size, "columns")
    if a.biases:
        yield vector("query_a_bias", "qkv", a.query_rank or query_rows)
        yield vector("kv_a_bias", "qkv", a.latent_size)
        yield vector("output_bias", "output", width)
    if a.indexer is not None:
        yield from _indexer_weights(a.indexer, a.query_rank or width, width)


def _indexer_weights(indexer: Indexer, query_columns: int, width: int) -> Iterator[Module]:
    yield matrix("index_query", "qkv", "attention", indexer.heads * indexer.head_size, query_columns, "whole")
    yield matrix("index_key", "qkv", "attention", indexer.head_size, width, "whole")
    yield matrix("index_weights", "qkv", "attention", indexer.heads, width, "whole")
    yield vector("index_key_norm", "qkv", 2 * indexer.head_size, part="norm")


def costs(a: LatentAttention, formats: LayerFormats, *, layers: int, tensor_parallel: int) -> Iterator[OperatorCost]:
    """Attention on the latent (of the selected tokens, with an indexer), and the indexer over all tokens.

    Parameters
    ----------
    a : LatentAttention
        The mixer.
    formats : LayerFormats
        Formats of cache and states.
    layers : int
        Equal layers. [layer]
    tensor_parallel : int
        Ranks that divide the heads. [1]
    """
    heads = a.query_heads / tensor_parallel
    yield OperatorCost(
        operator="attention",
        arithmetic=formats.attention,
        layers=layers,
        launches=layers,
        key_flop=2.0 * heads * (2 * a.kv_rank + a.rope_size) * layers,
        expanded_key_flop=2.0 * heads * (a.nope_size + a.rope_size + a.value_size) * layers,
        key_bytes=layers * formats.cache.cache_bits(a.latent_size) / 8,
        window=a.indexer.top_k if a.indexer else 0,
    )
    if a.indexer is not None:
        pair = 2.0 * a.indexer.heads * a.indexer.head_size * layers
        yield OperatorCost(
            operator="attention",
            arithmetic=formats.attention,
            layers=layers,
            launches=layers,
            key_flop=pair,
            expanded_key_flop=pair,
            key_bytes=layers * formats.cache.cache_bits(a.indexer.head_size) / 8,
        )


def cache(a: LatentAttention, formats: LayerFormats, *, tensor_parallel: int) -> LayerCache:
    """One latent per token, and the indexer's key, replicated over tensor-parallel ranks."""
    bits = formats.cache.cache_bits(a.latent_size)
    bits += formats.cache.cache_bits(a.indexer.head_size) if a.indexer else 0
    return LayerCache(-(-bits // 8), latent=True)


def cache_makers(a: LatentAttention) -> frozenset[str]:
    """The matrices whose outputs the layer keeps for later tokens."""
    return frozenset(("kv_a", "index_key"))


def state_bits(a: LatentAttention, formats: LayerFormats, *, tensor_parallel: int, spared_columns: int = 0) -> int:
    """No recurrent state.

    Parameters
    ----------
    a : LatentAttention
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


def activation_tensors(a: LatentAttention, *, tensor_parallel: int) -> dict[str, int]:
    """What is alive per token at the end of attention, by name: latents are expanded, as in prefill. [element]"""
    heads = -(-a.query_heads // tensor_parallel)
    head, values = heads * (a.nope_size + a.rope_size), heads * a.value_size
    return {
        "compressed query": a.query_rank or 0,
        "latent": a.latent_size,
        "query": head,
        "key": head,
        "value": values,
        "attended values": values,
    }


def check_sharding(a: LatentAttention, model: str, *, tensor_parallel: int) -> None:
    """Refuse a degree that does not divide the heads.

    Raises
    ------
    CapacityError
        If it does not.
    """
    if a.query_heads % tensor_parallel:
        raise CapacityError(
            f"tensor_parallel {tensor_parallel} must divide the {a.query_heads} attention heads of {model}"
        )


def rotary_size(a: LatentAttention) -> int:
    """Columns of a table of rotary positions: the rotary key. [element]"""
    return a.rope_size


def is_ordinary(a: LatentAttention) -> bool:
    """Whether the reference decoder has this mixer."""
    return False


def summary(a: LatentAttention) -> str:
    """The mixer in a few words."""
    return f"latent attention, {a.query_heads} heads, latent {a.latent_size}"
