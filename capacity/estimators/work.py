"""FLOP, bytes and launches of each operator of a phase, on one device, as coefficients of batch and context.

A `Term` says what one operator of like layers costs; `decode_work` and `prefill_work` put numbers in. Bytes are
weights, cache and state only: that is what a bound may count.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from capacity.estimators.placement import Piece, cache_format, pieces, sixteen_bit, state_format
from capacity.specs.deployment import Deployment
from capacity.specs.model import Attention, Experts, LatentAttention, LayerGroup, ModelSpec, Stage, StateMixer
from capacity.units import NumberFormat, number_format

ArrayLike = Any


@dataclass(frozen=True, slots=True)
class Term:
    """One operator of like layers on the devices that one token passes, all pipeline ranks together.

    Parameters
    ----------
    weight_bytes : read once a pass, whatever the batch. [B]
    expert_bytes : of all experts held by a device; the share of distinct experts is read. [B]
    token_flop : for each token. [FLOP]
    last_token_only : true for the output head in prefill.
    key_flop, key_bytes : for each query-key pair, and for each cached token read. [FLOP], [B]
    prefill_key_flop : the same pair in prefill, where a latent is expanded. [FLOP]
    sequence_bytes : state and cross-attention cache of one sequence. [B]
    source_tokens : keys of a cross attention, which do not grow; for a matrix, the tokens it projects once.
    chunked : keys are those of the current chunk of ``window`` tokens only.
    """

    operator: str
    compute_format: str
    layers: int
    launches: int = 0
    weight_bytes: int = 0
    expert_bytes: int = 0
    experts: int = 0
    experts_used: int = 0
    token_flop: float = 0.0
    last_token_only: bool = False
    key_flop: float = 0.0
    prefill_key_flop: float = 0.0
    key_bytes: float = 0.0
    sequence_bytes: float = 0.0
    window: int = 0
    source_tokens: int = 0
    chunked: bool = False


@dataclass(frozen=True, slots=True)
class Work:
    """Bytes and FLOP of one term, in the broadcast shape of batch and context. [B], [FLOP]"""

    term: Term
    moved_bytes: Any
    weight_bytes: Any
    flop: Any


def compute_format(stored: NumberFormat, activations: str) -> str:
    """The format an operator computes in: the wider of how its operand is stored and ``activations``.

    Two formats of one width and different families (int8 weights, fp8 activations) have no common path and meet
    at 16 bit.

    >>> compute_format(number_format("int4_g128"), "bf16"), compute_format(number_format("bf16"), "int8")
    ('bf16', 'bf16')
    """
    chosen = number_format(activations)
    if stored.arithmetic_bits < chosen.arithmetic_bits:
        return chosen.name
    if stored.arithmetic_bits > chosen.arithmetic_bits:
        return stored.name if stored.element_bits >= 16 else sixteen_bit(activations)
    same = stored.family == chosen.family or chosen.element_bits >= 16
    return chosen.name if same else sixteen_bit(activations)


@lru_cache(maxsize=512)
def decoder_terms(model: ModelSpec, deploy: Deployment) -> tuple[Term, ...]:
    """The terms of one decode step: every stage but encoders and resident parts."""
    active = {stage.name for stage in model.stages if stage.role in ("decoder", "head")}
    return _terms(model, deploy, active)


@lru_cache(maxsize=512)
def stage_terms(model: ModelSpec, deploy: Deployment, stage_name: str) -> tuple[Term, ...]:
    """The terms of one pass through one stage."""
    return _terms(model, deploy, {stage_name})


def _terms(model: ModelSpec, deploy: Deployment, names: set[str]) -> tuple[Term, ...]:
    mixing: list[Term] = []
    for stage in model.stages:
        if stage.name in names:
            for group in stage.layers:
                mixing.extend(_mixing_terms(group, stage, deploy))
    return (*_weight_terms(model, deploy, names), *_merged(mixing))


def _merged(terms: list[Term]) -> Iterator[Term]:
    """Mixing terms whose layers are alike, as one."""
    alike: dict[tuple[object, ...], list[Term]] = {}
    for term in terms:
        rates = (term.key_flop, term.prefill_key_flop, term.key_bytes, term.token_flop, term.sequence_bytes)
        each = tuple(rate / term.layers for rate in rates)
        keys = (term.window, term.chunked, term.source_tokens)
        alike.setdefault((term.operator, term.compute_format, keys, each), []).append(term)
    for members in alike.values():
        first, layers = members[0], sum(term.layers for term in members)
        yield replace(
            first,
            layers=layers,
            launches=layers,
            key_flop=first.key_flop / first.layers * layers,
            prefill_key_flop=first.prefill_key_flop / first.layers * layers,
            key_bytes=first.key_bytes / first.layers * layers,
            token_flop=first.token_flop / first.layers * layers,
            sequence_bytes=first.sequence_bytes / first.layers * layers,
        )


def _weight_terms(model: ModelSpec, deploy: Deployment, names: set[str]) -> Iterator[Term]:
    """Matrices and vectors, merged where operator, compute format and expert count are the same."""
    merged: dict[tuple[str, str, int, int, int], list[Piece]] = {}
    for piece in pieces(model, deploy):
        module = piece.module
        if module.stage in names and module.read == "whole":
            stored = number_format(piece.format)
            computes = compute_format(stored, deploy.activations)
            if module.vector:
                computes = _matrix_format(module.operator, model, deploy, names)
            key = (module.operator, computes, module.copies, module.used, module.source_tokens)
            merged.setdefault(key, []).append(piece)
    for (operator, computes, copies, used, source_tokens), members in merged.items():
        term = _weight_term(operator, computes, copies, used, members, deploy)
        yield replace(term, source_tokens=source_tokens)


@lru_cache(maxsize=1024)
def _matrix_formats(model: ModelSpec, deploy: Deployment) -> dict[tuple[str, str], str]:
    formats: dict[tuple[str, str], str] = {}
    for piece in pieces(model, deploy):
        if not piece.module.vector:
            computes = compute_format(number_format(piece.format), deploy.activations)
            formats.setdefault((piece.module.stage, piece.module.operator), computes)
    return formats


def _matrix_format(operator: str, model: ModelSpec, deploy: Deployment, names: set[str]) -> str:
    """A norm or bias rides with the matrices of its operator."""
    formats = _matrix_formats(model, deploy)
    for name in names:
        if (name, operator) in formats:
            return formats[(name, operator)]
    return sixteen_bit(deploy.activations)


def _weight_term(
    operator: str, computes: str, copies: int, used: int, members: list[Piece], deploy: Deployment
) -> Term:
    matrices = [piece for piece in members if not piece.module.vector]
    total = sum(piece.total_bytes for piece in members)
    ways = deploy.tensor_parallel * deploy.data_parallel if copies > 1 else 1
    flop = 0.0
    for piece in matrices:
        # A device of an expert layer does its share of the tokens of the whole replica.
        rows_columns = piece.module.rows * piece.module.columns / ways if copies > 1 else piece.rows * piece.columns
        flop += 2.0 * rows_columns * used * piece.layers
    return Term(
        operator=operator,
        compute_format=computes,
        layers=max(piece.layers for piece in members),
        launches=_launches(matrices),
        weight_bytes=0 if copies > 1 else total,
        expert_bytes=total if copies > 1 else 0,
        experts=copies if copies > 1 else 0,
        experts_used=used if copies > 1 else 0,
        token_flop=flop,
        last_token_only=operator == "head",
    )


def _launches(matrices: list[Piece]) -> int:
    """Matrices of one layer that read the same input run as one launch."""
    inputs = {(piece.module.layers, piece.module.columns, piece.rank): piece.layers for piece in matrices}
    return sum(inputs.values())


@dataclass(frozen=True, slots=True)
class Collective:
    """A collective of one step: how often, over how many devices, and bytes of one message for each token. [B]"""

    kind: Literal["all_reduce", "all_to_all", "send"]
    count: int
    devices: int
    token_bytes: float


@lru_cache(maxsize=512)
def collectives(model: ModelSpec, deploy: Deployment) -> tuple[Collective, ...]:
    """What devices exchange in a decode step of the decoder, for each token a device works on.

    Tensor parallelism sums twice a layer (once where a layer has no mixer or no feed-forward), and once for the
    table, and gathers the logits. Expert parallelism over data-parallel ranks sends each token to its experts and
    back. A pipeline hands the hidden state on at each boundary.
    """
    if deploy.devices == 1:
        return ()
    decoder, element = model.decoder, number_format(sixteen_bit(deploy.activations)).element_bits / 8
    hidden, tp, found = decoder.hidden_size * element, deploy.tensor_parallel, []
    if tp > 1:
        sums = sum(
            len(g.indices) * ((g.mixer.kind != "none") + (g.feed_forward.kind != "none")) for g in decoder.layers
        )
        found.append(Collective("all_reduce", sums + 1, tp, hidden))
        found.append(Collective("all_to_all", 1, tp, model.vocabulary * element))
    if deploy.data_parallel > 1:
        routed = [g for g in decoder.layers if isinstance(g.feed_forward, Experts)]
        for group in routed:
            sent = hidden * group.feed_forward.experts_per_token  # type: ignore[union-attr]
            found.append(Collective("all_to_all", 2 * len(group.indices), tp * deploy.data_parallel, sent))
    if deploy.pipeline_parallel > 1:
        found.append(Collective("send", deploy.pipeline_parallel - 1, 2, hidden))
    return tuple(found)


def _mixing_terms(group: LayerGroup, stage: Stage, deploy: Deployment) -> Iterator[Term]:
    runs: dict[str, int] = {}
    for layer in group.indices:
        stored = cache_format(layer, deploy).name
        runs[stored] = runs.get(stored, 0) + 1
    tp = 1 if stage.role == "encoder" else deploy.tensor_parallel
    for stored, layers in runs.items():
        if isinstance(group.mixer, Attention):
            yield _attention_term(group.mixer, number_format(stored), layers, tp, deploy)
        elif isinstance(group.mixer, LatentAttention):
            yield from _latent_terms(group.mixer, number_format(stored), layers, tp, deploy)
    if isinstance(group.mixer, StateMixer):
        yield from _state_terms(group.mixer, group, tp, deploy)


def _attention_term(a: Attention, stored: NumberFormat, layers: int, tp: int, deploy: Deployment) -> Term:
    kv_heads = max(1, a.kv_heads // tp)
    bits = stored.cache_bits(kv_heads * a.head_size) + stored.cache_bits(kv_heads * a.value_head_size)
    pair = 2.0 * (a.query_heads / tp) * (a.head_size + a.value_head_size) * layers
    return Term(
        operator="attention",
        compute_format=compute_format(stored, deploy.activations),
        layers=layers,
        launches=layers,
        key_flop=pair,
        prefill_key_flop=pair,
        key_bytes=layers * bits / 8,
        window=a.window or 0,
        source_tokens=a.source_tokens or 0 if a.span == "cross" else 0,
        chunked=a.span == "chunked",
    )


def _latent_terms(a: LatentAttention, stored: NumberFormat, layers: int, tp: int, deploy: Deployment) -> Iterator[Term]:
    heads = a.query_heads / tp
    top_k = a.indexer.top_k if a.indexer else 0
    yield Term(
        operator="attention",
        compute_format=compute_format(stored, deploy.activations),
        layers=layers,
        launches=layers,
        key_flop=2.0 * heads * (2 * a.kv_rank + a.rope_size) * layers,
        prefill_key_flop=2.0 * heads * (a.nope_size + a.rope_size + a.value_size) * layers,
        key_bytes=layers * stored.cache_bits(a.latent_size) / 8,
        window=top_k,
    )
    if a.indexer is not None:
        pair = 2.0 * a.indexer.heads * a.indexer.head_size * layers
        yield Term(
            operator="attention",
            compute_format=compute_format(stored, deploy.activations),
            layers=layers,
            launches=layers,
            key_flop=pair,
            prefill_key_flop=pair,
            key_bytes=layers * stored.cache_bits(a.indexer.head_size) / 8,
        )


def _state_terms(mixer: StateMixer, group: LayerGroup, tp: int, deploy: Deployment) -> Iterator[Term]:
    """A step reads the state and writes it back."""
    conv = number_format(sixteen_bit(deploy.activations))
    for layer in group.indices:
        formats = {"recurrent": state_format(layer, deploy), "conv": conv}
        bits = sum(formats[state.kind].cache_bits(-(-state.elements // tp)) for state in mixer.state)
        yield Term(
            operator="state",
            compute_format="fp32" if mixer.update_flop else conv.name,
            layers=1,
            launches=1,
            token_flop=mixer.update_flop / tp,
            sequence_bytes=2 * bits / 8,
        )


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
    """The work of one decode step, term by term, in the broadcast shape of ``batch`` and ``context_tokens``."""
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
    """The work of prefilling ``batch`` prompts in one pass: each weight is read once, the head meets last tokens."""
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
