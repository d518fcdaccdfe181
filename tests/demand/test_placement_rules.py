"""What a device may hold a share of, and which layers lie on which pipeline rank."""

from __future__ import annotations

import pytest

import capacity as cap
from capacity.demand.pipeline import layers_per_rank
from capacity.errors import CapacityError


def weights_gib(sizing):
    return max(sum(line.held_bytes for line in one.lines if "weights" in line.name) for one in sizing.ledger) / 2**30


# The rule of vLLM's get_pp_indices: the rest goes to the ranks before the last, from the back.
@pytest.mark.parametrize(
    ("layers", "ranks", "split"),
    [(61, 3, (20, 21, 20)), (32, 4, (8, 8, 8, 8)), (62, 4, (15, 16, 16, 15)), (63, 4, (16, 16, 16, 15)), (5, 1, (5,))],
)
def test_layers_of_a_pipeline(layers, ranks, split):
    assert layers_per_rank(layers, cap.Deployment(pipeline_parallel=ranks)) == split


def test_the_heaviest_stage_of_kimi_k2_holds_21_layers():
    model, part = cap.load_model("kimi-k2"), cap.load_hardware("nvidia-h100-sxm5-80gb")
    degrees = {"tensor_parallel": 8, "pipeline_parallel": 3}
    even = cap.size(model, part, None, cap.Deployment(**degrees))
    shorter = cap.size(model, part, None, cap.Deployment(**degrees, pipeline_split=[21, 20, 20]))

    assert weights_gib(even) == pytest.approx(42.08, abs=0.01)
    assert weights_gib(shorter) == pytest.approx(40.42, abs=0.01)
    assert "pipeline_split = 20, 21, 20 layers" in even.assumed
    assert not any("pipeline_split" in line for line in shorter.assumed)


@pytest.mark.parametrize(
    ("split", "sentence"),
    [([20, 21, 21], "adds up to 62, not to the 61 layers of kimi-k2"), ([30, 31], "has 2 numbers of layers for pipel")],
)
def test_a_split_that_cannot_be_is_refused(split, sentence):
    model, part = cap.load_model("kimi-k2"), cap.load_hardware("nvidia-h100-sxm5-80gb")
    with pytest.raises(CapacityError, match=sentence):
        cap.size(model, part, None, cap.Deployment(pipeline_parallel=3, pipeline_split=split))


# 2,560 / 8 = 320 columns and 13,824 / 8 = 1,728 are no multiples of 128; engines refuse both by name.
@pytest.mark.parametrize(
    ("name", "weights", "share"),
    [
        ("qwen3-coder-480b-a35b", "fp8_block128", "320 columns, not a multiple of the 128 of fp8_block128"),
        ("llama-2-13b", "int4_g128", "1,728 columns, not a multiple of the 128 of int4_g128"),
    ],
)
def test_a_group_that_a_device_would_hold_a_part_of_is_refused(name, weights, share):
    model = cap.load_model(name)
    with pytest.raises(CapacityError, match=f"{share}; tensor_parallel 1, 2, 4 work"):
        cap.weight_bytes(model, cap.Deployment(weights=weights, tensor_parallel=8))
    assert cap.weight_bytes(model, cap.Deployment(weights=weights, tensor_parallel=4)) > 0


def test_experts_held_whole_are_not_cut():
    deploy = cap.Deployment(weights="fp8_block128", tensor_parallel=8, expert_parallel=8)
    assert cap.weight_bytes(cap.load_model("qwen3-coder-480b-a35b"), deploy) > 0


def test_modules_without_a_link_are_not_put_together():
    model, part = cap.load_model("llama-3.2-3b"), cap.load_hardware("nvidia-jetson-orin-nano-4gb")
    sizing = cap.size(model, part, cap.Workload(prompt_tokens=4096), cap.Deployment(weights="fp16"))

    assert not sizing.fits
    assert sizing.enough is None


def test_a_memory_shared_with_the_system_is_said_to_be():
    model, part = cap.load_model("qwen2.5-7b"), cap.load_hardware("nvidia-jetson-orin-nx-8gb")
    deploy = cap.Deployment(weights="int4_g128", activations="fp16")
    alone = cap.size(model, part, None, deploy)
    beside = cap.size(model, part, None, cap.Deployment(weights="int4_g128", activations="fp16", reserved_bytes=2**30))

    assert "memory shared with the system" in " ".join(str(alone).partition("binding constraint")[0].split())
    assert "1.00 GiB set aside for them" in " ".join(str(beside).split())
    assert alone.margin_bytes - beside.margin_bytes == 2**30
