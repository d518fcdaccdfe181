"""Sustained rates of a replica: against sums by hand of its own times, published runs, and physics."""

from __future__ import annotations

import numpy as np
import pytest

import capacity as cap
from capacity.studies.steady import largest_where

H100, H200 = "nvidia-h100-sxm5-80gb", "nvidia-h200-sxm5-141gb"
BF16 = cap.Deployment(weights="bf16", activations="bf16")


@pytest.fixture(scope="module")
def llama():
    return cap.load_model("llama-3.1-8b")


@pytest.fixture(scope="module")
def h100():
    return cap.load_hardware(H100)


# Prefill of 8,192 tokens takes 133.67 ms and a step of 32 sequences 14.82 ms on the datasheet: a request costs
# 133.67 + 127 x 14.82 / 32 ms, which makes 665 token/s of what decode alone would make, 2,160.
def test_prefill_and_decode_share_the_device(llama, h100):
    work = cap.Workload(prompt_tokens=8192, output_tokens=128, concurrency=32)
    found = cap.sustained(llama, h100, work, BF16).at_concurrency

    assert found.tokens_per_s.roofline == pytest.approx(128 / (0.13367 + 127 * 0.014817 / 32), rel=2e-3)
    assert found.tpot_s.roofline == pytest.approx(0.014817 + 31 * 0.13367 / 127, rel=2e-3)


def test_each_side_is_made_of_its_own_times(llama, h100):
    work = cap.Workload(prompt_tokens=2000, output_tokens=500, concurrency=64)
    found = cap.sustained(llama, h100, work, BF16).at_concurrency
    prefill = cap.ttft(llama, h100, BF16, batch=1, prompt_tokens=2000)
    step = cap.tpot(llama, h100, BF16, batch=64, context_tokens=2250)

    for side in ("roofline", "attainable"):
        prompt_s, step_s = getattr(prefill, side), getattr(step, side)
        rate = 1 / (prompt_s + 499 * step_s / 64)
        assert getattr(found.requests_per_s, side) == pytest.approx(rate, rel=1e-9)
        assert getattr(found.tokens_per_s, side) == pytest.approx(500 * rate, rel=1e-9)
        assert getattr(found.ttft_s, side) == pytest.approx(prompt_s + step_s, rel=1e-9)


# Qwen3-32B in fp8 on one H200, 4,000 in and 1,000 out, 51 requests: 143 ms and 19.36 ms on the datasheet.
def test_a_fleet_bought_on_decode_alone_would_be_too_small():
    work = cap.Workload(prompt_tokens=4000, output_tokens=1000, concurrency=51)
    deploy = cap.Deployment(weights="fp8_e4m3", activations="fp8_e4m3", kv_cache="bf16")
    found = cap.sustained(cap.load_model("qwen3-32b"), cap.load_hardware(H200), work, deploy).at_concurrency

    assert found.tokens_per_s.roofline == pytest.approx(1000 / (0.143 + 1000 * 0.01936 / 51), rel=0.02)


# NVIDIA NIM 1.8.0 (docs.nvidia.com/nim/benchmarking/llm/1.0.0/performance): Llama-3-70B in fp8 on two H100, 5,000 in
# and 500 out: output tokens per second with 5, 25 and 50 users.
@pytest.mark.parametrize(("users", "published"), [(5, 218.48), (25, 623.40), (50, 814.37)])
def test_no_published_rate_is_above_the_bound(h100, users, published):
    work = cap.Workload(prompt_tokens=5000, output_tokens=500, concurrency=users)
    deploy = cap.Deployment(weights="fp8_e4m3", kv_cache="fp8_e4m3", tensor_parallel=2)
    found = cap.sustained(cap.load_model("llama-3-70b"), h100, work, deploy).at_concurrency.tokens_per_s

    assert published < found.bound
    assert 0.5 < published / found.attainable < 1.1


@pytest.mark.parametrize("name", ["llama-3.1-8b", "qwen3-30b-a3b", "mixtral-8x7b"])
@pytest.mark.parametrize("concurrency", [1, 7, 64])
def test_the_bound_is_above_all_and_leaves_room_for_the_prefill(h100, name, concurrency):
    """No more prompts than the peak computes: two FLOP per token for each weight that a token meets in the layers."""
    model, deploy = cap.load_model(name), BF16.replace(tensor_parallel=2)
    work = cap.Workload(prompt_tokens=3000, output_tokens=200, concurrency=concurrency)
    found = cap.sustained(model, h100, work, deploy).at_concurrency.requests_per_s
    count = cap.parameter_count(model)
    layers = count.active - count.embedding - count.lm_head
    decoder_layers = model.decoder.layer_count
    flop = 2 * layers * 3000 * (decoder_layers - 1) / decoder_layers

    assert found.bound >= max(found.roofline, found.attainable)
    assert found.bound * flop <= 2 * 989.4e12 * 1.001


@pytest.mark.parametrize(
    "limits", [{"max_tpot_s": 0.02}, {"max_tpot_s": 0.03, "max_ttft_s": 0.06}, {"max_ttft_s": 0.05}]
)
def test_the_largest_concurrency_holds_and_one_more_does_not(llama, h100, limits):
    work = cap.Workload(prompt_tokens=1000, output_tokens=300, **limits)
    found = cap.sustained(llama, h100, work, BF16)
    most, side = found.largest.concurrency, found.rests_on

    def times(concurrency):
        rates = cap.sustained(llama, h100, work.replace(concurrency=concurrency), BF16).at_concurrency
        return {"max_tpot_s": getattr(rates.tpot_s, side), "max_ttft_s": getattr(rates.ttft_s, side)}

    here, beyond = times(most), times(most + 1)
    assert all(here[name] <= limit for name, limit in limits.items())
    if found.ended_by == "memory":
        assert most == cap.max_batch(llama, h100, BF16, context_tokens=1300)
    else:
        assert beyond[f"max_{found.ended_by.lower()}_s"] > limits[f"max_{found.ended_by.lower()}_s"]


def test_objectives_that_no_request_keeps(llama, h100):
    found = cap.sustained(llama, h100, cap.Workload(max_tpot_s=1e-4, requests_per_s=1.0), BF16)

    assert (found.largest, found.ended_by, found.arrivals) == (None, "TPOT", None)
    assert "no request keeps the objectives" in str(found)


def test_arrivals_take_the_fewest_replicas_and_sequences(llama, h100):
    work = cap.Workload(prompt_tokens=2000, output_tokens=500, max_tpot_s=0.05, requests_per_s=20.0, percentile=99.0)
    found = cap.sustained(llama, h100, work, BF16)
    most, side, arrivals = found.largest.requests_per_s, found.rests_on, found.arrivals

    assert arrivals.max_requests_per_s == getattr(most, side)
    assert arrivals.replicas == int(np.ceil(20 / getattr(most, side)))
    own_rate = 20 / arrivals.replicas
    assert arrivals.utilisation == pytest.approx(own_rate / getattr(most, side))
    rates = [
        getattr(cap.sustained(llama, h100, work.replace(concurrency=n), BF16).at_concurrency.requests_per_s, side)
        for n in (arrivals.concurrency - 1, arrivals.concurrency)
    ]
    assert rates[0] < own_rate <= rates[1]
    assert arrivals.ttft_percentile_s > arrivals.ttft_s > getattr(found.at_concurrency.ttft_s, side) / 2
    assert arrivals.within


def test_data_parallel_ranks_of_a_dense_model_add_up(llama, h100):
    work = cap.Workload(prompt_tokens=2000, output_tokens=500, concurrency=32)
    one = cap.sustained(llama, h100, work.replace(concurrency=16), BF16).at_concurrency
    two = cap.sustained(llama, h100, work, BF16.replace(data_parallel=2)).at_concurrency

    for side in ("bound", "roofline", "attainable"):
        assert getattr(two.requests_per_s, side) == pytest.approx(2 * getattr(one.requests_per_s, side), rel=1e-9)
        assert getattr(two.tpot_s, side) == pytest.approx(getattr(one.tpot_s, side), rel=1e-9)


@pytest.mark.parametrize("edge", [0, 1, 2, 3, 1023, 1024, 1025, 5_000_000, 12_345_678])
def test_the_search_finds_the_edge_in_few_calls(edge):
    calls = []

    def holds(numbers):
        calls.append(len(numbers))
        return numbers <= edge

    assert largest_where(holds, 12_345_678) == edge
    assert len(calls) <= 5
    assert max(calls) <= 1024


def test_the_search_of_nothing_is_nothing():
    assert largest_where(lambda numbers: numbers > 0, 0) == 0
