"""One pass through one stage with any numbers of queries and keys: encoders, chunks, denoising over a prefix.

`work` covers prefill and decode of a language model; here queries and keys are free, and nothing need be causal.
"""

from __future__ import annotations

from dataclasses import replace

from capacity.demand.operators import Term, stage_terms
from capacity.demand.work import Work, causal_pairs, distinct_experts
from capacity.specs.deployment import Deployment
from capacity.specs.model import ModelSpec


def stage_pass(
    model: ModelSpec,
    deploy: Deployment,
    stage: str,
    *,
    sequences: int,
    queries: float,
    cached_keys: float,
    head_tokens: float,
    causal: bool,
    source_tokens: float | None = None,
) -> tuple[Work, ...]:
    """The work of one pass of ``sequences`` alike sequences through ``stage``.

    Every query sees the cached keys; new keys it sees all, or those up to itself when ``causal``. Cached keys are
    read from memory, keys made in the same pass are not charged, nor is the projection of a cross-attention
    source, which is done once a decision: see `source_pass`.

    Parameters
    ----------
    model : ModelSpec
        Model that has the stage.
    deploy : Deployment
        Number formats; one device.
    stage : str
        Name of the stage.
    sequences : int
        Images or sequences that go through together. [sequence]
    queries : float
        Tokens of each that are computed. [token]
    cached_keys : float
        Tokens of each whose keys and values lie in memory. [token]
    head_tokens : float
        Tokens of each that meet the output head. [token]
    causal : bool
        Whether a query sees only the new keys up to itself.
    source_tokens : float or None
        Tokens that cross attention looks at, where not those of the spec. [token]

    Returns
    -------
    tuple of Work
        One item a term. [B], [FLOP]
    """
    return tuple(
        _work(_seeing(term, source_tokens), sequences, queries, cached_keys, head_tokens, causal)
        for term in stage_terms(model, deploy, stage)
        if not (term.source_tokens and term.weight_bytes)
    )


def source_pass(
    model: ModelSpec, deploy: Deployment, stage: str, *, sequences: int, source_tokens: float | None = None
) -> tuple[Work, ...]:
    """The work of making the keys and values that the cross attention of ``stage`` looks at, once for each sequence.

    Parameters
    ----------
    model : ModelSpec
        Model that has the stage.
    deploy : Deployment
        Number formats; one device.
    stage : str
        Name of the stage.
    sequences : int
        Sources, each of its own. [sequence]
    source_tokens : float or None
        Tokens of each source, where not those of the spec. [token]

    Returns
    -------
    tuple of Work
        One item a term; none where nothing in the stage looks across. [B], [FLOP]
    """
    terms = [_seeing(term, source_tokens) for term in stage_terms(model, deploy, stage)]
    return tuple(
        Work(term, term.weight_bytes, term.weight_bytes, sequences * term.source_tokens * term.token_flop)
        for term in terms
        if term.source_tokens and term.weight_bytes
    )


def _seeing(term: Term, source_tokens: float | None) -> Term:
    """The term with cross attention over another number of tokens."""
    if not term.source_tokens or source_tokens is None:
        return term
    return replace(term, source_tokens=int(source_tokens))


def _work(term: Term, sequences: int, queries: float, cached_keys: float, head_tokens: float, causal: bool) -> Work:
    tokens = sequences * (head_tokens if term.last_token_only else queries)
    if term.experts:
        share = distinct_experts(term.experts, term.experts_used, tokens) / term.experts
        return Work(term, term.expert_bytes * share, term.expert_bytes * share, tokens * term.token_flop)
    if term.last_token_only and tokens == 0:
        return Work(term, 0, 0, 0.0)
    keys, pairs = _causal_keys(term, queries, cached_keys) if causal else _free_keys(term, queries, cached_keys)
    if term.source_tokens:
        keys, pairs = term.source_tokens, queries * term.source_tokens
    cache = sequences * (term.sequence_bytes + keys * term.key_bytes)
    flop = tokens * term.token_flop + sequences * pairs * term.prefill_key_flop
    return Work(term, term.weight_bytes + cache, term.weight_bytes, flop)


def _causal_keys(term: Term, queries: float, cached_keys: float) -> tuple[float, float]:
    """Cached keys that the first query still sees, and pairs of queries that each see the keys up to themselves."""
    upto = [causal_pairs(end, term.window, chunked=term.chunked) for end in (cached_keys, cached_keys + queries)]
    if not term.window:
        return cached_keys, float(upto[1] - upto[0])
    seen = cached_keys % term.window if term.chunked else min(cached_keys, term.window - 1)
    return seen, float(upto[1] - upto[0])


def _free_keys(term: Term, queries: float, cached_keys: float) -> tuple[float, float]:
    """Cached keys within the window, and pairs of queries that each see all of them and each other."""
    pairs = queries * (queries + cached_keys)
    if not term.window:
        return cached_keys, pairs
    return min(cached_keys, term.window), min(pairs, queries * term.window)
