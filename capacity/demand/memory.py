"""Bytes on one device: parameters, weights, key-value cache, constant state and the activation peak."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from capacity.demand.modules import Module, modules
from capacity.demand.placement import cache_format, pieces, rank_of_layer, sixteen_bit, state_format
from capacity.specs.deployment import Deployment
from capacity.specs.model import Attention, Dense, Experts, LatentAttention, LayerGroup, ModelSpec, StateMixer
from capacity.units import number_format

ArrayLike = Any


@dataclass(frozen=True, slots=True)
class ParameterCount:
    """Parameters of a model. ``active`` is total less the experts a token does not visit; with the embedding.

    ``read_per_token`` is what one decode step at batch 1 reads: the output head but not the rows of the input
    table, unless the two are tied.
    """

    total: int
    active: int
    read_per_token: int
    embedding: int
    lm_head: int
    by_module: dict[str, int]


@lru_cache(maxsize=512)
def parameter_count(model: ModelSpec) -> ParameterCount:
    """Count every parameter once; tied and shared tensors are not counted again. Shape: scalars. [parameter]

    References
    ----------
    Llama-3-8B: 8,030,261,248 (transformers 5.24.0, built on the meta device).
    """
    stored = [module for module in modules(model) if module.stored]
    by_module: dict[str, int] = {}
    for module in stored:
        key = module.operator if module.part != "norm" else "norm"
        key = module.part if module.part in ("embedding", "lm_head", "vision") else key
        by_module[key] = by_module.get(key, 0) + module.parameters
    total = sum(module.parameters for module in stored)
    idle = sum(m.parameters - m.parameters * m.used // m.copies for m in stored if m.copies > 1)
    return ParameterCount(
        total=total,
        active=total - idle,
        read_per_token=sum(_read_parameters(module) for module in modules(model)),
        embedding=by_module.get("embedding", 0),
        lm_head=by_module.get("lm_head", 0),
        by_module=by_module,
    )


def _read_parameters(module: Module) -> int:
    if module.read != "whole" or module.part == "vision":
        return 0
    return module.parameters * module.used // module.copies


@lru_cache(maxsize=512)
def weight_bytes_by_rank(model: ModelSpec, deploy: Deployment) -> tuple[dict[str, int], ...]:
    """Weight bytes on a device of each pipeline rank, by part. [B]"""
    ranks: list[dict[str, int]] = [{} for _ in range(deploy.pipeline_parallel)]
    for piece in pieces(model, deploy):
        if piece.module.stored:
            row = ranks[piece.rank]
            row[piece.module.part] = row.get(piece.module.part, 0) + piece.total_bytes
    if deploy.pipeline_parallel > 1:
        _copy_tied_table(model, deploy, ranks)
    return tuple(ranks)


def _copy_tied_table(model: ModelSpec, deploy: Deployment, ranks: list[dict[str, int]]) -> None:
    """A tied head on another pipeline rank than the table is a second copy."""
    for piece in pieces(model, deploy):
        if piece.module.part == "lm_head" and not piece.module.stored:
            ranks[-1]["lm_head"] = ranks[-1].get("lm_head", 0) + piece.total_bytes


@dataclass(frozen=True, slots=True)
class CacheRow:
    """Layers of one kind on one pipeline rank: what each token and each sequence costs in one of them.

    ``window`` is 0 for a cache that grows without end. ``constant_bytes`` are those of a cross-attention source.
    """

    rank: int
    layers: int
    token_bytes: int
    window: int
    constant_bytes: int
    format: str


@lru_cache(maxsize=512)
def cache_rows(model: ModelSpec, deploy: Deployment) -> tuple[CacheRow, ...]:
    """The key-value caches of the decoder stages, per device, in rows of layers that are alike."""
    counts: dict[tuple[int, int, int, int, str], int] = {}
    for stage in model.stages:
        if stage.role == "encoder":
            continue
        for group in stage.layers:
            for layer in group.indices:
                key = _cache_of_layer(group, layer, rank_of_layer(layer, stage.name, model, deploy), deploy)
                counts[key] = counts.get(key, 0) + 1
    return tuple(
        CacheRow(rank, layers, token, window, constant, name)
        for (rank, token, window, constant, name), layers in counts.items()
        if token or constant
    )


def _cache_of_layer(group: LayerGroup, layer: int, rank: int, deploy: Deployment) -> tuple[int, int, int, int, str]:
    mixer, stored = group.mixer, cache_format(layer, deploy)
    if isinstance(mixer, LatentAttention):
        bits = stored.cache_bits(mixer.latent_size)
        bits += stored.cache_bits(mixer.indexer.head_size) if mixer.indexer else 0
        return rank, -(-bits // 8), 0, 0, stored.name
    if not isinstance(mixer, Attention) or not mixer.keeps_cache:
        return rank, 0, 0, 0, stored.name
    heads = max(1, mixer.kv_heads // deploy.tensor_parallel)
    bits = stored.cache_bits(heads * mixer.head_size) + stored.cache_bits(heads * mixer.value_head_size)
    token_bytes = -(-bits // 8)
    if mixer.span == "cross":
        return rank, 0, 0, token_bytes * (mixer.source_tokens or 0), stored.name
    return rank, token_bytes, mixer.window or 0, 0, stored.name


def held_tokens(context_tokens: ArrayLike, window: int, block_tokens: int = 1) -> Any:
    """Tokens that a layer holds: min(context, window), each rounded up to blocks. [token]

    >>> int(held_tokens(100, 64, 16)), int(held_tokens(33, 0, 16))
    (64, 48)
    """
    context = np.asarray(context_tokens)
    if window:
        context = np.minimum(context, window)
    return context if block_tokens == 1 else -(-context // block_tokens) * block_tokens


def sequence_cache_bytes(
    model: ModelSpec, deploy: Deployment, *, context_tokens: ArrayLike, rank: int, block_tokens: int = 1
) -> Any:
    """Cache of one sequence on a device of one pipeline rank, in the shape of ``context_tokens``. [B]"""
    held: Any = 0
    for row in cache_rows(model, deploy):
        if row.rank == rank and row.token_bytes:
            tokens = held_tokens(context_tokens, row.window, block_tokens)
            held = held + row.layers * row.token_bytes * tokens
    return held + np.zeros(np.shape(context_tokens), dtype=np.int64)


@lru_cache(maxsize=512)
def sequence_state_bytes(model: ModelSpec, deploy: Deployment, rank: int) -> int:
    """Recurrent, convolution and cross-attention state of one sequence on a device of one pipeline rank. [B]"""
    cross = sum(row.layers * row.constant_bytes for row in cache_rows(model, deploy) if row.rank == rank)
    bits = 0
    for stage in model.stages:
        for group in stage.layers:
            if isinstance(group.mixer, StateMixer):
                for layer in group.indices:
                    if rank_of_layer(layer, stage.name, model, deploy) == rank:
                        bits += _state_bits(group.mixer, layer, deploy)
    return cross - (-bits // 8)


def _state_bits(mixer: StateMixer, layer: int, deploy: Deployment) -> int:
    """Recurrent state in its own format, convolution state at 16 bit."""
    formats = {"recurrent": state_format(layer, deploy), "conv": number_format(sixteen_bit(deploy.activations))}
    return sum(formats[state.kind].cache_bits(-(-state.elements // deploy.tensor_parallel)) for state in mixer.state)


@dataclass(frozen=True, slots=True)
class Moment:
    """A moment of a pass at which much is alive: bytes of each token in flight and of each sequence sampled. [B]"""

    name: str
    token_bytes: int
    sequence_bytes: int


@lru_cache(maxsize=512)
def activation_moments(model: ModelSpec, deploy: Deployment) -> tuple[Moment, ...]:
    """What is alive on one device at the end of the widest layer and at the sampler, for the reference decoder.

    In elements of the 16-bit (or wider) compute format, a token holds at the end of a layer residual, normed
    input, projection and new residual of the hidden width D, beside gate, up, activation and product of the
    feed-forward, 4 D + 4 F, or query, key, value, rotated query and key and attended values,
    4 D + 3 H d + 2 H_kv d + H_kv d. Experts count those that a token visits and the shared ones. The sampler
    holds D of every token, and for each sequence its normed row, the logits over the whole vocabulary (which is
    gathered), their 32-bit copy where they are narrower, and 32-bit probabilities.

    References
    ----------
    ``capacity/measure/prefill.py``: the schedule; measured runs of kind ``memory`` hold it to the byte.
    """
    element = number_format(sixteen_bit(deploy.activations)).element_bits // 8
    widest = width = 0
    for stage in model.stages:
        for group in stage.layers:
            ways = 1 if stage.role == "encoder" else deploy.tensor_parallel
            inner = max(_attention_elements(group, ways), _feed_forward_elements(group, ways))
            widest = max(widest, 4 * stage.hidden_size + inner)
        width = stage.hidden_size if stage.role == "decoder" else width
    layer = Moment("layer", widest * element, 0)
    row = element + 4 + (4 if element < 4 else 0)
    sampler = Moment("sampler", width * element, width * element + model.vocabulary * row)
    return (layer, sampler) if model.vocabulary else (layer,)


def _attention_elements(group: LayerGroup, ways: int) -> int:
    mixer = group.mixer
    if isinstance(mixer, Attention):
        kv_heads = max(1, mixer.kv_heads // ways)
        query_heads = -(-mixer.query_heads // ways)
        keys, values = mixer.head_size, mixer.value_head_size
        return query_heads * (2 * keys + values) + kv_heads * (2 * keys + values)
    if isinstance(mixer, LatentAttention):
        heads = -(-mixer.query_heads // ways)
        expanded = heads * (2 * (mixer.nope_size + mixer.rope_size) + 2 * mixer.value_size)
        return expanded + (mixer.query_rank or 0) + mixer.latent_size
    if isinstance(mixer, StateMixer):
        return 2 * sum(-(-matrix.rows // ways) for matrix in mixer.matrices)
    return 0


def _feed_forward_elements(group: LayerGroup, ways: int) -> int:
    feed_forward = group.feed_forward
    if isinstance(feed_forward, Dense):
        return 4 * -(-feed_forward.intermediate_size // ways)
    if isinstance(feed_forward, Experts):
        visited = feed_forward.experts_per_token * feed_forward.intermediate_size
        return 4 * -(-(visited + feed_forward.shared_intermediate_size) // ways)
    return 0


def tokens_in_flight(deploy: Deployment, *, rank_batch: ArrayLike, tokens: ArrayLike) -> Any:
    """Tokens of one pass: at most ``prefill_chunk_tokens`` of a prefill, never fewer than one a sequence. [token]"""
    batch = np.asarray(rank_batch)
    return np.maximum(np.minimum(batch * np.asarray(tokens), deploy.prefill_chunk_tokens), batch)


def activation_bytes(model: ModelSpec, deploy: Deployment, *, rank_batch: ArrayLike, tokens: ArrayLike) -> Any:
    """Peak of one device over phases: a prefill chunk of sequences of ``tokens`` each, or a decode step. [B]"""
    in_flight = tokens_in_flight(deploy, rank_batch=rank_batch, tokens=tokens)
    peak: Any = 0
    for moment in activation_moments(model, deploy):
        peak = np.maximum(peak, in_flight * moment.token_bytes + np.asarray(rank_batch) * moment.sequence_bytes)
    return peak
