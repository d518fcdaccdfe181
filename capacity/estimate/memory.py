"""The memory table evaluated (bytes held, fits) or solved (largest batch, longest context, overflow)."""

from __future__ import annotations

from typing import Any

import numpy as np

from capacity.arrays import ArrayLike, BoolArray, IntArray
from capacity.demand.passes import local_sequences
from capacity.engines.budget import Budget
from capacity.engines.kinds import DeviceKind
from capacity.engines.table import MAX_BYTES, MemoryTable
from capacity.errors import CapacityError
from capacity.estimate.usage import cache_bytes, holds, holds_any, total_bytes
from capacity.formulas import limits
from capacity.inputs import LARGEST_COUNT
from capacity.specs.deployment import Deployment

NO_PEAK = ((0, 0, 0),)


def refuse_overflow(table: MemoryTable, *, batch: ArrayLike, context_tokens: ArrayLike) -> None:
    """Raise if a byte count could exceed 2^62 for any (batch, context).

    It is checked in float64, one bit below int64 to absorb rounding.

    Parameters
    ----------
    table : MemoryTable
        Uses of the memory.
    batch, context_tokens : array_like
        Sequences of the replica, and tokens of each. [sequence], [token]

    Raises
    ------
    CapacityError
        Naming the first pair that asks for too much.
    """
    block_tokens, token, sequence = table.steepest_bytes
    blocks = np.ceil(np.divide(context_tokens, block_tokens)) * block_tokens
    with np.errstate(over="ignore"):  # infinity is too much as well
        needed_bytes = np.asarray(batch, dtype=float) * (blocks * token + sequence)
    if np.any(needed_bytes >= MAX_BYTES):
        largest = np.argmax(needed_bytes)
        pair = (np.broadcast_to(number, needed_bytes.shape).flat[largest] for number in (batch, context_tokens))
        raise CapacityError("batch {} with context {} asks for more than 2^62 bytes".format(*pair))


def heaviest_bytes(table: MemoryTable, deploy: Deployment, *, batch: int, context_tokens: int) -> int:
    """All memory of the device that holds most. [B]

    Parameters
    ----------
    table : MemoryTable
        Uses of the memory.
    deploy : Deployment
        Number formats, parallelism and limits.
    batch : int
        Sequences of the replica. [sequence]
    context_tokens : int
        Tokens of each. [token]

    Returns
    -------
    int
        Per device. [B]
    """
    refuse_overflow(table, batch=batch, context_tokens=context_tokens)
    local = local_sequences(batch, deploy)
    return max([int(total_bytes(kind.totals, sequences=local, context_tokens=context_tokens)) for kind in table.kinds])


def fits(
    table: MemoryTable, budget: Budget, deploy: Deployment, *, batch: ArrayLike, context_tokens: ArrayLike
) -> BoolArray:
    """Whether every rank holds its share of ``batch``, and the deployment allows that many. Shape: broadcast.

    Parameters
    ----------
    table : MemoryTable
        Uses of the memory.
    budget : Budget
        What the engine may plan with on one device.
    deploy : Deployment
        Number formats, parallelism and limits.
    batch, context_tokens : array_like
        Sequences of the replica, and tokens of each. [sequence], [token]
    """
    refuse_overflow(table, batch=batch, context_tokens=context_tokens)
    local = local_sequences(batch, deploy)
    enough: Any = np.less_equal(batch, deploy.max_sequences or LARGEST_COUNT)
    for kind in table.kinds:
        enough = np.logical_and(enough, holds(kind, budget, sequences=local, context_tokens=context_tokens))
    return np.asarray(enough)


def max_batch(table: MemoryTable, budget: Budget, deploy: Deployment, *, context_tokens: ArrayLike) -> IntArray:
    """Sequences one replica can hold at ``context_tokens`` each; 0 when weights alone do not fit. [sequence]

    n fits and n + 1 does not: solved for each kind of device in closed form where it is a plain sum, else by bisection.

    Parameters
    ----------
    table : MemoryTable
        Uses of the memory.
    budget : Budget
        What the engine may plan with on one device.
    deploy : Deployment
        Number formats, parallelism and limits.
    context_tokens : array_like
        Tokens of each. [token]

    Returns
    -------
    ndarray
        In the shape of ``context_tokens``. [sequence]
    """
    refuse_overflow(table, batch=1, context_tokens=context_tokens)
    best: Any = limits.UNBOUNDED
    for kind in table.kinds:
        solve = _linear_batch if kind.is_linear else _searched_batch
        best = np.minimum(best, solve(kind, budget, context_tokens))
    best = np.minimum(best, LARGEST_COUNT) * deploy.data_parallel
    return np.asarray(best if deploy.max_sequences is None else np.minimum(best, deploy.max_sequences))


def max_context(
    table: MemoryTable, budget: Budget, deploy: Deployment, *, batch: ArrayLike, positions: int | None
) -> tuple[IntArray, IntArray]:
    """Longest context of each of ``batch`` sequences, and the longest that memory alone allows. [token]

    The first is 0 where the deployment forbids that many sequences, the second 2^31 where memory never ends it.

    Parameters
    ----------
    table : MemoryTable
        Uses of the memory.
    budget : Budget
        What the engine may plan with on one device.
    deploy : Deployment
        Parallelism and the most sequences allowed.
    batch : array_like
        Sequences of the replica. [sequence]
    positions : int or None
        Positions of the model, which end the context too. [token]

    Returns
    -------
    tuple of ndarray
        Both in the shape of ``batch``. [token]
    """
    refuse_overflow(table, batch=batch, context_tokens=1)
    best: Any = limits.UNBOUNDED
    local = local_sequences(batch, deploy)
    for kind in table.kinds:
        solve = _linear_context if kind.is_linear else _searched_context
        best = np.minimum(best, solve(kind, budget, local))
    in_memory = np.minimum(best, LARGEST_COUNT)
    allowed = np.less_equal(batch, deploy.max_sequences or LARGEST_COUNT)
    ended = np.where(allowed, np.minimum(in_memory, positions or LARGEST_COUNT), 0)
    return ended, np.asarray(in_memory)


def _linear_batch(kind: DeviceKind, budget: Budget, context_tokens: ArrayLike) -> IntArray:
    totals, best = kind.totals, np.asarray(limits.UNBOUNDED)
    free_bytes = budget.planned_bytes(kind.loaded_bytes) - totals.fixed_bytes
    each = totals.sequence_bytes + cache_bytes(totals, sequences=1, context_tokens=context_tokens)
    for token_bytes, sequence_bytes, _ in totals.all_peaks or NO_PEAK:
        fitting = limits.max_rank_batch(
            free_bytes=free_bytes,
            sequence_bytes=each,
            token_activation_bytes=token_bytes,
            sequence_activation_bytes=sequence_bytes,
            tokens=context_tokens,
            chunk_tokens=totals.chunk_tokens,
        )
        best = np.minimum(best, fitting)
    return best


def _linear_context(kind: DeviceKind, budget: Budget, sequences: ArrayLike) -> IntArray:
    totals, best = kind.totals, np.asarray(limits.UNBOUNDED)
    free_bytes = budget.planned_bytes(kind.loaded_bytes) - totals.fixed_bytes
    token_sizes = [cache.bytes // cache.rule.block_tokens for cache in totals.caches]
    windows = [cache.rule.window_tokens + cache.rule.extra_tokens for cache in totals.caches]
    for token_bytes, sequence_bytes, _ in totals.all_peaks or NO_PEAK:
        fitting = limits.max_tokens(
            free_bytes=free_bytes,
            rank_batch=sequences,
            layers=[1] * len(windows),
            token_bytes=token_sizes,
            windows=windows,
            block_tokens=totals.caches[0].rule.block_tokens if totals.caches else 1,
            constant_bytes=totals.sequence_bytes + sequence_bytes,
            token_activation_bytes=token_bytes,
            chunk_tokens=totals.chunk_tokens,
        )
        best = np.minimum(best, fitting)
    return best


def _searched_batch(kind: DeviceKind, budget: Budget, context_tokens: ArrayLike) -> IntArray:
    def fitting(sequences: IntArray) -> BoolArray:
        return holds_any(kind, budget, sequences=sequences, context_tokens=context_tokens)

    return limits.largest(fitting, shape=np.shape(context_tokens), upper=LARGEST_COUNT)


def _searched_context(kind: DeviceKind, budget: Budget, sequences: ArrayLike) -> IntArray:
    def fitting(context_tokens: IntArray) -> BoolArray:
        return holds_any(kind, budget, sequences=sequences, context_tokens=context_tokens)

    return limits.largest(fitting, shape=np.shape(sequences), upper=LARGEST_COUNT)
