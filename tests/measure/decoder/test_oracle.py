"""The float64 oracle against torch's own operators, and a whole prompt against single steps."""

from __future__ import annotations

import pytest

from capacity.measure.shape import DecoderShape

torch = pytest.importorskip("torch")
from torch.nn import functional  # noqa: E402

from capacity.measure.decoder import oracle  # noqa: E402
from capacity.measure.decoder.weights import random_weights  # noqa: E402

SIZES = (2, 64, 4, 2, 16, 96, 130)  # layers, hidden, query heads, kv heads, head size, intermediate, vocabulary


def rotated(heads, theta):
    """[tokens, heads, head_size] turned as complex numbers: element i is the real part, i + head_size / 2 the other."""
    tokens, _, size = heads.shape
    rate = theta ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
    angle = torch.outer(torch.arange(tokens, dtype=torch.float64), rate)
    low, high = heads.chunk(2, -1)
    turned = torch.complex(low, high) * torch.polar(torch.ones_like(angle), angle)[:, None]
    return torch.cat([turned.real, turned.imag], -1)


def logits_of_torch(shape, weights, tokens):
    """The last logits of a prompt by torch's rms_norm, scaled_dot_product_attention, silu and linear, in float64."""
    size = (shape.hidden_size,)
    distance = torch.arange(len(tokens))[:, None] - torch.arange(len(tokens))
    seen = (distance >= 0) & (distance < (shape.window or len(tokens)))
    x = functional.embedding(tokens, weights.embedding.exact())
    for layer in weights.layers:
        normed = functional.rms_norm(x, size, layer.attention_norm.double(), shape.norm_eps)
        rows = functional.linear(normed, layer.qkv.exact()).view(len(tokens), -1, shape.head_size)
        q, k, v = rows.tensor_split([shape.query_heads, shape.query_heads + shape.kv_heads], 1)
        q, k = rotated(q, shape.rope_theta), rotated(k, shape.rope_theta)
        heads = (tensor.transpose(0, 1)[None] for tensor in (q, k, v))
        attended = functional.scaled_dot_product_attention(*heads, attn_mask=seen, enable_gqa=True)
        x = x + functional.linear(attended[0].transpose(0, 1).flatten(1), layer.output.exact())
        normed = functional.rms_norm(x, size, layer.mlp_norm.double(), shape.norm_eps)
        gate, up = functional.linear(normed, layer.gate_up.exact()).chunk(2, -1)
        x = x + functional.linear(functional.silu(gate) * up, layer.down.exact())
    last = functional.rms_norm(x[-1:], size, weights.final_norm.double(), shape.norm_eps)
    return functional.linear(last, weights.head.exact())


@pytest.mark.parametrize("window", [0, 5])
@pytest.mark.parametrize("weight_format", ["bf16", "fp16", "int8"])
def test_the_oracle_of_a_prompt_agrees_with_the_operators_of_torch(weight_format, window):
    shape = DecoderShape("t", *SIZES, window=window, weight_format=weight_format, norm_eps=1e-2)
    weights, tokens = random_weights(shape, seed=2), torch.tensor([5, 99, 7, 120, 31, 8, 0, 17, 64, 3, 3, 128, 40])

    expected = logits_of_torch(shape, weights, tokens)
    assert oracle.relative_error(oracle.prompt(shape, weights, tokens), expected) < 1e-13


def test_the_oracle_of_a_prompt_is_that_of_single_steps():
    """Two ways through the oracle: all tokens at once, and one after the other into a cache."""
    shape = DecoderShape("t", *SIZES, window=5)
    weights, tokens = random_weights(shape, seed=1), torch.tensor([5, 99, 7, 120, 31, 8, 0, 17, 64])
    table = torch.zeros(1, 1, dtype=torch.int32)
    keys, values = ([torch.zeros(1, 2, 16, 16, dtype=torch.float64) for _ in range(2)] for _ in range(2))
    for at, token in enumerate(tokens):
        position = torch.tensor([at])
        for _ in range(shape.layers):  # the keys of a layer depend on the attention of the layer before it
            result = oracle.step(shape, weights, token[None], position, keys, values, table)
            for layer in range(shape.layers):
                keys[layer][0, :, at] = result.keys[layer][0]
                values[layer][0, :, at] = result.values[layer][0]
        result = oracle.step(shape, weights, token[None], position, keys, values, table)
    assert oracle.relative_error(oracle.prompt(shape, weights, tokens), result.logits) < 1e-13


def test_stored_rows_are_those_at_the_position_of_each_sequence():
    shape = DecoderShape("t", *SIZES)
    cache = torch.arange(4 * 2 * 16 * 16).view(4, 2, 16, 16)
    table, position = torch.tensor([[3, 0], [2, 1]], dtype=torch.int32), torch.tensor([17, 4])

    rows = oracle.stored_rows(shape, cache, table, position)
    assert torch.equal(rows, torch.stack([cache[0, :, 1], cache[2, :, 4]]).double())
