"""The torch prefill against the step of the CPU decoder: two programs, one model, the same next token."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from capacity.measure.decoder.cpu.step import CpuDecoder
from capacity.measure.decoder.cpu.weights import Matrix, Weights, in_panels
from capacity.measure.decoder.prefill import Prefill
from capacity.measure.shape import DecoderShape

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="the CPU decoder is built with g++")


def weights_of(model):
    """The weights of an fp32 prefill as the CPU decoder holds them."""

    def matrix(*parts):
        return Matrix("fp32", in_panels(np.concatenate([part.numpy() for part in parts])))

    def gain(tensor):
        return Matrix("fp32", tensor.numpy())

    embedding = matrix(model.embedding)
    weights = Weights(embedding, embedding if model.shape.tied else matrix(model.head), gain(model.gain))
    for layer in model.layers:
        matrices = {
            "qkv": matrix(layer["query"], layer["key"], layer["value"]),
            "output": matrix(layer["output"]),
            "gate_up": matrix(layer["gate"], layer["up"]),
            "down": matrix(layer["down"]),
        }
        weights.layers.append(matrices | {name: gain(layer[name]) for name in ("gain_1", "gain_2")})
    return weights


@pytest.mark.parametrize(("kv_heads", "tied"), [(4, False), (2, False), (1, True)])
def test_a_prefill_gives_what_single_steps_give(kv_heads, tied):
    shape = DecoderShape(
        name="t",
        layers=3,
        hidden_size=128,
        query_heads=4,
        kv_heads=kv_heads,
        head_size=32,
        intermediate_size=192,
        vocabulary=256,
        weight_format="fp32",
        kv_format="fp32",
        tied=tied,
    )
    model, prompt = Prefill(shape, seed=3), [5, 99, 7, 200, 31, 8, 0, 17]

    decoder = CpuDecoder(shape, 1, len(prompt), weights=weights_of(model))
    for number, token in enumerate(prompt, start=1):
        decoder.move_to(number)
        decoder.tokens[:] = token
        decoder.step()
    logits = decoder.workspace["logits"][0].astype(np.float64)
    expected = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
    result = model(torch.tensor([prompt]))[0].numpy()
    assert np.abs(result - expected).max() < 1e-5 * expected.max()
