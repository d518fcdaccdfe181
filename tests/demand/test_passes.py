"""FLOP, bytes and launches against independent counts."""

from __future__ import annotations

import numpy as np
import pytest

import capacity as cap
from capacity.demand import operators as terms
from capacity.demand import work
from capacity.specs.model import Attention, Dense, Experts, LayerGroup
from capacity.units import number_format

BF16 = cap.Deployment(weights="bf16")


def _totals(items):
    items = list(items)
    return sum(float(i.moved_bytes) for i in items), sum(float(i.flop) for i in items)


def test_decode_flop_is_two_per_parameter_read_and_four_per_key(llama_2_7b):
    """The seed chapter's rule with the attention it leaves out: 2 P + 4 L H d S."""
    _, flop = _totals(work.decode_work(llama_2_7b, BF16, batch=1, context_tokens=2048))
    matrices = 32 * (4 * 4096**2 + 3 * 4096 * 11008) + 32000 * 4096
    assert flop == 2 * matrices + 4 * 32 * 32 * 128 * 2048


def test_decode_bytes_are_all_parameters_but_the_table_and_the_cache(llama_3_8b):
    moved, _ = _totals(work.decode_work(llama_3_8b, BF16, batch=4, context_tokens=1000))
    assert moved == 2 * (8_030_261_248 - 128256 * 4096) + 4 * 1000 * 131_072


# golden_cases: DeepSeek-V3 at batch 64 touches an expected 222.4 of 256 routed experts a layer.
def test_distinct_experts_of_deepseek_v3_at_batch_64():
    assert round(float(work.distinct_experts(256, 8, 64)), 1) == 222.4


def test_distinct_experts_agree_with_a_draw_of_many_routings():
    rng = np.random.default_rng(7)
    drawn = [len({e for _ in range(10) for e in rng.choice(16, size=2, replace=False)}) for _ in range(4000)]
    assert float(work.distinct_experts(16, 2, 10)) == pytest.approx(np.mean(drawn), rel=0.01)


def test_one_token_touches_exactly_its_experts():
    assert float(work.distinct_experts(8, 2, 1)) == pytest.approx(2)
    assert float(work.distinct_experts(4, 4, 3)) == 4


@pytest.mark.parametrize(("prompt", "window"), [(1, 0), (7, 0), (7, 3), (3, 7), (8, 8)])
def test_causal_pairs_equal_a_loop_over_queries(prompt, window):
    loop = sum(min(i + 1, window or i + 1) for i in range(prompt))
    assert float(work.causal_pairs(prompt, window)) == loop


def test_chunked_pairs_equal_a_loop_over_queries():
    loop = sum(i % 8 + 1 for i in range(21))
    assert float(work.causal_pairs(21, 8, chunked=True)) == loop


def test_cross_attention_keys_are_made_once_and_read_every_step(make_decoder):
    group = LayerGroup(
        indices=(0,),
        mixer=Attention(query_heads=4, kv_heads=4, head_size=64, span="cross", source_tokens=100, source_size=512),
        feed_forward={"kind": "none"},
    )
    model = make_decoder("cross", 256, 512, [group])
    moved, flop = _totals(work.decode_work(model, BF16, batch=1, context_tokens=9))
    head, query_output, norms = 512 * 256, 2 * 256 * 256, 3 * 256
    cache = 100 * 2 * 256
    assert moved == 2 * (head + query_output + norms + cache)
    assert flop == 2 * (head + query_output) + 4 * 256 * 100
    _, prefill = _totals(work.prefill_work(model, BF16, batch=1, prompt_tokens=1))
    assert prefill == flop + 100 * 2 * (2 * 256 * 512)


def test_prefill_flop_of_one_token_equals_decode_flop_at_context_one(mixtral_8x7b):
    _, prefill = _totals(work.prefill_work(mixtral_8x7b, BF16, batch=1, prompt_tokens=1))
    _, decode = _totals(work.decode_work(mixtral_8x7b, BF16, batch=1, context_tokens=1))
    assert prefill == decode


def test_latent_attention_is_absorbed_in_decode_and_expanded_in_prefill(deepseek_v3):
    """2 H (2 r + rope) = 278,528 FLOP a pair in decode, 2 H (nope + rope + v) = 81,920 in prefill, per layer."""
    (term,) = [t for t in terms.decoder_terms(deepseek_v3, BF16) if t.key_flop]
    assert term.key_flop == 61 * 2 * 128 * (2 * 512 + 64)
    assert term.prefill_key_flop == 61 * 2 * 128 * (128 + 64 + 128)


def test_tensor_parallel_divides_flop_and_bytes_but_not_the_latent(deepseek_v3):
    deploy = cap.Deployment(weights="bf16", tensor_parallel=8)
    (one,) = [t for t in terms.decoder_terms(deepseek_v3, BF16) if t.key_flop]
    (eighth,) = [t for t in terms.decoder_terms(deepseek_v3, deploy) if t.key_flop]
    assert eighth.key_bytes == one.key_bytes
    assert eighth.key_flop == one.key_flop / 8


@pytest.mark.parametrize("part", ["mlp", "attention"])
def test_each_layer_launches_each_matrix_once_whatever_its_format(llama_3_8b, part):
    """32 layers of qkv, output, gate_up and down, some of them in another format that computes in the same one."""
    mixed = cap.Deployment(weights="bf16", overrides=[{"layers": "0:10", "part": part, "format": "int8"}])
    launches = {t.operator: t.launches for t in terms.decoder_terms(llama_3_8b, mixed)}

    assert launches == dict.fromkeys(["qkv", "output", "gate_up", "down", "attention"], 32) | {"head": 1}


def test_all_devices_of_an_expert_layer_do_the_flop_of_the_replica(mixtral_8x7b):
    one = next(t for t in terms.decoder_terms(mixtral_8x7b, BF16) if t.experts)
    for options in ({"tensor_parallel": 4}, {"data_parallel": 4, "expert_parallel": 4}):
        share = next(
            t for t in terms.decoder_terms(mixtral_8x7b, cap.Deployment(weights="bf16", **options)) if t.experts
        )
        assert share.token_flop * 4 == one.token_flop
        assert share.expert_bytes * 4 == one.expert_bytes


# 32 layers of three matrices of 4096 x 14336, of which each of 4096 tokens meets one expert: 2 FLOP a weight and token.
@pytest.mark.parametrize("experts", [1, 2])
@pytest.mark.parametrize(
    ("options", "devices"), [({}, 1), ({"data_parallel": 2}, 2), ({"data_parallel": 2, "tensor_parallel": 2}, 4)]
)
def test_an_expert_layer_divides_its_flop_once_over_its_devices(make_llama, experts, options, devices):
    layer = Experts(experts=experts, experts_per_token=1, intermediate_size=14336)
    model = make_llama("few", 32, 4096, 32, 8, 128, 0, 32000, feed_forward=layer)
    deploy = cap.Deployment(weights="bf16", **options)

    for done in (
        work.decode_work(model, deploy, batch=4096, context_tokens=1),
        work.prefill_work(model, deploy, batch=4096, prompt_tokens=1),
    ):
        flop = sum(float(item.flop) for item in done if item.term.operator == "experts")
        assert flop == 2 * 32 * 3 * 4096 * 14336 * 4096 / devices


@pytest.mark.parametrize(
    ("stored", "activations", "computed"),
    [
        ("bf16", "bf16", "bf16"),
        ("int4_g128", "bf16", "bf16"),
        ("bf16", "fp8_e4m3", "bf16"),
        ("fp8_block128", "fp8_e4m3", "fp8_e4m3"),
        ("int8", "fp8_e4m3", "bf16"),
        ("q4_k", "fp16", "fp16"),
        ("mxfp4", "bf16", "bf16"),
    ],
)
def test_an_operator_computes_in_the_wider_format(stored, activations, computed):
    assert terms.compute_format(number_format(stored), activations) == computed


def test_a_sliding_layer_reads_its_window_in_decode(make_decoder):
    group = LayerGroup(
        indices=(0, 1),
        mixer=Attention(query_heads=4, kv_heads=4, head_size=64, span="sliding", window=128),
        feed_forward=Dense(intermediate_size=256),
    )
    model = make_decoder("sliding", 256, 512, [group])
    at = [_totals(work.decode_work(model, BF16, batch=1, context_tokens=c)) for c in (128, 100_000)]
    assert at[0] == at[1]
