"""How what sequences keep is held: policies that make the rows of key-value caches and states."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from capacity.demand.memory import CacheRow, cache_rows, sequence_state_bytes
from capacity.engines.grouped_cache import grouped_pages
from capacity.engines.table import MemoryRow
from capacity.specs.deployment import Deployment
from capacity.specs.engine import EngineSpec
from capacity.specs.model import ModelSpec

Policy = Callable[[EngineSpec, ModelSpec, Deployment], Iterator[MemoryRow]]
CACHE, WINDOW_CACHE, STATE = "KV cache", "KV cache of windows", "state"


def paged(engine: EngineSpec, model: ModelSpec, deploy: Deployment) -> Iterator[MemoryRow]:
    """Each sequence holds whole blocks of its tokens; a layer with a window holds min(context, window) of them."""
    yield from _in_blocks(model, deploy, deploy.block_tokens)
    yield from _states(engine, model, deploy)


def growing_buffer(engine: EngineSpec, model: ModelSpec, deploy: Deployment) -> Iterator[MemoryRow]:
    """Each sequence, the session of a robot, holds one buffer that grows by the token."""
    yield from _in_blocks(model, deploy, 1)
    yield from _states(engine, model, deploy)


def paged_whole(engine: EngineSpec, model: ModelSpec, deploy: Deployment) -> Iterator[MemoryRow]:
    """Whole blocks of all tokens in every layer: windows save nothing, as their blocks may be read again."""
    for row in _cached(model, deploy):
        yield _blocks_of(row, CACHE, deploy.block_tokens, window_tokens=0)
    yield from _states(engine, model, deploy)


def pools_by_kind(engine: EngineSpec, model: ModelSpec, deploy: Deployment) -> Iterator[MemoryRow]:
    """Tokens of full and of sliding layers in pools of their own, which the engine sizes by a ratio, not by windows.

    A sequence holds all its tokens in one and its windows in the other.
    """
    for row in _cached(model, deploy):
        name = WINDOW_CACHE if row.layer.window else CACHE
        yield _blocks_of(row, name, deploy.block_tokens, window_tokens=row.layer.window)
    yield from _states(engine, model, deploy)


def cells(engine: EngineSpec, model: ModelSpec, deploy: Deployment) -> Iterator[MemoryRow]:
    """A cache of cells for each slot, reserved from the start: a slot has its context, or window and pass, rounded up.

    References
    ----------
    llama.cpp, ``llama_kv_cache`` and ``llama_kv_cache_iswa`` without a unified cache: cells are padded to 256.
    """
    slots, cell_tokens = deploy.max_sequences or 1, engine.cache_rules.cell_tokens
    for row in _cached(model, deploy):
        window = row.layer.window
        yield MemoryRow(
            WINDOW_CACHE if window else CACHE,
            row.rank,
            blocks="preallocated",
            block_bytes=row.layers * row.layer.token_bytes * cell_tokens,
            block_tokens=cell_tokens,
            window_tokens=window,
            extra_tokens=deploy.prefill_chunk_tokens if window else 0,
            slots=slots,
        )
    for rank, size in enumerate(sequence_state_bytes(model, deploy, engine.cache_rules.spared_columns)):
        if size:
            yield MemoryRow(STATE, rank, fixed_bytes=slots * size)


def unified_cells(engine: EngineSpec, model: ModelSpec, deploy: Deployment) -> Iterator[MemoryRow]:
    """One buffer of cells for all slots: windows of all of them and one pass, or all contexts.

    References
    ----------
    llama.cpp, ``llama_kv_cache_iswa`` with a unified cache.
    """
    for row in cells(engine, model, deploy):
        unified = row.name == WINDOW_CACHE
        yield replace(row, blocks="unified") if unified else row


def _in_blocks(model: ModelSpec, deploy: Deployment, block_tokens: int) -> Iterator[MemoryRow]:
    for row in _cached(model, deploy):
        yield _blocks_of(row, CACHE, block_tokens, window_tokens=row.layer.window)


def _blocks_of(row: CacheRow, name: str, block_tokens: int, *, window_tokens: int) -> MemoryRow:
    return MemoryRow(
        name,
        row.rank,
        blocks="windowed" if window_tokens else "all",
        block_bytes=row.layers * row.layer.token_bytes * block_tokens,
        block_tokens=block_tokens,
        window_tokens=window_tokens,
    )


def _cached(model: ModelSpec, deploy: Deployment) -> Iterator[CacheRow]:
    return (row for row in cache_rows(model, deploy) if row.layer.token_bytes)


def _states(engine: EngineSpec, model: ModelSpec, deploy: Deployment) -> Iterator[MemoryRow]:
    for rank, size in enumerate(sequence_state_bytes(model, deploy, engine.cache_rules.spared_columns)):
        if size:
            yield MemoryRow(STATE, rank, sequence_bytes=size)


CACHES: dict[str, Policy] = {
    "paged": paged,
    "growing_buffer": growing_buffer,
    "grouped_pages": grouped_pages,
    "paged_whole": paged_whole,
    "pools_by_kind": pools_by_kind,
    "cells": cells,
    "unified_cells": unified_cells,
}
