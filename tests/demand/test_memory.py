"""Cache, state and activation peak against published sizes, measured storage and longer ways."""

from __future__ import annotations

import numpy as np
import pytest

import capacity as cap
from capacity.demand.memory import activation_peaks
from capacity.specs.model import Attention, Dense, LayerGroup, ModelSpec, StateMixer
from capacity.specs.state_mixer import StateTensor
from capacity.units import GIB

BF16 = cap.Deployment(weights="bf16")


# golden table: KV bytes per token at 16 bit.
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


# A classifier over 100 labels whose only stage is an encoder: no hidden state of a decoder is sampled from, only 100
# logits in 16 bit, their 32-bit copy and 32-bit probabilities: 100 x (2 + 4 + 4) bytes.
def test_a_model_without_a_decoder_samples_from_logits_alone():
    table = {"name": "table", "shape": (100, 64), "part": "embedding"}
    stage = {"name": "encoder", "role": "encoder", "hidden_size": 64, "before": (table,)}
    model = ModelSpec(name="classifier", stages=(stage,), vocabulary=100)
    sampler = activation_peaks(model, cap.Deployment(weights="bf16"))[-1]

    assert (sampler.name, sampler.token_bytes, sampler.sequence_bytes) == ("sampler", 0, 1000)
