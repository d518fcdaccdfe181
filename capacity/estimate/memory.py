"""The memory table evaluated (bytes held, fits) or solved (largest batch, longest context, overflow)."""

from __future__ import annotations

from typing import Any

import numpy as np

from capacity.arrays import ArrayLike, BoolArray, IntArray
from capacity.demand.passes import local_sequences
from capacity.engines.table import MAX_BYTES, MemoryTable, RankMemory
from capacity.errors import CapacityError
from capacity.formulas import limits, paging
from capacity.inputs import LARGEST_COUNT
from capacity.specs.deployment import Deployment


def refuse_overflow(table: MemoryTable, *, batch: ArrayLike, context_tokens: ArrayLike) -> None:
    """Raise if a byte count could exceed 2^62 for any (batch, context).

    It is checked in float64, one bit below int64 to absorb rounding.

    Parameters
    ----------
    table : MemoryTable
        Uses of the memory.
    batch : array_like
        Sequences of the replica. [sequence]
    context_tokens : array_like
        Tokens of each. [token]

    Raises
    ------
    CapacityError
        Naming the first pair that asks for too much.
    """
    blocks = np.ceil(np.divide(context_tokens, table.block_tokens)) * table.block_tokens
    token, sequence = table.steepest_bytes
    asked = np.asarray(batch, dtype=float) * (blocks * token + sequence)
    if np.any(asked >= MAX_BYTES):
        most = np.argmax(asked)
        pair = (np.broadcast_to(number, asked.shape).flat[most] for number in (batch, context_tokens))
        raise CapacityError("batch {} with context {} asks for more than 2^62 bytes".format(*pair))


def sequence_cache_bytes(rank: RankMemory, context_tokens: ArrayLike, *, block_tokens: int = 1) -> Any:
    """Key-value cache of one sequence on a device of one pipeline rank, in the shape of ``context_tokens``. [B]

    Parameters
    ----------
    rank : RankMemory
        The rows of one pipeline rank, added up.
    context_tokens : array_like
        Tokens of each. [token]
    block_tokens : int
        Tokens of a cache block. [token]

    Returns
    -------
    ndarray
        In the shape of ``context_tokens``. [B]
    """
    held: Any = np.zeros(np.shape(context_tokens), dtype=np.int64)
    for size, window in zip(rank.cache_token_bytes, rank.window_tokens, strict=True):
        held = held + size * paging.blocked_tokens(context_tokens, window, block_tokens)
    return held


def tokens_in_flight(table: MemoryTable, *, sequences: ArrayLike, context_tokens: ArrayLike) -> IntArray:
    """Tokens of one pass on one device: at most a prefill chunk, never fewer than one per sequence. [token]

    Parameters
    ----------
    table : MemoryTable
        Uses of the memory.
    sequences : array_like
        Sequences of this device. [sequence]
    context_tokens : array_like
        Tokens of each. [token]

    Returns
    -------
    ndarray
        In the broadcast shape of both. [token]
    """
    local = np.asarray(sequences)
    return np.maximum(np.minimum(local * np.asarray(context_tokens), table.chunk_tokens), local)


def activation_bytes(table: MemoryTable, rank: RankMemory, *, sequences: ArrayLike, context_tokens: ArrayLike) -> Any:
    """Activation peak of one device: the largest of its alternatives. Shape: broadcast. [B]

    Parameters
    ----------
    table : MemoryTable
        Uses of the memory.
    rank : RankMemory
        The rows of one pipeline rank, added up.
    sequences : array_like
        Sequences of this device. [sequence]
    context_tokens : array_like
        Tokens of each. [token]

    Returns
    -------
    ndarray
        In the broadcast shape of the numbers. [B]
    """
    in_flight = tokens_in_flight(table, sequences=sequences, context_tokens=context_tokens)
    peak: Any = 0
    for token_bytes, sequence_bytes in rank.peaks:
        peak = np.maximum(peak, in_flight * token_bytes + np.multiply(sequences, sequence_bytes))
    return peak


def total_bytes(table: MemoryTable, rank: RankMemory, *, sequences: ArrayLike, context_tokens: ArrayLike) -> Any:
    """All memory of one device that holds ``sequences``. Shape: broadcast. [B]

    Parameters
    ----------
    table : MemoryTable
        Uses of the memory.
    rank : RankMemory
        The rows of one pipeline rank, added up.
    sequences : array_like
        Sequences of this device. [sequence]
    context_tokens : array_like
        Tokens of each. [token]

    Returns
    -------
    ndarray
        In the broadcast shape of the numbers. [B]
    """
    each = rank.sequence_bytes + sequence_cache_bytes(rank, context_tokens, block_tokens=table.block_tokens)
    peak = activation_bytes(table, rank, sequences=sequences, context_tokens=context_tokens)
    return rank.fixed_bytes + np.multiply(sequences, each) + peak


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
    return max(
        [int(total_bytes(table, rank, sequences=local, context_tokens=context_tokens)) for rank in table.by_rank]
    )


def fits(
    table: MemoryTable, budget_bytes: int, deploy: Deployment, *, batch: ArrayLike, context_tokens: ArrayLike
) -> BoolArray:
    """Whether every rank holds its share of ``batch``, and the deployment allows that many. Shape: broadcast.

    Parameters
    ----------
    table : MemoryTable
        Uses of the memory.
    budget_bytes : int
        What the engine may plan with on one device. [B]
    deploy : Deployment
        Number formats, parallelism and limits.
    batch : array_like
        Sequences of the replica. [sequence]
    context_tokens : array_like
        Tokens of each. [token]
    """
    refuse_overflow(table, batch=batch, context_tokens=context_tokens)
    local = local_sequences(batch, deploy)
    holds: Any = np.less_equal(batch, deploy.max_sequences or LARGEST_COUNT)
    for rank in table.by_rank:
        needed = total_bytes(table, rank, sequences=local, context_tokens=context_tokens)
        holds = np.logical_and(holds, needed <= budget_bytes)
    return np.asarray(holds)


def max_batch(table: MemoryTable, budget_bytes: int, deploy: Deployment, *, context_tokens: ArrayLike) -> IntArray:
    """Sequences one replica can hold at ``context_tokens`` each; 0 when weights alone do not fit. [sequence]

    n fits and n + 1 does not: `capacity.formulas.limits` solves the table of each rank in closed form.

    Parameters
    ----------
    table : MemoryTable
        Uses of the memory.
    budget_bytes : int
        What the engine may plan with on one device. [B]
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
    for rank in table.by_rank:
        cache = sequence_cache_bytes(rank, context_tokens, block_tokens=table.block_tokens)
        for token_bytes, sequence_bytes in rank.peaks:
            fitting = limits.max_rank_batch(
                free_bytes=budget_bytes - rank.fixed_bytes,
                sequence_bytes=cache + rank.sequence_bytes,
                token_activation_bytes=token_bytes,
                sequence_activation_bytes=sequence_bytes,
                tokens=context_tokens,
                chunk_tokens=table.chunk_tokens,
            )
            best = np.minimum(best, fitting)
    best = np.minimum(best, LARGEST_COUNT) * deploy.data_parallel
    return np.asarray(best if deploy.max_sequences is None else np.minimum(best, deploy.max_sequences))


def max_context(
    table: MemoryTable, budget_bytes: int, deploy: Deployment, *, batch: ArrayLike, positions: int | None
) -> tuple[IntArray, IntArray]:
    """Longest context of each of ``batch`` sequences, and the longest that memory alone allows. [token]

    The first is 0 where the deployment forbids that many sequences, the second 2^31 where memory never ends it.

    Parameters
    ----------
    table : MemoryTable
        Uses of the memory.
    budget_bytes : int
        What the engine may plan with. [B]
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
    for rank in table.by_rank:
        for token_bytes, sequence_bytes in rank.peaks:
            fitting = limits.max_tokens(
                free_bytes=budget_bytes - rank.fixed_bytes,
                rank_batch=local,
                layers=[1] * len(rank.cache_token_bytes),
                token_bytes=rank.cache_token_bytes,
                windows=rank.window_tokens,
                block_tokens=table.block_tokens,
                constant_bytes=rank.sequence_bytes + sequence_bytes,
                token_activation_bytes=token_bytes,
                chunk_tokens=table.chunk_tokens,
            )
            best = np.minimum(best, fitting)
    in_memory = np.minimum(best, LARGEST_COUNT)
    allowed = np.less_equal(batch, deploy.max_sequences or LARGEST_COUNT)
    ended = np.where(allowed, np.minimum(in_memory, positions or LARGEST_COUNT), 0)
    return ended, np.asarray(in_memory)
