"""FLOP and bytes of each operator of one pass on one device: numbers put into the coefficients of `operators`.

A pass computes ``new_tokens`` of each sequence after ``cached_tokens`` of it. It reads the cache of those, not the keys
that it makes itself; its queries attend to both. Bytes are weights, cache and state only: activations are not counted.
Prefill, decode, encode, denoise and verification are calls of one function, `work`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from capacity.arrays import ArrayLike, FloatArray, IntArray
from capacity.demand.costs import OperatorCost
from capacity.demand.operator_table import NO_WINDOW, OperatorTable
from capacity.demand.work import RoutedRow, Work, WorkBlock
from capacity.formulas import attention
from capacity.specs.deployment import Deployment
from capacity.units import Arithmetic


@dataclass(frozen=True, eq=False)
class Pass:
    """What goes through some operators together. Numbers broadcast. [sequence], [token]

    Parameters
    ----------
    sequences : sequences of this device. [sequence]
    replica_sequences : sequences of all data-parallel ranks, whose tokens share the experts. [sequence]
    new_tokens : tokens of each that are computed. [token]
    cached_tokens : tokens of each before them. [token]
    head_tokens : tokens of each to which the output head is applied. [token]
    causal : whether a query attends to new keys up to its own position only, or to all of them.
    expanded : whether latents are expanded, as in prefill, or absorbed, as in decode.
    source_tokens : tokens that cross attention attends to, where not those of the spec. [token]
    """

    sequences: ArrayLike
    replica_sequences: ArrayLike
    new_tokens: ArrayLike
    cached_tokens: ArrayLike
    head_tokens: int = 1
    causal: bool = True
    expanded: bool = False
    source_tokens: int | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The broadcast shape of its numbers."""
        return np.broadcast(self.sequences, self.replica_sequences, self.new_tokens, self.cached_tokens).shape


def local_sequences(batch: ArrayLike, deploy: Deployment) -> IntArray:
    """Sequences that one device holds: data-parallel ranks hold ceil(batch / ranks) of them. [sequence]

    Parameters
    ----------
    batch : array_like
        Sequences of the replica. [sequence]
    deploy : Deployment
        Number formats, parallelism and limits.

    Returns
    -------
    ndarray
        In the shape of ``batch``. [sequence]
    """
    return np.asarray(-(-np.asarray(batch) // deploy.data_parallel))


def micro_batch(batch: ArrayLike, deploy: Deployment) -> IntArray:
    """Sequences in one pass: a pipeline keeps as many micro-batches in flight as it has stages. [sequence]

    Parameters
    ----------
    batch : array_like
        Sequences of the replica. [sequence]
    deploy : Deployment
        Number formats, parallelism and limits.

    Returns
    -------
    ndarray
        In the shape of ``batch``. [sequence]
    """
    return np.asarray(-(-np.asarray(batch) // deploy.pipeline_parallel))


def tokens_in_flight(sequences: ArrayLike, tokens: ArrayLike, *, chunk_tokens: int) -> IntArray:
    """Tokens of one pass on one device: at most a prefill chunk, never fewer than one per sequence. [token]

    Parameters
    ----------
    sequences, tokens : array_like
        Sequences of this device, and tokens of each. [sequence], [token]
    chunk_tokens : int
        Most tokens of a prefill pass. [token]

    Returns
    -------
    ndarray
        In the broadcast shape of both. [token]

    Examples
    --------
    >>> int(tokens_in_flight(4, 4096, chunk_tokens=8192)), int(tokens_in_flight(9, 1, chunk_tokens=8))
    (8192, 9)
    """
    return np.maximum(np.minimum(np.multiply(sequences, tokens), chunk_tokens), sequences)


def work(table: OperatorTable, step: Pass) -> Work:
    """Bytes and FLOP of every operator of ``table`` in one pass.

    Parameters
    ----------
    table : OperatorTable
        Operators with their coefficients.
    step : Pass
        Sequences, tokens and kind of pass.

    Returns
    -------
    Work
        In the shape of the pass. [B], [FLOP]
    """
    blocks = [_matrix_block(table.matrices, step)] if table.matrices.costs else []
    blocks += [_attention_block(table.attention, step)] if table.attention.costs else []
    return Work(tuple(blocks), table.launches)


def _matrix_block(table: OperatorTable, step: Pass) -> WorkBlock:
    """Matrices, experts and states: bytes do not depend on cached tokens."""
    costs, sequences = table.costs, np.asarray(step.sequences, dtype=np.float64)
    numbers = np.broadcast(step.sequences, step.replica_sequences, step.new_tokens)
    shape = (len(costs), *numbers.shape)
    column = (-1,) + (1,) * (len(shape) - 1)
    tokens = sequences * np.where(table.heads.reshape(column), step.head_tokens, step.new_tokens)
    moved, flop = np.empty(shape), np.empty(shape)
    moved[:] = table.weight_bytes.reshape(column)
    flop[:] = tokens * table.token_flop.reshape(column)
    if not step.head_tokens:
        moved[table.heads] = 0.0
    moved += sequences * table.sequence_bytes.reshape(column)
    expert_tokens = np.multiply(step.replica_sequences, step.new_tokens) if table.routed else 0
    routed = tuple([RoutedRow(row, costs[row], expert_tokens) for row in table.routed])
    for item in routed:
        moved[item.row] = item.distinct_bytes(1.0)
        flop[item.row] = expert_tokens * item.cost.token_flop
    for row in table.projecting:
        flop[row] = sequences * _source_tokens(costs[row], step) * costs[row].token_flop
    return WorkBlock(table.operators, table.arithmetic, moved, flop, routed)


def _attention_block(table: OperatorTable, step: Pass) -> WorkBlock:
    """Operators on keys: they read the cache and no weights."""
    sequences = np.asarray(step.sequences, dtype=np.float64)
    shape = (len(table.costs), *step.shape)
    moved, flop = np.empty(shape), np.empty(shape)
    for row, cost in enumerate(table.costs):
        keys, pairs = _keys_and_pairs(cost, step)
        moved[row] = sequences * cost.key_bytes * keys
        flop[row] = sequences * (cost.expanded_key_flop if step.expanded else cost.key_flop) * pairs
    return WorkBlock(table.operators, table.arithmetic, moved, flop)


def _keys_and_pairs(cost: OperatorCost, step: Pass) -> tuple[FloatArray, FloatArray]:
    """Keys read from memory and query-key pairs computed, of one sequence. [token], [pair]"""
    new, cached, window = step.new_tokens, step.cached_tokens, cost.window or NO_WINDOW
    if cost.source_tokens:
        source = np.asarray(_source_tokens(cost, step), dtype=np.float64)
        return source, np.asarray(new, dtype=np.float64) * source
    if not step.causal:
        keys = np.minimum(np.asarray(cached, dtype=np.float64), window)
        return keys, attention.free_pairs(new, cached, window=window)
    if cost.chunked:
        keys = np.remainder(np.asarray(cached, dtype=np.float64), cost.window)
        return keys, attention.chunked_pairs(new, cached, chunk=cost.window)
    return attention.cached_keys_read(cached, window=window), attention.causal_pairs(new, cached, window=window)


def _source_tokens(cost: OperatorCost, step: Pass) -> int:
    return cost.source_tokens if step.source_tokens is None else step.source_tokens


def idle_flop(tail: OperatorTable, step: Pass, needed_tokens: int) -> tuple[tuple[str, Arithmetic, FloatArray], ...]:
    """FLOP of the last layers on all tokens but the last ``needed_tokens``, whose outputs alone are read. [FLOP]

    Parameters
    ----------
    tail : OperatorTable
        Operators of those layers, without what makes keys and values.
    step : Pass
        The whole pass.
    needed_tokens : int
        Tokens of each sequence whose output is read. [token]

    Returns
    -------
    tuple
        Operator, arithmetic and FLOP of each row. [FLOP]
    """
    skipped = np.maximum(np.subtract(step.new_tokens, needed_tokens), 0)
    needed = np.subtract(step.new_tokens, skipped)
    last = replace(step, new_tokens=needed, cached_tokens=np.add(step.cached_tokens, skipped), expanded=False)
    pairs = zip(work(tail, step).blocks, work(tail, last).blocks, strict=True)
    return tuple(
        [
            (name, all_tokens.arithmetic[row], all_tokens.flop[row] - np.minimum(all_tokens.flop[row], part.flop[row]))
            for all_tokens, part in pairs
            for row, name in enumerate(all_tokens.operators)
        ]
    )
