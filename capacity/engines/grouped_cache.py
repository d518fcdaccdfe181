"""Pages of one size for layers of several kinds: the cache manager of vLLM, whose layers share tensors by groups."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from capacity.demand.memory import cache_rows, state_rows
from capacity.engines.table import MemoryRow
from capacity.specs.deployment import Deployment
from capacity.specs.engine import EngineSpec
from capacity.specs.model import ModelSpec

CACHE, STATE = "KV cache", "state"


@dataclass(frozen=True, slots=True)
class LayerKind:
    """Layers of a rank that keep the same: ``token_bytes`` of each token, at most ``window`` of them (0: all), or else
    ``state_bytes`` of each sequence. [layer], [B], [token]
    """

    layers: int
    token_bytes: int = 0
    window: int = 0
    state_bytes: int = 0


def grouped_pages(engine: EngineSpec, model: ModelSpec, deploy: Deployment) -> Iterator[MemoryRow]:
    """Groups of as many layers each, of one kind; a block of a group is a page of each of its layers.

    Layers that all keep their whole context are one group. Otherwise all pages have one size: layers that keep less per
    token have longer blocks, and where there are states, blocks are so long that a page of attention holds a state; a
    group that is not full is padded. A sequence holds in each group of full attention the blocks of its context, in one
    of windows those of window - 1 and the largest pass, and one more, and in one of states some pages.

    References
    ----------
    vLLM 0.11 and 0.25, ``vllm/v1/core/kv_cache_utils.py`` and ``kv_cache_interface.py``: groups of one page size, the
    ``max_memory_usage_bytes`` of each kind of layer.
    """
    for rank in range(deploy.pipeline_parallel):
        kinds = kinds_of_rank(engine, model, deploy, rank)
        if kinds:
            yield from _rows(engine, kinds, deploy, rank)
    for row in cache_rows(model, deploy):
        if row.layer.constant_bytes:
            yield MemoryRow(STATE, row.rank, sequence_bytes=row.layers * row.layer.constant_bytes)


def kinds_of_rank(engine: EngineSpec, model: ModelSpec, deploy: Deployment, rank: int) -> tuple[LayerKind, ...]:
    """The kinds of layers of a pipeline rank, caches before states."""
    caches = [
        LayerKind(row.layers, row.layer.token_bytes, row.layer.window)
        for row in cache_rows(model, deploy)
        if row.rank == rank and row.layer.token_bytes
    ]
    states = [
        LayerKind(row.layers, state_bytes=-(-row.layer_bits // 8))
        for row in state_rows(model, deploy, engine.cache_rules.spared_columns)
        if row.rank == rank
    ]
    return (*caches, *states)


def page_bytes(kinds: tuple[LayerKind, ...], block_tokens: int) -> int:
    """The one size of all pages: a block of the attention that keeps most, lengthened until it holds a state. [B]"""
    token_bytes = max(kind.token_bytes for kind in kinds)
    state_bytes = max(kind.state_bytes for kind in kinds)
    if not token_bytes:
        return state_bytes
    blocks = max(1, -(-state_bytes // (block_tokens * token_bytes)))
    return blocks * block_tokens * token_bytes


def group_layers(kinds: tuple[LayerKind, ...], spread: float) -> int:
    """Layers of one group: the count of the rarer kind, or of the commoner where that is little more. [layer]"""
    rarer, commoner = min(kind.layers for kind in kinds), max(kind.layers for kind in kinds)
    return commoner if commoner < spread * rarer else rarer


def _rows(engine: EngineSpec, kinds: tuple[LayerKind, ...], deploy: Deployment, rank: int) -> Iterator[MemoryRow]:
    if not any(kind.window or kind.state_bytes for kind in kinds):
        yield _one_group(kinds, deploy, rank)
        return
    page, rules = page_bytes(kinds, deploy.block_tokens), engine.cache_rules
    layers = group_layers(kinds, rules.group_spread)
    for kind in kinds:
        for _ in range(-(-kind.layers // layers)):
            if kind.state_bytes:
                yield MemoryRow(STATE, rank, sequence_bytes=rules.state_pages * layers * page)
            else:
                yield _cache_row(kind, deploy, rank, page=page, layers=layers)


def _one_group(kinds: tuple[LayerKind, ...], deploy: Deployment, rank: int) -> MemoryRow:
    """Layers that all keep their whole context are one group, whatever each keeps per token."""
    token_bytes = sum(kind.layers * kind.token_bytes for kind in kinds)
    block = deploy.block_tokens
    return MemoryRow(CACHE, rank, blocks="all", block_bytes=token_bytes * block, block_tokens=block)


def _cache_row(kind: LayerKind, deploy: Deployment, rank: int, *, page: int, layers: int) -> MemoryRow:
    return MemoryRow(
        CACHE,
        rank,
        blocks="windowed" if kind.window else "all",
        block_bytes=layers * page,
        block_tokens=page // kind.token_bytes,
        window_tokens=max(kind.window - 1, 0),
        extra_tokens=deploy.prefill_chunk_tokens if kind.window else 0,
        spare_blocks=1 if kind.window else 0,
    )
