"""The decode step in float64, kernel by kernel, in the order and with the names of the kernels.

One oracle for the decoders on both devices and for the prefill (``prompt``), written to be read next to the kernels.
Weights are the stored numbers in float64. Keys and values are those in the cache: a kernel's sum close to the midpoint
between two bf16 numbers may round the other way than the oracle's, so the oracle attends to what the kernel stored, and
``step`` returns what it would have stored itself, to be compared within one unit in the last place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from capacity.measure.shape import DecoderShape

if TYPE_CHECKING:
    from torch import Tensor

    from capacity.measure.decoder.weights import DecoderWeights


@dataclass(frozen=True)
class OracleStep:
    """Logits [batch, vocabulary], and per layer the keys and values of the step [batch, kv_heads, head_size]."""

    logits: Tensor
    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]


def step(
    shape: DecoderShape,
    weights: DecoderWeights,
    token: Tensor,
    position: Tensor,
    keys: list[Tensor],
    values: list[Tensor],
    block_table: Tensor,
) -> OracleStep:
    """One decode step of ``token`` at ``position``, after the kernels ran it: the caches hold its keys and values.

    Caches are [blocks, kv_heads, block_tokens, head_size] for each layer, ``block_table`` is [batch, blocks].
    """
    x = embed(weights.embedding.exact(), token)
    appended = []
    for layer, k_cache, v_cache in zip(weights.layers, keys, values, strict=True):
        q, k, v = qkv(shape, x, layer.attention_norm, layer.qkv.exact(), position)
        appended.append((k, v))
        attended = attention(shape, q, k_cache, v_cache, block_table, position)
        x = project(x, attended, layer.output.exact())
        x = project(x, gate_up(shape, x, layer.mlp_norm, layer.gate_up.exact()), layer.down.exact())
    logits = head(shape, x, weights.final_norm, weights.head.exact())
    return OracleStep(logits, tuple(k for k, _ in appended), tuple(v for _, v in appended))


def prompt(shape: DecoderShape, weights: DecoderWeights, tokens: Tensor) -> Tensor:
    """Logits [1, vocabulary] after the last of ``tokens`` [tokens], with causal attention."""
    import torch

    position = torch.arange(len(tokens), device=tokens.device)
    table = torch.arange(shape.context_blocks(len(tokens)), device=tokens.device).expand(len(tokens), -1)
    x = embed(weights.embedding.exact(), tokens)
    for layer in weights.layers:
        q, k, v = qkv(shape, x, layer.attention_norm, layer.qkv.exact(), position)
        attended = attention(shape, q, paged(shape, k), paged(shape, v), table, position)
        x = x + attended @ layer.output.exact().T
        x = x + gate_up(shape, x, layer.mlp_norm, layer.gate_up.exact()) @ layer.down.exact().T
    return head(shape, x[-1:], weights.final_norm, weights.head.exact())


def paged(shape: DecoderShape, rows: Tensor) -> Tensor:
    """Keys or values [tokens, kv_heads, head_size] as a cache of whole, consecutive blocks."""
    import torch

    size = shape.block_tokens
    padded = torch.nn.functional.pad(rows, (0, 0, 0, 0, 0, -len(rows) % size))
    return padded.view(-1, size, shape.kv_heads, shape.head_size).transpose(1, 2)


def stored_rows(shape: DecoderShape, cache: Tensor, block_table: Tensor, position: Tensor) -> Tensor:
    """What a cache holds at the position of each sequence [batch, kv_heads, head_size], in float64."""
    import torch

    at = position.long()
    sequence = torch.arange(len(at), device=at.device)
    return cache[block_table[sequence, at // shape.block_tokens].long(), :, at % shape.block_tokens].double()


def embed(embedding: Tensor, token: Tensor) -> Tensor:
    """Rows of the embedding."""
    return embedding[token.long()]


def normalise(shape: DecoderShape, x: Tensor, gain: Tensor) -> Tensor:
    """x / sqrt(mean(x^2) + eps) * gain."""
    return x / (x.square().mean(-1, keepdim=True) + shape.norm_eps).sqrt() * gain.double()


def qkv(
    shape: DecoderShape, x: Tensor, gain: Tensor, matrix: Tensor, position: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values [batch, heads, head_size], the first two rotated."""
    rows = (normalise(shape, x, gain) @ matrix.T).view(x.shape[0], -1, shape.head_size)
    q, k, v = rows.split([shape.query_heads, shape.kv_heads, shape.kv_heads], 1)
    return rotate(shape, q, position), rotate(shape, k, position), v


def rotate(shape: DecoderShape, heads: Tensor, position: Tensor) -> Tensor:
    """Rotate elements (i, i + head_size / 2) by position * theta ** (-2 i / head_size)."""
    import torch

    angle = rotary_angles(shape, position)[:, None, :]
    low, high = heads.chunk(2, -1)
    return torch.cat([low * angle.cos() - high * angle.sin(), high * angle.cos() + low * angle.sin()], -1)


def rotary_angles(shape: DecoderShape, position: Tensor) -> Tensor:
    """Angles [positions, head_size / 2] in float64. [rad]"""
    import torch

    pair = torch.arange(shape.head_size // 2, dtype=torch.float64, device=position.device)
    return position.double()[:, None] * shape.rope_theta ** (-2 * pair / shape.head_size)


def attention(
    shape: DecoderShape, q: Tensor, keys: Tensor, values: Tensor, block_table: Tensor, position: Tensor
) -> Tensor:
    """Attention of each sequence over its blocks [batch, query_heads * head_size]."""
    import torch

    attended = []
    for b, at in enumerate(position.tolist()):
        start = max(0, at + 1 - shape.window) if shape.window else 0
        k, v = (
            cache[block_table[b].long()].transpose(1, 2).flatten(0, 1)[start : at + 1].double()
            for cache in (keys, values)
        )
        k, v = (tensor.repeat_interleave(shape.group, 1) for tensor in (k, v))
        weight = (torch.einsum("hd,thd->ht", q[b], k) / shape.head_size**0.5).softmax(-1)
        attended.append(torch.einsum("ht,thd->hd", weight, v).flatten())
    return torch.stack(attended)


def gate_up(shape: DecoderShape, x: Tensor, gain: Tensor, matrix: Tensor) -> Tensor:
    """silu(gate) * up of the normalised x."""
    import torch

    gate, up = (normalise(shape, x, gain) @ matrix.T).chunk(2, -1)
    return torch.nn.functional.silu(gate) * up


def project(x: Tensor, values: Tensor, matrix: Tensor) -> Tensor:
    """``output`` and ``down``: x plus the product of a matrix with the values."""
    return x + values @ matrix.T


def head(shape: DecoderShape, x: Tensor, gain: Tensor, matrix: Tensor) -> Tensor:
    """Logits."""
    return normalise(shape, x, gain) @ matrix.T


def relative_error(result: Tensor, expected: Tensor) -> float:
    """Norm of the difference over the norm of the expected values; NaN stays NaN."""
    return float((result.double() - expected).norm() / expected.norm())


def bf16_steps(result: Tensor, expected: Tensor) -> float:
    """Largest difference in units in the last place of bf16 (8 significant bits), 0.5 for perfect rounding."""
    import torch

    exponent = torch.frexp(expected.abs().clamp_min(1e-30)).exponent
    return float(((result.double() - expected).abs() * 2.0 ** (8 - exponent)).max())
