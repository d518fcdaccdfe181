"""Sustained rates and waits against a discrete-event simulation, and against a published ladder of concurrency."""

from __future__ import annotations

import numpy as np
import pytest

from capacity.formulas import queueing, steady_state
from tests.formulas.simulation import simulate

ROUNDS = 40  # requests per slot


def step_s(decoding):
    return 0.008 + 0.0002 * decoding


def mixed_s(decoding):
    return 0.02 + step_s(decoding)


def lengths(requests, mean):
    """Answers of half to one and a half times the mean, so that slots do not finish in step."""
    return np.random.default_rng(7).integers(mean // 2, mean + mean // 2, size=requests, endpoint=True)


def backlog(*, batch, mean, chunks, prefill_s):
    """Rate and time per token of requests that always wait, from when slots are out of step to the last arrival."""
    requests = batch * ROUNDS
    seen = simulate(
        np.zeros(requests), lengths(requests, mean), slots=batch, chunks=chunks, prefill_s=prefill_s, step_s=step_s
    )
    first, last = requests // 4, requests - 3 * batch
    rate = (last - first) / (seen.finished_s[last] - seen.finished_s[first])
    decode_s = (seen.finished_s - seen.first_s)[first:last]
    return rate, decode_s.sum() / (seen.output_tokens[first:last] - 1).sum()


@pytest.mark.parametrize("batch", [4, 32])
@pytest.mark.parametrize("mean", [16, 128])
@pytest.mark.parametrize("prefill", [0.004, 0.03, 0.13])
def test_prompts_that_are_prefilled_alone(batch, mean, prefill):
    rate, tpot_s = backlog(batch=batch, mean=mean, chunks=0, prefill_s=lambda decoding: prefill)
    given = {"batch": batch, "output_tokens": mean}

    assert steady_state.requests_per_s(prefill, step_s(batch), **given) == pytest.approx(rate, rel=0.05)
    assert steady_state.seen_tpot_s(prefill, step_s(batch), **given) == pytest.approx(tpot_s, rel=0.05)


# 127 steps of 4 or 32 sequences per answer: 31 or 4 decode steps per finished request, of which chunks ride on some.
@pytest.mark.parametrize(("batch", "chunks"), [(4, 1), (4, 4), (32, 1), (32, 3)])
def test_chunks_that_ride_along(batch, chunks):
    rate, _ = backlog(batch=batch, mean=128, chunks=chunks, prefill_s=mixed_s)
    found = steady_state.chunked_requests_per_s(
        mixed_s(batch), step_s(batch), chunks=chunks, batch=batch, output_tokens=128
    )

    assert found == pytest.approx(rate, rel=0.05)


# 15 steps per answer and 4 chunks per prompt: no more than 15 / 4 sequences are in decode, whatever the slots.
def test_chunks_that_outnumber_the_decode_steps_of_a_request():
    rate, _ = backlog(batch=32, mean=16, chunks=4, prefill_s=mixed_s)
    found = steady_state.chunked_requests_per_s(mixed_s(15 / 4), 0.0, chunks=4, batch=32, output_tokens=16)

    assert found == pytest.approx(rate, rel=0.05)


# NVIDIA NIM 1.8.0 (docs.nvidia.com/nim/benchmarking/llm/1.0.0/performance): Llama-3-70B in fp8 on two H100, 5,000
# tokens in, 500 out. Alone 406.77 ms to the first token, 18.58 ms per token; inter-token latency at 5, 25 and 50 users.
@pytest.mark.parametrize(("users", "published_ms"), [(5, 21.83), (25, 38.75), (50, 59.73)])
def test_a_published_ladder_of_users(users, published_ms):
    found = steady_state.seen_tpot_s(0.40677, 0.01858, batch=users, output_tokens=500)

    assert 1e3 * found == pytest.approx(published_ms, rel=0.025)


@pytest.mark.parametrize("utilisation", [0.2, 0.5, 0.8])
@pytest.mark.parametrize("spread", [0.0, 1.0])
def test_waits_before_one_server(utilisation, spread):
    """Lindley's recursion: each waits what the one before it waited and took, less the time between the two."""
    random = np.random.default_rng(11)
    count = 400_000
    gaps = random.exponential(1.0 / utilisation, count)
    service = random.exponential(1.0, count) if spread else np.ones(count)
    waits, wait = np.empty(count), 0.0
    for place in range(count):
        waits[place] = wait
        wait = max(0.0, wait + service[place] - (gaps[place + 1] if place + 1 < count else 0.0))
    waits = waits[count // 20 :]
    given = {"squared_variation": spread}

    assert queueing.mean_wait_s(1.0, utilisation, **given) == pytest.approx(np.mean(waits), rel=0.05)
    high = np.percentile(waits, 99.0)
    assert 0.95 * high <= queueing.wait_at_percentile_s(1.0, utilisation, 99.0, **given) <= 1.4 * high


def test_an_overloaded_server_has_no_end_of_waiting():
    assert queueing.mean_wait_s(0.1, [0.5, 1.0, 2.0]).tolist() == [0.05, np.inf, np.inf]
    assert queueing.wait_at_percentile_s(0.1, [0.0, 1.0], 99.0).tolist() == [0.0, np.inf]
