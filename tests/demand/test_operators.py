"""Coefficients of the operators of a step against shapes multiplied out by hand."""

from __future__ import annotations

from collections import Counter

import pytest

import capacity as cap
from capacity.demand.operators import decoder_operators, stage_operators
from capacity.units import Arithmetic

BF16 = cap.Deployment(weights="bf16")


def attending(model, deploy):
    """The one operator that meets keys."""
    (cost,) = [cost for cost in decoder_operators(model, deploy).costs if cost.key_flop]
    return cost


def routed(model, deploy):
    """The one operator of routed experts."""
    (cost,) = [cost for cost in decoder_operators(model, deploy).costs if cost.experts]
    return cost


def test_latent_attention_is_absorbed_in_decode_and_expanded_in_prefill(deepseek_v3):
    """2 H (2 r + rope) = 278,528 FLOP per pair in decode, 2 H (nope + rope + v) = 81,920 in prefill, per layer."""
    cost = attending(deepseek_v3, BF16)
    assert cost.key_flop == 61 * 2 * 128 * (2 * 512 + 64)
    assert cost.expanded_key_flop == 61 * 2 * 128 * (128 + 64 + 128)


def test_tensor_parallel_divides_flop_and_bytes_but_not_the_latent(deepseek_v3):
    one, eighth = (attending(deepseek_v3, BF16.replace(tensor_parallel=ways)) for ways in (1, 8))
    assert eighth.key_bytes == one.key_bytes
    assert eighth.key_flop == one.key_flop / 8


@pytest.mark.parametrize("part", ["mlp", "attention"])
def test_each_layer_launches_each_matrix_once_whatever_its_format(llama_3_8b, part):
    """32 layers of qkv, output, gate_up and down, some of them in another format."""
    mixed = cap.Deployment(weights="bf16", overrides=[{"layers": "0:10", "part": part, "format": "int8"}])
    table = decoder_operators(llama_3_8b, mixed)
    launches = Counter()
    for cost in table.costs:
        launches[cost.operator] += cost.launches

    assert launches == dict.fromkeys(["qkv", "output", "gate_up", "down", "attention"], 32) | {"head": 1}
    assert table.launches == 5 * 32 + 1


def test_all_devices_of_an_expert_layer_do_the_flop_of_the_replica(mixtral_8x7b):
    one = routed(mixtral_8x7b, BF16)
    for options in ({"tensor_parallel": 4}, {"data_parallel": 4, "expert_parallel": 4}):
        share = routed(mixtral_8x7b, cap.Deployment(weights="bf16", **options))
        assert share.token_flop * 4 == one.token_flop
        assert share.expert_bytes * 4 == one.expert_bytes


# Llama-3-8B, counted off its shapes: 2 FLOP and 2 bytes per weight; norms ride with the operator behind them.
def test_the_columns_of_a_table_are_the_coefficients_of_its_rows(llama_3_8b):
    table = decoder_operators(llama_3_8b, BF16)
    weights = {
        "qkv": 32 * 4096 * (4096 + 2 * 1024),
        "output": 32 * 4096 * 4096,
        "gate_up": 32 * 4096 * 2 * 14336,
        "down": 32 * 4096 * 14336,
        "head": 128256 * 4096,
        "attention": 0,
    }
    norms = {"qkv": 32 * 4096, "gate_up": 32 * 4096, "head": 4096}

    assert set(table.operators) == set(weights)
    for row, operator in enumerate(table.operators):
        assert table.token_flop[row] == 2 * weights[operator]
        assert table.weight_bytes[row] == 2 * (weights[operator] + norms.get(operator, 0))
        assert table.heads[row] == (operator == "head")
        assert table.arithmetic[row] == Arithmetic("bf16", "bf16")
    assert table.attention.operators == ("attention",)
    assert set(table.matrices.operators) == {"qkv", "output", "gate_up", "down", "head"}
    assert table.routed == ()


def test_layers_with_another_cache_format_are_rows_of_their_own(llama_3_8b):
    """24 layers of 16-bit and 8 of 8-bit keys and values: 2 x 8 x 128 elements per token and layer."""
    deploy = cap.Deployment(weights="bf16", overrides=[{"layers": ":8", "part": "kv_cache", "format": "int8"}])
    rows = [cost for cost in decoder_operators(llama_3_8b, deploy).costs if cost.operator == "attention"]

    assert sum(cost.key_bytes for cost in rows) == 2048 * (24 * 2 + 8 * 1)
    assert sum(cost.layers for cost in rows) == sum(cost.launches for cost in rows) == 32
    assert sum(cost.key_flop for cost in rows) == 32 * 4 * 32 * 128


def test_a_stage_has_the_operators_of_the_decoder_alone(llama_3_8b):
    assert stage_operators(llama_3_8b, BF16, "decoder").costs == decoder_operators(llama_3_8b, BF16).costs


# Norms and biases stay at 16 bit, but are computed with the matrices of their operator: one row each, all in fp8.
def test_norms_are_computed_in_the_format_of_the_matrices_of_their_operator(llama_3_8b):
    deploy = cap.Deployment(weights="fp8_e4m3", activations="fp8_e4m3", kv_cache="fp8_e4m3")
    formats = {cost.operator: [] for cost in decoder_operators(llama_3_8b, deploy).costs}
    for cost in decoder_operators(llama_3_8b, deploy).costs:
        formats[cost.operator].append(cost.arithmetic.computed)

    inside = ("qkv", "output", "gate_up", "down", "attention")
    assert {name: formats[name] for name in inside} == {name: ["fp8_e4m3"] for name in inside}
    assert formats["head"] == ["bf16"]  # which weights = fp8 leaves at 16 bit
