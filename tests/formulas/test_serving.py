"""Latency of a request and throughput against tables of NVIDIA's GenAI-Perf, and against counting tokens."""

from __future__ import annotations

import pytest

from capacity.formulas import serving


# GenAI-Perf prints mean time to first token, inter-token latency, output length and request latency, each rounded: its
# README (gpt2, TensorRT-LLM), and a run of llama-3.1-8b-instruct on a NIM of 2024-10-14.
@pytest.mark.parametrize(
    ("ttft_ms", "tpot_ms", "tokens", "latency_ms"), [(16.26, 1.85, 261.90, 499.20), (71.66, 18.47, 15.96, 348.00)]
)
def test_a_request_takes_the_latency_that_genai_perf_prints(ttft_ms, tpot_ms, tokens, latency_ms):
    assert float(serving.request_latency_s(ttft_ms / 1e3, tpot_ms / 1e3, tokens)) == pytest.approx(
        latency_ms / 1e3, rel=1e-3
    )


def test_the_last_token_comes_when_the_tokens_after_the_first_have_come():
    arrivals = [0.180]
    while len(arrivals) < 20:
        arrivals.append(arrivals[-1] + 0.035)

    assert float(serving.request_latency_s(0.180, 0.035, 20)) == pytest.approx(arrivals[-1], rel=1e-12)


def test_a_single_token_takes_the_time_to_first_token():
    assert float(serving.request_latency_s(0.180, 0.035, 1)) == 0.180


def test_latencies_of_arrays_are_those_of_their_elements():
    many = serving.request_latency_s([0.1, 0.2], 0.03, [[10], [100]])

    assert many.shape == (2, 2)
    assert many[1, 0] == serving.request_latency_s(0.1, 0.03, 100)


# In one second there are 25 steps of 40 ms; each gives every one of 16 sequences a token.
def test_a_batch_makes_a_token_for_each_sequence_in_each_step():
    assert float(serving.tokens_per_s(16, 0.040)) == pytest.approx(25 * 16)
    assert serving.tokens_per_s([1, 16], [0.02, 0.04]).tolist() == pytest.approx([50, 400])
