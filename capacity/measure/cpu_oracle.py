"""The step of the CPU decoder in float64 numpy, in the order of the kernels; it reads the decoder's own arrays."""

from __future__ import annotations

import numpy as np

from capacity.measure.cpu_decoder import PANEL, CpuDecoder, Matrix
from capacity.measure.shape import DecoderShape


def logits(decoder: CpuDecoder) -> np.ndarray:
    """Logits of the next step at the present tokens and positions, float64 [batch, vocabulary]; nothing is changed."""
    s, weights = decoder.shape, decoder.weights
    x = _rows(weights.embedding, decoder.tokens)
    for number, layer in enumerate(weights.layers):
        normed = normalise(s, x, layer["gain_1"].wide())
        x = x + _attend(decoder, number, normed @ layer["qkv"].wide().T) @ layer["output"].wide().T
        gate, up = np.split(normalise(s, x, layer["gain_2"].wide()) @ layer["gate_up"].wide().T, 2, axis=1)
        x = x + (gate / (1 + np.exp(-gate)) * up) @ layer["down"].wide().T
    return np.asarray(normalise(s, x, weights.gain.wide()) @ weights.head.wide().T)


def _rows(table: Matrix, tokens: np.ndarray) -> np.ndarray:
    panel, row = np.divmod(tokens, PANEL)
    return Matrix(table.format, table.values[panel, :, row]).wide()


def normalise(shape: DecoderShape, x: np.ndarray, gain: np.ndarray) -> np.ndarray:
    """x / sqrt(mean(x^2) + eps) * gain."""
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + shape.norm_eps) * gain


def rotate(shape: DecoderShape, heads: np.ndarray, position: int) -> np.ndarray:
    """Turn elements (i, i + head_size / 2) by position * theta ** (-2 i / head_size). [heads, head_size]"""
    half = shape.head_size // 2
    angle = position * shape.rope_theta ** (-2.0 * np.arange(half) / shape.head_size)
    low, high = heads[:, :half], heads[:, half:]
    cosine, sine = np.cos(angle), np.sin(angle)
    return np.concatenate([low * cosine - high * sine, high * cosine + low * sine], axis=1)


def _attend(decoder: CpuDecoder, layer: int, qkv: np.ndarray) -> np.ndarray:
    """Attended values of each sequence, [batch, query_heads * head_size]."""
    s = decoder.shape
    found = []
    for sequence, row in enumerate(qkv):
        position = int(decoder.positions[sequence])
        heads = row.reshape(-1, s.head_size)
        query = rotate(s, heads[: s.query_heads], position)
        key = rotate(s, heads[s.query_heads : s.query_heads + s.kv_heads], position)
        value = heads[s.query_heads + s.kv_heads :]
        keys, values = _cached(decoder, layer, sequence, position)
        first = max(0, position + 1 - s.window) if s.window else 0
        keys = np.concatenate([keys, key[None]])[first:]
        values = np.concatenate([values, value[None]])[first:]
        found.append(_softmax_attention(s, query, keys, values))
    return np.stack(found)


def _softmax_attention(s: DecoderShape, query: np.ndarray, keys: np.ndarray, values: np.ndarray) -> np.ndarray:
    keys, values = (np.repeat(array, s.group, axis=1) for array in (keys, values))
    scores = np.einsum("hd,thd->ht", query, keys) / np.sqrt(s.head_size)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    return np.asarray(np.einsum("ht,thd->hd", weights, values)).reshape(-1)


def _cached(decoder: CpuDecoder, layer: int, sequence: int, position: int) -> tuple[np.ndarray, np.ndarray]:
    """Keys and values before ``position``, [tokens, kv_heads, head_size]; keys lie transposed in their blocks."""
    s = decoder.shape
    blocks = decoder.block_table[sequence]
    shape = (len(blocks), s.kv_heads)
    keys = decoder.keys[layer][blocks].reshape(*shape, s.head_size, s.block_tokens).transpose(0, 3, 1, 2)
    values = decoder.values[layer][blocks].reshape(*shape, s.block_tokens, s.head_size).transpose(0, 2, 1, 3)
    flat = (-1, s.kv_heads, s.head_size)
    return keys.reshape(flat)[:position].astype(np.float64), values.reshape(flat)[:position].astype(np.float64)
