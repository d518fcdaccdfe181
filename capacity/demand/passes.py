"""FLOP and bytes of each operator of one pass on one device: numbers put into the coefficients of `operators`.

A pass computes ``new_tokens`` of each sequence after ``cached_tokens`` of it. It reads the cache of those, not the keys
that it makes itself; its queries attend to both. Bytes are weights, cache and state only: activations are not counted.
Prefill, decode, encode, denoise and verification are calls of one function, `work`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from capacity.arrays import ArrayLike, FloatArray, IntArray
from capacity.demand.costs import OperatorCost
from capacity.demand.operator_table import NO_WINDOW, OperatorTable
from capacity.formulas import attention
from capacity.formulas.experts import distinct_experts, fewest_experts
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


@dataclass(frozen=True, eq=False)
class WorkBlock:
    """Rows of operators that vary with the same numbers: arrays of shape (rows, *shape of those numbers). [B], [FLOP]

    ``operators`` and ``arithmetic`` are of each row.
    """

    operators: tuple[str, ...]
    arithmetic: tuple[Arithmetic, ...]
    moved_bytes: FloatArray
    flop: FloatArray
    routed: tuple[RoutedRow, ...] = ()

    def bytes_at(self, routing_exponent: float) -> FloatArray:
        """Bytes moved where tokens spread over the experts with an exponent other than 1. [B]

        Parameters
        ----------
        routing_exponent : float
            Power of the tokens that count as independent; see `capacity.formulas.experts`. [1]
        """
        if not self.routed or routing_exponent == 1.0:
            return self.moved_bytes
        moved = self.moved_bytes.copy()
        for item in self.routed:
            moved[item.row] = item.distinct_bytes(routing_exponent)
        return moved

    @property
    def fewest_bytes(self) -> FloatArray:
        """Bytes moved where all tokens visit the fewest experts that any routing does. [B]"""
        if not self.routed:
            return self.moved_bytes
        moved = self.moved_bytes.copy()
        for item in self.routed:
            moved[item.row] = np.minimum(moved[item.row], item.fewest_bytes)
        return moved


@dataclass(frozen=True, eq=False)
class RoutedRow:
    """A row of routed experts, and the tokens of all ranks that share them. [token]"""

    row: int
    cost: OperatorCost
    tokens: ArrayLike

    def distinct_bytes(self, routing_exponent: float) -> FloatArray:
        """Bytes of the expected distinct experts that the tokens visit on one device. [B]

        Parameters
        ----------
        routing_exponent : float
            Power of the tokens that count as independent. [1]
        """
        cost, tokens = self.cost, np.power(np.asarray(self.tokens, dtype=np.float64), routing_exponent)
        return cost.expert_bytes * distinct_experts(cost.experts, cost.experts_used, tokens) / cost.experts

    @property
    def fewest_bytes(self) -> float:
        """Bytes of the fewest experts that any routing visits on the heaviest device. [B]"""
        cost = self.cost
        fewest = fewest_experts(cost.experts_used, cost.experts // cost.experts_held)
        return cost.expert_bytes * fewest / cost.experts_held


@dataclass(frozen=True, eq=False)
class Work:
    """Bytes and FLOP of a pass, in blocks that broadcast together, and its kernel launches.

    ``idle`` is the part of it that the answer does not depend on, by operator and arithmetic: the last layers, on
    all tokens whose output no one reads. An ordinary engine does it; a bound leaves it out. [FLOP]
    """

    blocks: tuple[WorkBlock, ...]
    launches: int
    idle: tuple[tuple[str, Arithmetic, FloatArray], ...] = ()

    @property
    def moved_bytes(self) -> FloatArray:
        """Of all operators, in the shape of the pass. [B]"""
        return np.asarray(sum([block.moved_bytes.sum(axis=0) for block in self.blocks]))

    @property
    def flop(self) -> FloatArray:
        """Of all operators, in the shape of the pass. [FLOP]"""
        return np.asarray(sum([block.flop.sum(axis=0) for block in self.blocks]))

    @cached_property
    def arithmetic(self) -> frozenset[Arithmetic]:
        """How operators of the pass are stored and computed."""
        items: set[Arithmetic] = set()
        for block in self.blocks:
            items.update(block.arithmetic)
        return frozenset(items)

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


def joined(parts: list[Work]) -> Work:
    """Several works of one pass as one."""
    blocks = [block for part in parts for block in part.blocks]
    idle = [item for part in parts for item in part.idle]
    return Work(tuple(blocks), sum([part.launches for part in parts]), tuple(idle))


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
