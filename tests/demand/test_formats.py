"""Which format a part is stored in and an operator computes in, case by case."""

from __future__ import annotations

import pytest

import capacity as cap
from capacity.demand.arithmetic import wider_format
from capacity.demand.formats import activation_element_bytes, cache_format, state_format
from capacity.units import number_format


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

    assert cache_format(0, deploy).name == cache
    assert activation_element_bytes(deploy) == number_format(cache).element_bits // 8
    assert state_format(0, deploy).name == "fp32"


def test_the_last_override_of_a_layer_wins():
    first = {"part": "kv_cache", "layers": "0:8", "format": "int8"}
    second = {"part": "kv_cache", "layers": "4:", "format": "q4_0"}
    deploy = cap.Deployment(weights="bf16", overrides=[first, second])

    assert [cache_format(layer, deploy).name for layer in (0, 3, 4, 7, 8)] == ["int8", "int8", "q4_0", "q4_0", "q4_0"]
