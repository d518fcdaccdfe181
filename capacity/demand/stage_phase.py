"""A phase: equal passes through one stage, on each pipeline rank, with what devices exchange."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from capacity.arrays import ArrayLike, FloatArray
from capacity.demand.collectives import Collective, collectives
from capacity.demand.operators import RankOperators, rank_operators
from capacity.demand.passes import Pass, idle_flop, local_sequences, micro_batch, work
from capacity.demand.work import Work, joined
from capacity.specs.deployment import Deployment
from capacity.specs.model import ModelSpec
from capacity.specs.world import Subject


@dataclass(frozen=True, eq=False)
class RankWork:
    """The work of one pass on a device of a pipeline rank, of which ``ranks`` are equal. [rank]

    ``even`` is that work where the sequences divide evenly into micro-batches, which a bound may not exclude.
    """

    work: Work
    ranks: int = 1
    even: Work | None = None

    @property
    def least(self) -> Work:
        """The work from which a bound starts."""
        return self.even or self.work


@dataclass(frozen=True, eq=False)
class Phase:
    """``passes`` equal passes of one kind: the work of one pass, the layers it goes through, what devices exchange.

    ``sequences`` and ``tokens`` are those of one device in one pass, ``head_tokens`` those of each sequence to which
    the output head is applied. Each pipeline rank takes ``turns`` in a pass: micro-batches of sequences (not a whole
    number where the last is smaller), whose tokens pass every rank; or chunks of prompts, where the phase ``flows``.
    [sequence], [token]
    """

    name: str
    passes: int
    by_rank: tuple[RankWork, ...]
    layers: int
    sequences: ArrayLike
    tokens: ArrayLike
    head_tokens: int = 0
    collectives: tuple[Collective, ...] = ()
    turns: ArrayLike = 1
    flows: bool = False

    @cached_property
    def on_one_rank(self) -> bool:
        """Whether there is no pipeline."""
        return len(self.by_rank) == 1 and self.by_rank[0].ranks == 1

    @cached_property
    def work(self) -> Work:
        """Of one pass, on the devices of all pipeline ranks that a token passes."""
        if self.on_one_rank:
            return self.by_rank[0].work
        return joined([item.work for item in self.by_rank for _ in range(item.ranks)])

    @property
    def flop(self) -> FloatArray:
        """Of all passes, in the shape of the batch. [FLOP]"""
        return np.asarray(self.passes * self.work.flop)

    @property
    def moved_bytes(self) -> FloatArray:
        """Of all passes, in the shape of the batch. [B]"""
        return np.asarray(self.passes * self.work.moved_bytes)

    @property
    def launches(self) -> int:
        """Of all passes."""
        return self.passes * self.work.launches


def stage_phase(
    name: str,
    subject: Subject,
    deploy: Deployment,
    stage: str | None = None,
    *,
    batch: ArrayLike,
    new_tokens: ArrayLike,
    cached_tokens: ArrayLike = 0,
    head_tokens: int = 1,
    causal: bool = True,
    expanded: bool = False,
    source_tokens: int | None = None,
    passes: int = 1,
    each: int = 1,
    needed_tokens: int | None = None,
) -> Phase:
    """``passes`` passes of ``batch`` sequences through the decoder or another stage; see `capacity.demand.passes.Pass`.

    Parameters
    ----------
    name : str
        Name of the phase.
    subject : ModelSpec or WorldModelSpec
        What is served.
    deploy : Deployment
        Number formats, parallelism and limits.
    stage : str or None
        Name of the stage; None for the core of a world model, or all that decodes in a model.
    batch : array_like
        Sequences of the replica. [sequence]
    new_tokens : array_like
        Tokens of each that are computed. [token]
    cached_tokens : array_like
        Cached tokens of each sequence. [token]
    head_tokens : int
        Tokens of each to which the output head is applied. [token]
    causal : bool
        Whether a query attends to new keys up to its own position only.
    expanded : bool
        Whether this is a prefill: latents are expanded, and chunks flow through pipeline ranks.
    source_tokens : int or None
        Tokens that cross attention attends to, where not those of the spec. [token]
    passes : int
        Equal passes. [pass]
    each : int
        Sequences of each of ``batch``, which stay on its rank. [sequence]
    needed_tokens : int or None
        Last tokens of each whose output is read afterwards; None for all. [token]
    """
    model, own = (subject, None) if isinstance(subject, ModelSpec) else (subject.model, subject.core)
    stage = stage or own
    together = np.asarray(batch) if expanded else micro_batch(batch, deploy)
    local = local_sequences(together, deploy) * each
    this = Pass(
        local, np.multiply(together, each), new_tokens, cached_tokens, head_tokens, causal, expanded, source_tokens
    )
    even = None if expanded or deploy.pipeline_parallel == 1 else _even(this, batch, deploy)
    demand, tokens = _stage_demand(model, deploy, stage), np.multiply(local, new_tokens)
    return Phase(
        name=name,
        passes=passes,
        by_rank=_by_rank(demand.ranks, this, even, needed_tokens),
        layers=demand.layers,
        sequences=local,
        tokens=tokens,
        head_tokens=head_tokens,
        collectives=demand.collectives if head_tokens else demand.collectives_without_head,
        turns=_turns(deploy, batch=batch, local=local, tokens=tokens, expanded=expanded),
        flows=expanded,
    )


class _StageDemand(NamedTuple):
    """What a pass through one stage depends on, whatever its numbers."""

    ranks: tuple[RankOperators, ...]
    layers: int
    collectives: tuple[Collective, ...]
    collectives_without_head: tuple[Collective, ...]


@lru_cache(maxsize=512)
def _stage_demand(model: ModelSpec, deploy: Deployment, stage: str | None) -> _StageDemand:
    name = stage or model.decoder.name
    layers = next(item for item in model.stages if item.name == name).layer_count
    exchanged = collectives(model, deploy, name)
    without_head = tuple([item for item in exchanged if not item.last_token_only])
    return _StageDemand(rank_operators(model, deploy, stage), layers, exchanged, without_head)


def _turns(deploy: Deployment, *, batch: ArrayLike, local: ArrayLike, tokens: ArrayLike, expanded: bool) -> ArrayLike:
    """Turns of a pipeline rank in one pass: chunks of the prompts, or micro-batches of the sequences. [1]"""
    if deploy.pipeline_parallel == 1:
        return 1
    if expanded:
        return -(-np.asarray(tokens) // deploy.prefill_chunk_tokens)
    return local_sequences(batch, deploy) / np.asarray(local)


def _even(this: Pass, batch: ArrayLike, deploy: Deployment) -> Pass:
    """The pass of a micro-batch that need not be a whole number of sequences, but holds at least one."""
    together = np.divide(batch, deploy.pipeline_parallel)
    local = np.maximum(together / deploy.data_parallel, 1.0)
    return replace(this, sequences=local, replica_sequences=np.maximum(together, 1.0))


def _by_rank(
    ranks: tuple[RankOperators, ...], this: Pass, even: Pass | None, needed_tokens: int | None
) -> tuple[RankWork, ...]:
    works = []
    for rank in ranks:
        table = rank.table if this.expanded else rank.table.without_sources
        rank_work = work(table, this)
        if needed_tokens is not None and rank.tail.costs:
            rank_work = replace(rank_work, idle=idle_flop(rank.tail, this, needed_tokens))
        works.append(RankWork(rank_work, rank.ranks, work(table, even) if even else None))
    return tuple(works)
