"""Overrides and degrees that a model can have."""

from __future__ import annotations

import pytest

import capacity as cap
from capacity.demand.parallelism import check_overrides
from capacity.demand.placement import weight_shards
from capacity.errors import CapacityError


def override(layers):
    return cap.Deployment(weights="bf16", overrides=[{"part": "lm_head", "format": "int8", "layers": layers}])


# A part outside the layers counts as in layer 0: a slice that begins there has it, one that begins later has not.
def test_a_head_lies_in_layer_0_for_an_override(llama_3_8b):
    check_overrides(llama_3_8b, override(":1"))

    with pytest.raises(cap.CapacityError, match="lm_head = int8 in layers 1:2 matches nothing"):
        check_overrides(llama_3_8b, override("1:2"))


# 32 layers: the last two, and none beyond.
def test_an_override_of_attention_needs_a_layer_that_exists(llama_3_8b):
    last = {"part": "attention", "format": "int8"}
    check_overrides(llama_3_8b, cap.Deployment(weights="bf16", overrides=[last | {"layers": "31:40"}]))

    with pytest.raises(cap.CapacityError, match="matches nothing in llama-3-8b"):
        check_overrides(llama_3_8b, cap.Deployment(weights="bf16", overrides=[last | {"layers": "32:40"}]))


# 8 experts over 2 of 4 devices each, cut in two: sizes of memory are whole numbers, whichever degree divides them.
def test_bytes_of_experts_over_devices_are_whole_numbers(mixtral_8x7b):
    deploy = cap.Deployment(weights="bf16", tensor_parallel=2, data_parallel=2, expert_parallel=2)

    assert all(type(shard.total_bytes) is int for shard in weight_shards(mixtral_8x7b, deploy))


# Llama-2-70B has 64 heads and 8 KV heads: 1 to 64 by doubling; its 80 layers are the other way.
def test_a_refused_degree_is_answered_with_those_that_work():
    with pytest.raises(CapacityError, match=r"tensor_parallel can be 1, 2, 4, 8, 16, 32 or 64, or pipeline_parallel"):
        weight_shards(cap.load_model("llama-2-70b"), cap.Deployment(tensor_parallel=6))


def test_a_refused_degree_of_experts_is_answered_with_those_that_work():
    with pytest.raises(CapacityError, match=r"expert_parallel can be 1, 2, 4, 8, 16, 32 or 64, where it divides"):
        weight_shards(cap.load_model("deepseek-v3"), cap.Deployment(data_parallel=3, expert_parallel=3))
