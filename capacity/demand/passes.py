"""FLOP and bytes of each operator of one pass on one device: numbers put into the coefficients of `operators`.

A pass computes ``new_tokens`` of each sequence after ``cached_tokens`` of it. It reads the cache of those, not the keys
that it makes itself; its queries attend to both. Bytes are weights, cache and state only: activations are not counted.
Prefill, decode, encode, denoise and verification are calls of one function, `work`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from capacity.arrays import ArrayLike, FloatArray, IntArray
from capacity.demand.costs import OperatorCost
from capacity.demand.operators import NO_WINDOW, OperatorTable
from capacity.formulas import attention
from capacity.formulas.experts import distinct_experts
from capacity.specs.deployment import Deployment


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


@dataclass(frozen=True, eq=False)
class WorkBlock:
    """Rows of operators that vary with the same numbers: arrays of shape (rows, *shape of those numbers). [B], [FLOP]

    ``operators`` and ``compute_formats`` name each row.
    """

    operators: tuple[str, ...]
    compute_formats: tuple[str, ...]
    moved_bytes: FloatArray
    weight_bytes: FloatArray
    flop: FloatArray


@dataclass(frozen=True, eq=False)
class Work:
    """Bytes and FLOP of a pass, in blocks that broadcast together, and its kernel launches."""

    blocks: tuple[WorkBlock, ...]
    launches: int

    @property
    def moved_bytes(self) -> FloatArray:
        """Of all operators, in the shape of the pass. [B]"""
        return np.asarray(sum([block.moved_bytes.sum(axis=0) for block in self.blocks]))

    @property
    def weight_bytes(self) -> FloatArray:
        """Of all operators, in the shape of the pass. [B]"""
        return np.asarray(sum([block.weight_bytes.sum(axis=0) for block in self.blocks]))

    @property
    def flop(self) -> FloatArray:
        """Of all operators, in the shape of the pass. [FLOP]"""
        return np.asarray(sum([block.flop.sum(axis=0) for block in self.blocks]))

    @property
    def compute_formats(self) -> frozenset[str]:
        """Formats that operators of the pass compute in."""
        return frozenset().union(*[block.compute_formats for block in self.blocks])

    def of_operator(self, name: str) -> tuple[FloatArray, FloatArray]:
        """Bytes moved and FLOP of the rows called ``name``, in the shape of the pass. [B], [FLOP]"""
        rows = [(block, row) for block in self.blocks for row, own in enumerate(block.operators) if own == name]
        moved: list[FloatArray] = [block.moved_bytes[row] for block, row in rows]
        return np.asarray(sum(moved)), np.asarray(sum([block.flop[row] for block, row in rows]))


def local_sequences(batch: ArrayLike, deploy: Deployment) -> IntArray:
    """Sequences that one device holds: data-parallel ranks hold ceil(batch / ranks) of them. [sequence]"""
    return np.asarray(-(-np.asarray(batch) // deploy.data_parallel))


def micro_batch(batch: ArrayLike, deploy: Deployment) -> IntArray:
    """Sequences in one pass: a pipeline keeps as many micro-batches in flight as it has stages. [sequence]"""
    return np.asarray(-(-np.asarray(batch) // deploy.pipeline_parallel))


def work(table: OperatorTable, asked: Pass) -> Work:
    """Bytes and FLOP of every operator of ``table`` in one pass.

    Parameters
    ----------
    table : OperatorTable
        Operators with their coefficients.
    asked : Pass
        Sequences, tokens and kind of pass.

    Returns
    -------
    Work
        In the shape of the pass. [B], [FLOP]
    """
    blocks = [_matrix_block(table.matrices, asked)] if table.matrices.costs else []
    blocks += [_attention_block(table.attention, asked)] if table.attention.costs else []
    return Work(tuple(blocks), table.launches)


def _matrix_block(table: OperatorTable, asked: Pass) -> WorkBlock:
    """Matrices, experts and states: bytes do not depend on cached tokens."""
    costs, sequences = table.costs, np.asarray(asked.sequences, dtype=np.float64)
    numbers = np.broadcast(asked.sequences, asked.replica_sequences, asked.new_tokens)
    shape = (len(costs), *numbers.shape)
    column = (-1,) + (1,) * (len(shape) - 1)
    tokens = sequences * np.where(table.heads.reshape(column), asked.head_tokens, asked.new_tokens)
    weights, flop = np.empty(shape), np.empty(shape)
    weights[:] = table.weight_bytes.reshape(column)
    flop[:] = tokens * table.token_flop.reshape(column)
    if not asked.head_tokens:
        weights[table.heads] = 0.0
    moved = weights + sequences * table.sequence_bytes.reshape(column)
    for row in table.routed:
        experts_tokens = np.multiply(asked.replica_sequences, asked.new_tokens)
        share = distinct_experts(costs[row].experts, costs[row].experts_used, experts_tokens) / costs[row].experts
        weights[row] = moved[row] = costs[row].expert_bytes * share
        flop[row] = experts_tokens * costs[row].token_flop
    for row in table.projecting:
        flop[row] = sequences * _source_tokens(costs[row], asked) * costs[row].token_flop
    return WorkBlock(table.operators, table.compute_formats, moved, weights, flop)


def _attention_block(table: OperatorTable, asked: Pass) -> WorkBlock:
    """Operators that meet keys: they read cache and no weights."""
    sequences = np.asarray(asked.sequences, dtype=np.float64)
    shape = (len(table.costs), *asked.shape)
    moved, flop = np.empty(shape), np.empty(shape)
    for row, cost in enumerate(table.costs):
        keys, pairs = _keys_and_pairs(cost, asked)
        moved[row] = sequences * cost.key_bytes * keys
        flop[row] = sequences * (cost.expanded_key_flop if asked.expanded else cost.key_flop) * pairs
    return WorkBlock(
        table.operators, table.compute_formats, moved, np.zeros((len(table.costs),) + (1,) * len(asked.shape)), flop
    )


def _keys_and_pairs(cost: OperatorCost, asked: Pass) -> tuple[FloatArray, FloatArray]:
    """Keys read from memory and query-key pairs computed, of one sequence. [token], [pair]"""
    new, cached, window = asked.new_tokens, asked.cached_tokens, cost.window or NO_WINDOW
    if cost.source_tokens:
        source = np.asarray(_source_tokens(cost, asked), dtype=np.float64)
        return source, np.asarray(new, dtype=np.float64) * source
    if not asked.causal:
        keys = np.minimum(np.asarray(cached, dtype=np.float64), window)
        return keys, attention.free_pairs(new, cached, window=window)
    if cost.chunked:
        keys = np.remainder(np.asarray(cached, dtype=np.float64), cost.window)
        return keys, attention.chunked_pairs(new, cached, chunk=cost.window)
    return attention.cached_keys_read(cached, window=window), attention.causal_pairs(new, cached, window=window)


def _source_tokens(cost: OperatorCost, asked: Pass) -> int:
    return cost.source_tokens if asked.source_tokens is None else asked.source_tokens


def joined(parts: list[Work]) -> Work:
    """Several works of one pass as one."""
    blocks = [block for part in parts for block in part.blocks]
    return Work(tuple(blocks), sum([part.launches for part in parts]))
