"""The share of the read rate that is left where weights are dequantised."""

from __future__ import annotations

import pytest

import capacity as cap
from capacity.supply.dequantised import read_shares
from capacity.units import Arithmetic


def test_weights_that_are_computed_as_stored_read_at_the_full_rate():
    same = frozenset([Arithmetic("bf16", "bf16"), Arithmetic("fp8_e4m3", "fp8_e4m3"), Arithmetic("mxfp4", "mxfp4")])

    assert read_shares(same) == {}


def test_narrower_weights_read_at_no_higher_a_share():
    items = [Arithmetic(name, "bf16") for name in ("q6_k", "int8", "int4_g128", "q2_k")]
    shares = read_shares(frozenset(items))

    assert 1 > shares[items[1]] > shares[items[2]] == shares[items[0]] == shares[items[3]]


# pytorch-labs/gpt-fast README, Llama-2-7B, A100 80GB, batch 1: 104.9 tok/s in bf16, 155.58 in int8, 196.80 in int4 g32.
@pytest.mark.parametrize(("weights", "tokens_per_s"), [("int8", 155.58), ("int4_g32", 196.80)])
def test_the_gain_of_narrow_weights_is_near_the_published_one(weights, tokens_per_s):
    model, part = cap.load_model("llama-2-7b"), cap.load_hardware("nvidia-a100-sxm4-80gb")

    def attainable(name):
        return cap.tpot(model, part, cap.Deployment(weights=name), batch=1, context_tokens=105).attainable

    assert attainable("bf16") / attainable(weights) == pytest.approx(tokens_per_s / 104.9, rel=0.15)
