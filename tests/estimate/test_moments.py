"""What is alive at each moment of a pass: the table whose largest row is the activation peak."""

from __future__ import annotations

import pytest

import capacity as cap
from capacity.errors import CapacityError

BF16 = cap.Deployment(weights="bf16")


# Llama-3-8B: hidden 4,096, 32 heads and 8 KV heads of 128, width 14,336, 32 layers; bf16, counted by hand.
def test_the_moments_of_a_layer_hold_the_tensors_counted_by_hand():
    moments = cap.activation_moments(cap.load_model("llama-3-8b"), BF16, batch=2, tokens=1000)
    mixer, forward = moments.rows[:2]

    assert (mixer.moment, mixer.layer, forward.moment, forward.layer) == ("mixer", 0, "feed-forward", 0)
    assert mixer.tensors == {
        "residual": 2000 * 4096 * 2,
        "normed input": 2000 * 4096 * 2,
        "projection": 2000 * 4096 * 2,
        "new residual": 2000 * 4096 * 2,
        "query": 2000 * 32 * 128 * 2,
        "key": 2000 * 8 * 128 * 2,
        "value": 2000 * 8 * 128 * 2,
        "rotated query": 2000 * 32 * 128 * 2,
        "rotated key": 2000 * 8 * 128 * 2,
        "attended values": 2000 * 32 * 128 * 2,
    }
    assert forward.held_bytes == 2000 * (4 * 4096 + 4 * 14336) * 2


def test_there_is_a_row_for_each_moment_of_each_layer_and_one_for_the_sampler():
    moments = cap.activation_moments(cap.load_model("llama-3-8b"), BF16, batch=1, tokens=64)

    assert len(moments.rows) == 2 * 32 + 1
    # one normed row, logits of 128,256 entries in bf16, their fp32 copy and fp32 probabilities
    assert moments.rows[-1].held_bytes == (64 + 1) * 4096 * 2 + 128_256 * (2 + 4 + 4)


@pytest.mark.parametrize("name", ["llama-3-8b", "deepseek-v3", "gpt-oss-20b", "mixtral-8x7b"])
@pytest.mark.parametrize(("batch", "tokens"), [(1, 1), (1, 9000), (64, 1), (300, 40)])
def test_the_largest_moment_is_the_activation_peak(name, batch, tokens):
    model = cap.load_model(name)
    for deploy in (BF16, BF16.replace(tensor_parallel=4, prefill_chunk_tokens=512)):
        peak = cap.activation_bytes(model, deploy, batch=batch, tokens=tokens)

        assert cap.activation_moments(model, deploy, batch=batch, tokens=tokens).peak_bytes == peak


@pytest.mark.parametrize("name", cap.world_model_ids())
def test_the_largest_moment_of_a_world_model_is_its_activation_peak(name):
    world = cap.load_world_model(name)
    peak = cap.activation_bytes(world, BF16, batch=3, tokens=500)

    assert cap.activation_moments(world, BF16, batch=3, tokens=500).peak_bytes == peak


def test_the_text_of_the_moments_joins_layers_that_are_alike():
    text = str(cap.activation_moments(cap.load_model("llama-3-8b"), BF16, batch=1, tokens=64))

    assert "0 to 31" in text
    assert "gate, up, activation, product" in " ".join(text.split())


def test_moments_of_no_sequences_are_refused():
    with pytest.raises(CapacityError, match="batch must be"):
        cap.activation_moments(cap.load_model("llama-3-8b"), BF16, batch=0, tokens=64)
