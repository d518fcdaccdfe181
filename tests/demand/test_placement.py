"""Weights of one device against logs of engines and sums by hand: formats, shards, pipeline ranks, padding."""

from __future__ import annotations

import pytest

import capacity as cap
from capacity.demand.placement import stored_bytes
from capacity.specs.model import Attention, Dense, LayerGroup
from capacity.units import GIB, number_format

BF16 = cap.Deployment(weights="bf16")


# GPTQ/AWQ group 128 with zeros 4.15625; mxfp4 4.25 (OCP MX 1.0); nvfp4 4.5; q4_K 144 B / 256; q6_K 210 B / 256.
@pytest.mark.parametrize(
    ("name", "bits"),
    [("int4_g128", 4.15625), ("mxfp4", 4.25), ("nvfp4", 4.5), ("q4_k", 4.5), ("q6_k", 6.5625), ("q8_0", 8.5)],
)
def test_effective_bits_equal_the_published_block_sizes(name, bits):
    assert number_format(name).effective_bits == bits
    assert number_format(name).matrix_bytes(4096, 4096) == int(4096 * 4096 * bits / 8)


# memory_accounting: vLLM loads phi-4 int4 group 128 in 8.51 GiB: linear layers 4.15625 bit, table and head 16 bit.
def test_four_bit_weights_keep_table_and_head_at_16_bit(make_llama):
    phi4 = make_llama("phi-4", 40, 5120, 40, 10, 128, 17920, 100352)
    held = cap.weight_bytes(phi4, cap.Deployment(weights="int4_g128"))
    assert held / GIB == pytest.approx(8.51, abs=0.01)


# vLLM, Llama-3.1-8B bf16: 14.9575 GiB of parameters (memory_accounting; the log adds a rotary table).
def test_weight_bytes_at_16_bit_are_two_bytes_a_parameter(llama_3_8b):
    assert round(cap.weight_bytes(llama_3_8b, BF16) / GIB, 4) == 14.9575


def test_tensor_parallel_ranks_hold_everything_between_them(llama_3_70b):
    """Norms are whole on each rank; the rest adds up to one model."""
    norms = 2 * (80 * 2 * 8192 + 8192)
    one = cap.weight_bytes(llama_3_70b, BF16)
    for ranks in (2, 4, 8):
        share = cap.weight_bytes(llama_3_70b, cap.Deployment(weights="bf16", tensor_parallel=ranks))
        assert ranks * (share - norms) == one - norms


def test_a_replicated_kv_head_keeps_its_whole_bias(make_decoder):
    """8 query and 2 KV heads over 4 ranks: each holds 2 query heads, one whole KV head, and the biases of both."""
    biased = Attention(query_heads=8, kv_heads=2, head_size=64, value_size=32, biases=("query", "key", "value"))
    group = LayerGroup(indices=(0, 1, 2), mixer=biased, feed_forward=Dense(intermediate_size=512))
    model = make_decoder("biased", 512, 1000, [group])
    parts = stored_bytes(model, cap.Deployment(weights="bf16", tensor_parallel=4))[0]

    rows = 2 * 64 + 64 + 32  # query, key, value
    output = 512 * 2 * 32
    assert parts["attention"] == 3 * 2 * (rows * 512 + rows + output)


def test_experts_divide_over_tensor_times_data_parallel_devices(deepseek_v3):
    """Routed experts: 58 layers x 256 x 3 x 7168 x 2048; on 8 devices one eighth, cut by expert or by column."""
    routed = 58 * 256 * 3 * 7168 * 2048 * 2
    for options in ({"expert_parallel": 8, "data_parallel": 8}, {"tensor_parallel": 8}, {"data_parallel": 8}):
        parts = stored_bytes(deepseek_v3, cap.Deployment(weights="bf16", **options))[0]
        shared = 58 * 3 * 7168 * 2048 * 2 // options.get("tensor_parallel", 1)
        assert parts["experts"] == routed // 8 + shared


def test_pipeline_ranks_hold_the_model_once_between_them(llama_3_70b):
    deploy = cap.Deployment(weights="bf16", pipeline_parallel=3)
    ranks = [sum(parts.values()) for parts in stored_bytes(llama_3_70b, deploy)]
    assert sum(ranks) == cap.weight_bytes(llama_3_70b, BF16)
    # 80 layers over 3: 27, 27, 26; the table first and the head last are equally large.
    layer = (8192 * 8192 * 2 + 2 * 1024 * 8192 + 3 * 8192 * 28672 + 2 * 8192) * 2
    assert ranks[1] == 27 * layer
    assert ranks[0] - ranks[1] == 128256 * 8192 * 2


def test_a_tied_head_on_another_pipeline_rank_is_a_second_copy(make_llama):
    tied = make_llama("tied", 4, 256, 4, 4, 64, 512, 1000, tied=True)
    one = cap.weight_bytes(tied, BF16)
    two = stored_bytes(tied, cap.Deployment(weights="bf16", pipeline_parallel=2))
    assert sum(sum(parts.values()) for parts in two) == one + 1000 * 256 * 2


def test_padding_of_the_vocabulary_is_charged(make_llama):
    model = make_llama("odd", 1, 64, 4, 4, 16, 128, 1001)
    parts = stored_bytes(model, cap.Deployment(weights="bf16", tensor_parallel=4))[0]
    assert parts["embedding"] == 251 * 64 * 2
