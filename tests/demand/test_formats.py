"""Which format a part is stored in and an operator computes in, case by case."""

from __future__ import annotations

import pytest

import capacity as cap
from capacity.demand.arithmetic import wider_format
from capacity.demand.formats import activation_element_bytes, cache_format, state_format, stored_format
from capacity.demand.modules import modules
from capacity.units import number_format

PLAIN = cap.load_model("llama-3-8b")


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
    assert wider_format(number_format(stored), activations) == computed


# DESIGN, Deployment: a cache without a stated format is 16 bit, in the type that is computed in; states stay fp32, as
# transformers keeps them.
@pytest.mark.parametrize(
    ("activations", "cache"), [("bf16", "bf16"), ("fp16", "fp16"), ("fp32", "fp32"), ("fp8_e4m3", "bf16")]
)
def test_what_a_sequence_keeps_follows_the_compute_format(activations, cache):
    deploy = cap.Deployment(weights="bf16", activations=activations)

    assert cache_format(0, PLAIN, deploy).name == cache
    assert activation_element_bytes(deploy) == number_format(cache).element_bits // 8
    assert state_format(0, deploy).name == "fp32"


def test_the_last_override_of_a_layer_wins():
    first = {"part": "kv_cache", "layers": "0:8", "format": "int8"}
    second = {"part": "kv_cache", "layers": "4:", "format": "q4_0"}
    deploy = cap.Deployment(weights="bf16", overrides=[first, second])

    assert [cache_format(layer, PLAIN, deploy).name for layer in (0, 3, 4, 7, 8)] == [
        "int8",
        "int8",
        "q4_0",
        "q4_0",
        "q4_0",
    ]


# Qwen3-14B: table and head of 151,936 x 5,120; ggml's q4_K holds 256 values in 144 bytes.
def test_a_format_of_gguf_files_quantises_table_and_head():
    model = cap.load_model("qwen3-14b")
    tables = 2 * 151_936 * 5_120
    saved = cap.weight_bytes(model, cap.Deployment(weights="int4_g32_symmetric")) - cap.weight_bytes(
        model, cap.Deployment(weights="q4_k")
    )

    assert saved == tables * 2 - tables * 144 // 256  # both have 4.5 bits per element elsewhere


# Qwen3-0.6B is tied: its table of 151,936 x 1,024 is read again as the head, in the format in which it is stored.
def test_a_tied_head_is_read_as_its_table_is_stored():
    model, part = cap.load_model("qwen3-0.6b"), cap.load_hardware("apple-m4-max-128gb")
    wide, narrow = (
        cap.tpot(model, part, cap.Deployment(weights="bf16", overrides=overrides), batch=1, context_tokens=64)
        for overrides in ((), [{"part": "embedding", "format": "int8"}])
    )

    head = 151_936 * 1_024
    moved = [sum(row.moved_bytes for row in found.rows if row.operator == "head") for found in (wide, narrow)]
    assert moved[0] - moved[1] == 2 * head - (head + 4 * 151_936)


def test_an_override_of_a_tied_head_says_that_it_is_tied():
    deploy = cap.Deployment(weights="bf16", overrides=[{"part": "lm_head", "format": "int8"}])
    with pytest.raises(cap.CapacityError, match="is tied, it is read as its table is stored; override embedding"):
        cap.weight_bytes(cap.load_model("qwen3-0.6b"), deploy)


# A model served in fp16 keeps its norms and biases in fp16; quantised, at 16 bit all the same.
@pytest.mark.parametrize(("weights", "kept"), [("fp16", "fp16"), ("fp32", "fp32"), ("int8", "bf16"), ("q4_k", "bf16")])
def test_norms_are_kept_in_the_format_of_wide_weights(llama_3_8b, weights, kept):
    norm = next(module for module in modules(llama_3_8b) if module.part == "norm")

    assert stored_format(norm, 0, llama_3_8b, cap.Deployment(weights=weights)) == kept
