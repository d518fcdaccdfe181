"""FLOP and bytes of each operator of a phase on one device: numbers put into the terms of `terms`.

Bytes are weights, cache and state only: that is what a bound may count.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from capacity.demand.operators import Term, decoder_terms
from capacity.specs.deployment import Deployment
from capacity.specs.model import ModelSpec

ArrayLike = Any


@dataclass(frozen=True, slots=True)
class Work:
    """Bytes and FLOP of one term, in the broadcast shape of batch and context. [B], [FLOP]"""

    term: Term
    moved_bytes: Any
    weight_bytes: Any
    flop: Any


def rank_batch(batch: ArrayLike, deploy: Deployment) -> Any:
    """Sequences that one device works on at once: data-parallel ranks hold ceil(batch / ranks) of them. [sequence]"""
    return -(-np.asarray(batch) // deploy.data_parallel)


def micro_batch(batch: ArrayLike, deploy: Deployment) -> Any:
    """Sequences in one pass: a pipeline keeps as many micro-batches in flight as it has stages. [sequence]"""
    return -(-np.asarray(batch) // deploy.pipeline_parallel)


def distinct_experts(experts: int, used: int, tokens: ArrayLike) -> Any:
    r"""Expected distinct experts that ``tokens`` visit under uniform routing. [expert]

    .. math:: E (1 - (1 - k / E)^T)

    >>> round(float(distinct_experts(256, 8, 64)), 1)
    222.4
    """
    missed = 1.0 - used / experts
    if missed <= 0:
        return np.full(np.shape(tokens), float(experts))
    return -experts * np.expm1(np.asarray(tokens) * np.log(missed))


def decode_work(model: ModelSpec, deploy: Deployment, *, batch: ArrayLike, context_tokens: ArrayLike) -> Iterator[Work]:
    """The work of one decode step, in the broadcast shape of ``batch`` and ``context_tokens``. [B], [FLOP]"""
    tokens = micro_batch(batch, deploy)
    mine = rank_batch(tokens, deploy)
    for term in decoder_terms(model, deploy):
        if term.source_tokens and term.weight_bytes:
            continue  # keys and values of a cross attention were made in prefill
        keys = mine * decode_keys(term, context_tokens)
        yield _work(term, tokens=tokens, mine=mine, passes=mine, keys=keys, pairs=keys * term.key_flop)


def decode_keys(term: Term, context_tokens: ArrayLike) -> Any:
    """Keys that one query of a decode step meets. [token]"""
    if term.source_tokens:
        return term.source_tokens
    if term.chunked:
        return (np.asarray(context_tokens) - 1) % term.window + 1
    return np.minimum(context_tokens, term.window) if term.window else context_tokens


def prefill_work(model: ModelSpec, deploy: Deployment, *, batch: ArrayLike, prompt_tokens: ArrayLike) -> Iterator[Work]:
    """The work of prefilling ``batch`` prompts in one pass. [B], [FLOP]

    Each weight is read once, and the head meets last tokens only.
    """
    sequences = micro_batch(batch, deploy)
    mine = rank_batch(sequences, deploy)
    prompt = np.asarray(prompt_tokens)
    for term in decoder_terms(model, deploy):
        keys: Any = term.source_tokens or prompt
        pairs = prompt * keys if term.source_tokens else causal_pairs(prompt, term.window, chunked=term.chunked)
        projected = term.source_tokens if term.weight_bytes and term.source_tokens else prompt
        tokens, passes = (sequences, mine) if term.last_token_only else (sequences * projected, mine * projected)
        flop = mine * pairs * term.prefill_key_flop
        yield _work(term, tokens=tokens, mine=mine, passes=passes, keys=mine * keys, pairs=flop)


def causal_pairs(prompt_tokens: ArrayLike, window: int = 0, *, chunked: bool = False) -> Any:
    """Query-key pairs of a causal prompt, itself included: at most ``window`` keys a query, or its chunk's. [pair]

    >>> int(causal_pairs(4)), int(causal_pairs(4, 2)), int(causal_pairs(5, 2, chunked=True))
    (10, 7, 7)
    """
    prompt = np.asarray(prompt_tokens, dtype=np.float64)
    if not window:
        return prompt * (prompt + 1) / 2
    if chunked:
        chunks, rest = np.divmod(prompt, window)
        return chunks * window * (window + 1) / 2 + rest * (rest + 1) / 2
    full = np.minimum(prompt, window)
    return full * (full + 1) / 2 + (prompt - full) * window


def _work(term: Term, *, tokens: Any, mine: Any, passes: Any, keys: Any, pairs: Any) -> Work:
    """Put numbers into a term: tokens of the replica, sequences and tokens of this device, keys read, pair FLOP."""
    if term.experts:
        share = distinct_experts(term.experts, term.experts_used, tokens) / term.experts
        weights: Any = term.expert_bytes * share
        return Work(term, weights, weights, tokens * term.token_flop)
    cache = mine * term.sequence_bytes if term.sequence_bytes else 0
    if term.key_bytes:
        cache = cache + keys * term.key_bytes
    flop = passes * term.token_flop if term.token_flop else 0
    if term.key_flop:
        flop = flop + pairs
    return Work(term, term.weight_bytes + cache, term.weight_bytes, flop)
