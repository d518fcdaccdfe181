"""Rows of the memory table evaluated: bytes that n sequences of a context take of a device, and whether they fit it."""

from __future__ import annotations

from typing import Any

import numpy as np

from capacity.arrays import ArrayLike, BoolArray
from capacity.demand.passes import tokens_in_flight
from capacity.engines.budget import Budget
from capacity.engines.kinds import CacheBlocks, DeviceKind, PoolTotals, RowTotals
from capacity.formulas.blocks import BLOCKS

_BEYOND_MEMORY = 2.0**60  # above every capacity; beyond it whole numbers may have wrapped [B]


def total_bytes(totals: RowTotals, *, sequences: ArrayLike, context_tokens: ArrayLike) -> Any:
    """All bytes of some rows on a device that holds ``sequences``.

    Parameters
    ----------
    totals : RowTotals
        Rows of one kind of device, added up.
    sequences, context_tokens : array_like
        Sequences of this device, and tokens of each. [sequence], [token]

    Returns
    -------
    ndarray
        In the broadcast shape of the numbers. [B]
    """
    total = cache_bytes(totals, sequences=sequences, context_tokens=context_tokens)
    total = total + (totals.fixed_bytes + np.multiply(sequences, totals.sequence_bytes))
    return total + activation_bytes(totals, sequences=sequences, context_tokens=context_tokens)


def cache_bytes(totals: RowTotals, *, sequences: ArrayLike, context_tokens: ArrayLike) -> Any:
    """Key-value caches of ``sequences``, in whole blocks.

    Parameters
    ----------
    totals : RowTotals
        Rows of one kind of device, added up.
    sequences, context_tokens : array_like
        Sequences of this device, and tokens of each. [sequence], [token]

    Returns
    -------
    ndarray
        In the broadcast shape of the numbers. [B]
    """
    total: Any = np.zeros(np.broadcast_shapes(np.shape(sequences), np.shape(context_tokens)), dtype=np.int64)
    for cache in totals.caches:
        total = total + held_bytes(cache, sequences=sequences, context_tokens=context_tokens)
    return total


def held_bytes(cache: CacheBlocks, *, sequences: ArrayLike, context_tokens: ArrayLike) -> Any:
    """One cache of ``sequences``, in whole blocks.

    Parameters
    ----------
    cache : CacheBlocks
        A row of the memory table.
    sequences, context_tokens : array_like
        Sequences of this device, and tokens of each. [sequence], [token]

    Returns
    -------
    ndarray
        In the broadcast shape of the numbers. [B]
    """
    return BLOCKS[cache.blocks](sequences, context_tokens, cache.rule) * cache.bytes


def activation_bytes(totals: RowTotals, *, sequences: ArrayLike, context_tokens: ArrayLike) -> Any:
    """Activation bytes of a pass: its tokens in flight, and the largest of each set of alternatives.

    Parameters
    ----------
    totals : RowTotals
        Rows of one kind of device, added up.
    sequences, context_tokens : array_like
        Sequences of this device, and tokens of each. [sequence], [token]

    Returns
    -------
    ndarray
        In the broadcast shape of the numbers. [B]
    """
    in_flight = tokens_in_flight(sequences, context_tokens, chunk_tokens=totals.chunk_tokens)
    total: Any = in_flight * totals.in_flight_bytes if totals.in_flight_bytes else 0
    for peaks in totals.alternatives:
        largest: Any = 0
        for token_bytes, sequence_bytes, fixed_bytes in peaks:
            peak = in_flight * token_bytes
            if sequence_bytes or fixed_bytes:
                peak = peak + (np.multiply(sequences, sequence_bytes) + fixed_bytes)
            largest = np.maximum(largest, peak)
        total = total + largest
    return total


def holds(kind: DeviceKind, budget: Budget, *, sequences: ArrayLike, context_tokens: ArrayLike) -> BoolArray:
    """Whether a device holds ``sequences``: its rows within the budget, each pool its own, the remainder the others.

    Parameters
    ----------
    kind : DeviceKind
        The rows of one kind of device.
    budget : Budget
        What the engine may plan with.
    sequences, context_tokens : array_like
        Sequences of this device, and tokens of each. [sequence], [token]

    Returns
    -------
    ndarray
        In the broadcast shape of the numbers.
    """
    at = {"sequences": sequences, "context_tokens": context_tokens}
    planned = budget.planned_bytes(kind.loaded_bytes)
    rest_bytes = planned - total_bytes(kind.before_pools, **at)
    enough: Any = rest_bytes >= 0
    for pool in kind.pools:
        enough = enough & _pool_holds(pool, rest_bytes, **at)
    if kind.outside_budget is not None:
        enough = enough & (total_bytes(kind.outside_budget, **at) <= budget.outside_bytes(planned))
    return np.asarray(enough)


def holds_any(kind: DeviceKind, budget: Budget, *, sequences: ArrayLike, context_tokens: ArrayLike) -> BoolArray:
    """`holds` for numbers of any size: compared in float64 where int64 would overflow.

    Parameters
    ----------
    kind : DeviceKind
        The rows of one kind of device.
    budget : Budget
        What the engine may plan with.
    sequences, context_tokens : array_like
        Sequences of this device, and tokens of each. [sequence], [token]

    Returns
    -------
    ndarray
        In the broadcast shape of the numbers.
    """
    n, context = np.asarray(sequences, dtype=float), np.asarray(context_tokens, dtype=float)
    with np.errstate(over="ignore"):
        in_memory = total_bytes(kind.totals, sequences=n, context_tokens=context) < _BEYOND_MEMORY
        return np.asarray(in_memory & holds(kind, budget, sequences=sequences, context_tokens=context_tokens))


def _pool_holds(pool: PoolTotals, rest_bytes: Any, *, sequences: ArrayLike, context_tokens: ArrayLike) -> Any:
    at = {"sequences": sequences, "context_tokens": context_tokens}
    share_bytes = rest_bytes * pool.pool.parts // pool.all_parts
    up = pool.pool.rounding == "ceil"
    if not pool.by_ratio:
        return total_bytes(pool.totals, **at) <= _units(share_bytes, pool.unit_bytes, up=up) * pool.unit_bytes
    largest = max(row.ratio for row in pool.by_ratio)
    bundle_bytes = sum(row.ratio * row.block_bytes for row in pool.by_ratio)
    blocks = _units(share_bytes * largest, bundle_bytes, up=up)  # of the row with the largest ratio
    enough: Any = True
    for row in pool.by_ratio:
        enough = enough & (total_bytes(row.totals, **at) <= blocks * row.ratio // largest * row.block_bytes)
    return enough


def _units(size: Any, unit: int, *, up: bool) -> Any:
    return -(-size // unit) if up else size // unit
