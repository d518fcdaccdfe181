"""FLOP and bytes of prefill and decode of a language model against independent counts."""

from __future__ import annotations

import pytest

import capacity as cap
from capacity.demand.phases import decode_phase, prefill_phase
from capacity.specs.model import Attention, Dense, Experts, LayerGroup

BF16 = cap.Deployment(weights="bf16")


def test_decode_flop_is_two_per_parameter_read_and_four_per_key(llama_2_7b):
    """The seed chapter's rule with the attention it leaves out: 2 P + 4 L H d S."""
    phase = decode_phase(llama_2_7b, BF16, batch=1, context_tokens=2048)
    matrices = 32 * (4 * 4096**2 + 3 * 4096 * 11008) + 32000 * 4096
    assert phase.flop == 2 * matrices + 4 * 32 * 32 * 128 * 2048


def test_decode_bytes_are_all_parameters_but_the_table_and_the_cache(llama_3_8b):
    """Of 1000 tokens the cache holds 999: the step makes the key of the last itself."""
    phase = decode_phase(llama_3_8b, BF16, batch=4, context_tokens=1000)
    assert phase.moved_bytes == 2 * (8_030_261_248 - 128256 * 4096) + 4 * 999 * 131_072


def test_prefill_reads_no_key_of_its_own_pass(llama_3_8b):
    """A prompt alone moves every parameter but the table, however long it is."""
    for prompt in (1, 4096):
        phase = prefill_phase(llama_3_8b, BF16, batch=2, prompt_tokens=prompt)
        assert phase.moved_bytes == 2 * (8_030_261_248 - 128256 * 4096)


def test_prefill_flop_is_two_per_parameter_and_token_and_half_a_square_of_pairs(llama_2_7b):
    """The head meets the last token of each prompt only."""
    phase = prefill_phase(llama_2_7b, BF16, batch=3, prompt_tokens=512)
    layers = 32 * (4 * 4096**2 + 3 * 4096 * 11008)
    pairs = sum(range(1, 513))
    assert phase.flop == 3 * (2 * layers * 512 + 2 * 32000 * 4096 + 4 * 32 * 32 * 128 * pairs)


def test_cross_attention_keys_are_made_once_and_read_every_step(make_decoder):
    group = LayerGroup(
        indices=(0,),
        mixer=Attention(query_heads=4, kv_heads=4, head_size=64, span="cross", source_tokens=100, source_size=512),
        feed_forward={"kind": "none"},
    )
    model = make_decoder("cross", 256, 512, [group])
    step = decode_phase(model, BF16, batch=1, context_tokens=9)
    head, query_output, norms = 512 * 256, 2 * 256 * 256, 3 * 256
    cache = 100 * 2 * 256
    assert step.moved_bytes == 2 * (head + query_output + norms + cache)
    assert step.flop == 2 * (head + query_output) + 4 * 256 * 100
    prompt = prefill_phase(model, BF16, batch=1, prompt_tokens=1)
    assert prompt.flop == step.flop + 100 * 2 * (2 * 256 * 512)


def test_prefill_flop_of_one_token_equals_decode_flop_at_context_one(mixtral_8x7b):
    prompt = prefill_phase(mixtral_8x7b, BF16, batch=1, prompt_tokens=1)
    step = decode_phase(mixtral_8x7b, BF16, batch=1, context_tokens=1)
    assert prompt.flop == step.flop
    assert prompt.moved_bytes == step.moved_bytes


# 32 layers of three matrices of 4096 x 14336, of which each of 4096 tokens meets one expert: 2 FLOP per weight and
# token.
@pytest.mark.parametrize("experts", [1, 2])
@pytest.mark.parametrize(
    ("options", "devices"), [({}, 1), ({"data_parallel": 2}, 2), ({"data_parallel": 2, "tensor_parallel": 2}, 4)]
)
def test_an_expert_layer_divides_its_flop_once_over_its_devices(make_llama, experts, options, devices):
    layer = Experts(experts=experts, experts_per_token=1, intermediate_size=14336)
    model = make_llama("few", 32, 4096, 32, 8, 128, 0, 32000, feed_forward=layer)
    deploy = cap.Deployment(weights="bf16", **options)

    for phase in (
        decode_phase(model, deploy, batch=4096, context_tokens=1),
        prefill_phase(model, deploy, batch=4096, prompt_tokens=1),
    ):
        assert phase.work.of_operator("experts")[1] == 2 * 32 * 3 * 4096 * 14336 * 4096 / devices


# With window W a query meets its own key and W - 1 before it, so a step reads min(C - 1, W - 1) keys of 2 x 4 x 64
# elements of 2 bytes in each of two layers, and computes min(C, W) pairs of 4 x 4 x 64 FLOP.
@pytest.mark.parametrize(
    ("context", "read", "pairs"), [(1, 0, 1), (100, 99, 100), (128, 127, 128), (100_000, 127, 128)]
)
def test_a_sliding_layer_reads_its_window_in_decode(make_decoder, context, read, pairs):
    group = LayerGroup(
        indices=(0, 1),
        mixer=Attention(query_heads=4, kv_heads=4, head_size=64, span="sliding", window=128),
        feed_forward=Dense(intermediate_size=256),
    )
    model = make_decoder("sliding", 256, 512, [group])
    moved, flop = decode_phase(model, BF16, batch=3, context_tokens=context).work.of_operator("attention")

    assert moved == 3 * read * 2 * 2 * 4 * 64 * 2
    assert flop == 3 * pairs * 2 * 4 * 4 * 64


# Llama 4: position p lies in chunk p // 8192, so the token at position C - 1 meets (C - 1) % 8192 keys of its chunk
# in the cache, and its own.
@pytest.mark.parametrize("context", [1, 8, 8192, 8193, 20_000])
def test_a_chunked_layer_reads_the_keys_of_the_chunk_in_decode(make_decoder, context):
    group = LayerGroup(
        indices=(0,),
        mixer=Attention(query_heads=4, kv_heads=2, head_size=64, span="chunked", window=8192),
        feed_forward=Dense(intermediate_size=256),
    )
    model = make_decoder("chunked", 256, 512, [group])
    moved, flop = decode_phase(model, BF16, batch=1, context_tokens=context).work.of_operator("attention")
    own = context - 1
    before = [key for key in range(own) if key // 8192 == own // 8192]

    assert moved == len(before) * 2 * 2 * 64 * 2
    assert flop == (len(before) + 1) * 4 * 4 * 64


# A pipeline of p ranks keeps p micro-batches of ceil(batch / p) in flight, data-parallel ranks hold ceil of those.
@pytest.mark.parametrize(
    ("options", "batch", "local"),
    [
        ({}, 7, 7),
        ({"data_parallel": 2}, 7, 4),
        ({"pipeline_parallel": 2}, 7, 4),
        ({"data_parallel": 2, "pipeline_parallel": 2}, 7, 2),
    ],
)
def test_a_device_decodes_its_share_of_a_micro_batch(llama_3_8b, options, batch, local):
    deploy = cap.Deployment(weights="bf16", **options)
    phase = decode_phase(llama_3_8b, deploy, batch=batch, context_tokens=101)

    assert (phase.sequences, phase.tokens) == (local, local)
    assert phase.work.of_operator("attention")[0] == local * 100 * 131_072


def test_a_prompt_and_a_step_say_what_they_put_on_links(llama_3_8b):
    deploy = cap.Deployment(weights="bf16", tensor_parallel=4)
    step = decode_phase(llama_3_8b, deploy, batch=3, context_tokens=100)
    prompt = prefill_phase(llama_3_8b, deploy, batch=3, prompt_tokens=100)

    assert (step.tokens, prompt.tokens) == (3, 300)
    assert (step.head_tokens, prompt.head_tokens) == (1, 1)
    assert step.collectives == prompt.collectives
    sums, logits = step.collectives
    assert (sums.kind, sums.count, sums.devices, sums.token_bytes) == ("all_reduce", 2 * 32 + 1, 4, 2 * 4096)
    assert (logits.kind, logits.count, logits.token_bytes, logits.last_token_only) == ("all_to_all", 1, 256_512, True)
