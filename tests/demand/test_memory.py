"""Parameters, weights, cache and state against published counts and longer ways."""

from __future__ import annotations

import numpy as np
import pytest

import capacity as cap
from capacity.demand import memory
from capacity.specs.model import Attention, Dense, LayerGroup, StateMixer, StateTensor
from capacity.units import GIB, number_format

BF16 = cap.Deployment(weights="bf16")


# Parameter totals counted on the meta device by transformers 5.24.0; Llama-2-7B also equals the checkpoint index.
@pytest.mark.parametrize(
    ("name", "total"),
    [
        ("llama_2_7b", 6_738_415_616),
        ("llama_3_8b", 8_030_261_248),
        ("llama_3_70b", 70_553_706_496),
        ("mixtral_8x7b", 46_702_792_704),
        ("deepseek_v3", 671_026_404_352),
    ],
)
def test_parameters_equal_the_published_count(name, total, request):
    assert cap.parameter_count(request.getfixturevalue(name)).total == total


# Mixtral README: 12.9 B active. DeepSeek-V3, counted with the input embedding: 37,552,282,624.
def test_active_parameters_scale_only_the_routed_experts(mixtral_8x7b, deepseek_v3):
    assert round(cap.parameter_count(mixtral_8x7b).active / 1e9, 1) == 12.9
    assert cap.parameter_count(deepseek_v3).active == 37_552_282_624


def test_read_per_token_leaves_out_the_input_table(llama_3_8b):
    count = cap.parameter_count(llama_3_8b)
    assert count.read_per_token == count.total - 128256 * 4096


# golden table: KV bytes a token at 16 bit.
@pytest.mark.parametrize(
    ("name", "token_bytes"),
    [
        ("llama_2_7b", 524_288),
        ("llama_3_8b", 131_072),
        ("llama_3_70b", 327_680),
        ("mixtral_8x7b", 131_072),
        ("deepseek_v3", 70_272),
    ],
)
def test_kv_bytes_of_a_token_equal_the_published_size(name, token_bytes, request):
    model = request.getfixturevalue(name)
    assert cap.kv_cache_bytes(model, BF16, batch=1, context_tokens=1) == token_bytes


# vllm-project/vllm#10517, V0, RTX 3090: the log prints 1952 blocks of 16 tokens in "3.81 GiB" for Llama-3.1-8B.
def test_llama_3_1_8b_kv_cache_has_the_size_that_vllm_logs(llama_3_8b):
    kv_bytes = cap.kv_cache_bytes(llama_3_8b, BF16, batch=1, context_tokens=1952 * 16)
    assert round(kv_bytes / GIB, 2) == 3.81


def test_kv_heads_are_replicated_when_there_are_fewer_than_ranks(llama_3_70b):
    # 8 KV heads: one a rank at 8, 16, 32 ranks, 2 x 80 layers x 128 x 2 bytes.
    for ranks in (8, 16, 32):
        deploy = cap.Deployment(weights="bf16", tensor_parallel=ranks)
        assert cap.kv_cache_bytes(llama_3_70b, deploy, batch=1, context_tokens=1) == 2 * 80 * 128 * 2


def test_a_latent_cache_is_whole_on_every_tensor_parallel_rank(deepseek_v3):
    for ranks in (1, 2, 8, 16):
        deploy = cap.Deployment(weights="bf16", tensor_parallel=ranks)
        assert cap.kv_cache_bytes(deepseek_v3, deploy, batch=3, context_tokens=7) == 3 * 7 * 70_272


def test_a_latent_cache_is_divided_by_data_parallel_ranks(deepseek_v3):
    deploy = cap.Deployment(weights="bf16", data_parallel=8)
    assert cap.kv_cache_bytes(deepseek_v3, deploy, batch=64, context_tokens=1) == 8 * 70_272
    assert cap.kv_cache_bytes(deepseek_v3, deploy, batch=65, context_tokens=1) == 9 * 70_272


def test_a_sliding_layer_holds_its_window_and_no_more(make_decoder):
    group = LayerGroup(
        indices=(0,),
        mixer=Attention(query_heads=8, kv_heads=2, head_size=64, span="sliding", window=100),
        feed_forward=Dense(intermediate_size=512),
    )
    model = make_decoder("sliding", 512, 1000, [group])
    held = [int(cap.kv_cache_bytes(model, BF16, batch=1, context_tokens=c)) for c in (99, 100, 101, 5000)]
    one = 2 * 2 * 64 * 2
    assert held == [99 * one, 100 * one, 100 * one, 100 * one]


# llama.cpp prints KV buffers with 34 bytes for 32 values in q8_0 and 18 in q4_0.
@pytest.mark.parametrize(("name", "bytes_of_32"), [("q8_0", 34), ("q4_0", 18), ("fp8_e4m3", 32), ("int8", 32)])
def test_a_cache_format_costs_its_group_scales_only(llama_3_8b, name, bytes_of_32):
    deploy = cap.Deployment(weights="bf16", kv_cache=name)
    elements = 2 * 32 * 8 * 128
    assert cap.kv_cache_bytes(llama_3_8b, deploy, batch=1, context_tokens=1) == elements // 32 * bytes_of_32


def test_cache_override_by_layer_is_the_mean_of_both_formats(llama_2_7b):
    mixed = cap.Deployment(weights="bf16", overrides=[{"layers": "16:32", "part": "kv_cache", "format": "int8"}])
    whole = cap.kv_cache_bytes(llama_2_7b, BF16, batch=1, context_tokens=19_200)
    assert cap.kv_cache_bytes(llama_2_7b, mixed, batch=1, context_tokens=19_200) == whole * 3 // 4


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
    parts = memory.weight_bytes_by_rank(model, cap.Deployment(weights="bf16", tensor_parallel=4))[0]

    rows = 2 * 64 + 64 + 32  # query, key, value
    output = 512 * 2 * 32
    assert parts["attention"] == 3 * 2 * (rows * 512 + rows + output)


def test_experts_divide_over_tensor_times_data_parallel_devices(deepseek_v3):
    """Routed experts: 58 layers x 256 x 3 x 7168 x 2048; on 8 devices one eighth, cut by expert or by column."""
    routed = 58 * 256 * 3 * 7168 * 2048 * 2
    for options in ({"expert_parallel": 8, "data_parallel": 8}, {"tensor_parallel": 8}, {"data_parallel": 8}):
        parts = memory.weight_bytes_by_rank(deepseek_v3, cap.Deployment(weights="bf16", **options))[0]
        shared = 58 * 3 * 7168 * 2048 * 2 // options.get("tensor_parallel", 1)
        assert parts["experts"] == routed // 8 + shared


def test_pipeline_ranks_hold_the_model_once_between_them(llama_3_70b):
    deploy = cap.Deployment(weights="bf16", pipeline_parallel=3)
    ranks = [sum(parts.values()) for parts in memory.weight_bytes_by_rank(llama_3_70b, deploy)]
    assert sum(ranks) == cap.weight_bytes(llama_3_70b, BF16)
    # 80 layers over 3: 27, 27, 26; the table first and the head last are equally large.
    layer = (8192 * 8192 * 2 + 2 * 1024 * 8192 + 3 * 8192 * 28672 + 2 * 8192) * 2
    assert ranks[1] == 27 * layer
    assert ranks[0] - ranks[1] == 128256 * 8192 * 2


def test_a_tied_head_on_another_pipeline_rank_is_a_second_copy(make_llama):
    tied = make_llama("tied", 4, 256, 4, 4, 64, 512, 1000, tied=True)
    one = cap.weight_bytes(tied, BF16)
    two = memory.weight_bytes_by_rank(tied, cap.Deployment(weights="bf16", pipeline_parallel=2))
    assert sum(sum(parts.values()) for parts in two) == one + 1000 * 256 * 2


def test_padding_of_the_vocabulary_is_charged(make_llama):
    model = make_llama("odd", 1, 64, 4, 4, 16, 128, 1001)
    parts = memory.weight_bytes_by_rank(model, cap.Deployment(weights="bf16", tensor_parallel=4))[0]
    assert parts["embedding"] == 251 * 64 * 2


# domain note on Codestral-Mamba (mamba2, 64 layers): conv (10240 x 4) 16 bit and recurrent (128 x 64 x 128) fp32
# add up to 273,678,336 B a sequence.
def test_state_of_codestral_mamba_has_the_counted_size(make_decoder):
    mixer = StateMixer(
        name="mamba2",
        heads=128,
        matrices=({"name": "in", "rows": 18560, "columns": 4096},),
        state=(
            StateTensor(name="conv", elements=10240 * 4, kind="conv"),
            StateTensor(name="ssm", elements=128 * 64 * 128, kind="recurrent"),
        ),
    )
    group = LayerGroup(indices=tuple(range(64)), mixer=mixer, feed_forward={"kind": "none"})
    model = make_decoder("codestral-mamba", 4096, 32768, [group])
    assert cap.state_bytes(model, BF16, batch=1) == 273_678_336
    assert cap.kv_cache_bytes(model, BF16, batch=1, context_tokens=4096) == 0


def test_an_element_of_an_array_equals_the_scalar(llama_3_8b):
    contexts = np.array([1, 17, 4096])
    many = cap.kv_cache_bytes(llama_3_8b, BF16, batch=np.array([[1], [5]]), context_tokens=contexts)
    assert many.shape == (2, 3)
    assert many[1, 1] == cap.kv_cache_bytes(llama_3_8b, BF16, batch=5, context_tokens=17)
    assert isinstance(cap.kv_cache_bytes(llama_3_8b, BF16, batch=5, context_tokens=17), int)


def test_activations_stop_growing_at_the_prefill_chunk(llama_3_8b):
    deploy = cap.Deployment(weights="bf16", prefill_chunk_tokens=1024)
    at = [cap.activation_bytes(llama_3_8b, deploy, batch=1, tokens=t) for t in (512, 1024, 4096)]
    assert at[1] > at[0]
    assert at[1] == at[2]
    # 1024 tokens of (4 x 4096 + 4 x 14336) x 2 B.
    assert at[2] == 1024 * (4 * 4096 + 4 * 14336) * 2


def test_the_sampler_outweighs_the_layers_of_a_large_decode_batch(llama_3_8b):
    """A step of 64 sequences: residual, normed row, logits in bf16 and fp32 and probabilities in fp32 of each."""
    found = cap.activation_bytes(llama_3_8b, BF16, batch=64, tokens=1)
    assert found == 64 * (2 * 4096 * 2 + 128256 * (2 + 4 + 4))


# The feasibility spike measured live storage of a plain torch prefill in fp32, D 1024, F 2816, 16/8 heads of 64,
# 32,000 words, 128 tokens: 7.864 MB with last-token logits, and 31.457 MB for four prompts.
def test_prefill_peak_equals_the_measured_live_storage(make_llama):
    model = make_llama("spike", 12, 1024, 16, 8, 64, 2816, 32000)
    deploy = cap.Deployment(weights="fp32", activations="fp32")
    for batch, peak in ((1, 7_864_320), (4, 31_457_280)):
        assert cap.activation_bytes(model, deploy, batch=batch, tokens=128) == peak
