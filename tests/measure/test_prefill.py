"""The torch prefill against the step of the CPU decoder: two programs, one model, the same next token."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="the CPU decoder is built with g++")


@pytest.mark.parametrize(("kv_heads", "tied"), [(4, False), (2, False), (1, True)])
def test_a_prefill_gives_what_single_steps_give(kv_heads, tied):
    from capacity.measure.cpu_decoder import CpuDecoder, Matrix, Weights
    from capacity.measure.prefill import Prefill
    from capacity.measure.shape import DecoderShape

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

    def matrix(*parts):
        return Matrix("fp32", np.ascontiguousarray(np.concatenate([part.numpy() for part in parts])))

    def gain(tensor):
        return Matrix("fp32", tensor.numpy()[None].copy())

    table = matrix(model.embedding)
    weights = Weights(table, table if tied else matrix(model.head), gain(model.gain))
    for layer in model.layers:
        weights.layers.append(
            {
                "qkv": matrix(layer["query"], layer["key"], layer["value"]),
                "output": matrix(layer["output"]),
                "gate_up": matrix(layer["gate"], layer["up"]),
                "down": matrix(layer["down"]),
                "gain_1": gain(layer["gain_1"]),
                "gain_2": gain(layer["gain_2"]),
            }
        )
    decoder = CpuDecoder(shape, 1, len(prompt), weights=weights)
    for number, token in enumerate(prompt, start=1):
        decoder.move_to(number)
        decoder.tokens[:] = token
        decoder.step()
    logits = decoder.workspace["logits"][0].astype(np.float64)
    expected = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
    found = model(torch.tensor([prompt]))[0].numpy()
    assert np.abs(found - expected).max() < 1e-5 * expected.max()
