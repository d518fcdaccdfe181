"""What each operator of a pass costs, as coefficients of tokens, sequences and keys, read off the specs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from capacity.demand.modules import Module
from capacity.demand.placement import Piece, cache_format, pieces, sixteen_bit, state_format
from capacity.specs.deployment import Deployment
from capacity.specs.model import Attention, LatentAttention, LayerGroup, ModelSpec, Stage, StateMixer
from capacity.units import NumberFormat, number_format


@dataclass(frozen=True, slots=True)
class Term:
    """One operator of like layers on the devices that one token passes, all pipeline ranks together.

    Parameters
    ----------
    layers : that mix alike; 0 for matrices and vectors, whose bytes and FLOP are sums already.
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
    layers: int = 0
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
                computes = _matrix_format(module, model, deploy)
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


def _matrix_format(vector: Module, model: ModelSpec, deploy: Deployment) -> str:
    """A norm or bias rides with the matrices of its operator."""
    return _matrix_formats(model, deploy).get((vector.stage, vector.operator), sixteen_bit(deploy.activations))


def _weight_term(
    operator: str, computes: str, copies: int, used: int, members: list[Piece], deploy: Deployment
) -> Term:
    matrices = [piece for piece in members if not piece.module.vector]
    total = sum(piece.total_bytes for piece in members)
    routed = operator == "experts"  # of which a layer may have a single one
    ways = deploy.tensor_parallel * deploy.data_parallel
    flop = 0.0
    for piece in matrices:
        # A device of an expert layer does its share of the tokens of the whole replica.
        rows_columns = piece.module.rows * piece.module.columns / ways if routed else piece.rows * piece.columns
        flop += 2.0 * rows_columns * used * piece.layers
    return Term(
        operator=operator,
        compute_format=computes,
        launches=_launches(matrices),
        weight_bytes=0 if routed else total,
        expert_bytes=total if routed else 0,
        experts=copies if routed else 0,
        experts_used=used if routed else 0,
        token_flop=flop,
        last_token_only=operator == "head",
    )


def _launches(matrices: list[Piece]) -> int:
    """Matrices of one layer that read the same input in the same format run as one launch."""
    inputs = {(p.module.layers, p.module.columns, p.rank, p.format): p.layers for p in matrices}
    return sum(inputs.values())


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
