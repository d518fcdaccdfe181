"""The torch prefill against the step of the CPU decoder: two programs, one model, the same next token."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="the CPU decoder is built with g++")


@pytest.mark.parametrize(("kv_heads", "tied"), [(4, False), (2, False), (1, True)])
def test_a_prefill_gives_what_single_steps_give(kv_heads, tied):
    from capacity.measure.cpu_decoder import CpuDecoder, weights_of
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

    decoder = CpuDecoder(shape, 1, len(prompt), weights=weights_of(model))
    for number, token in enumerate(prompt, start=1):
        decoder.move_to(number)
        decoder.tokens[:] = token
        decoder.step()
    logits = decoder.workspace["logits"][0].astype(np.float64)
    expected = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
    found = model(torch.tensor([prompt]))[0].numpy()
    assert np.abs(found - expected).max() < 1e-5 * expected.max()


def test_the_check_of_a_prefill_finds_a_wrong_layer():
    from capacity.measure.harness import check_prefill
    from capacity.measure.prefill import Prefill
    from capacity.measure.shape import DecoderShape

    sizes = {"layers": 3, "hidden_size": 128, "query_heads": 4, "kv_heads": 2, "head_size": 32}
    shape = DecoderShape(
        name="t", intermediate_size=192, vocabulary=256, weight_format="fp32", kv_format="fp32", **sizes
    )
    model = Prefill(shape, seed=3)
    good = check_prefill(model)
    assert good.relative_error < good.tolerance
    assert good.argmax_match
    model._rotate = lambda heads: heads
    assert check_prefill(model).relative_error > 100 * good.tolerance
