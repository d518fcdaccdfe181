"""Sustained rates and waits against a discrete-event simulation, and against a published ladder of concurrency."""

from __future__ import annotations

import numpy as np
import pytest

from capacity.formulas import queueing, steady_state
from tests.formulas.simulation import simulate

ROUNDS = 40  # requests per slot


def step_s(decoding):
    return 0.008 + 0.0002 * decoding


def lengths(requests, mean):
    """Answers of half to one and a half times the mean, so that slots do not finish in step."""
    return np.random.default_rng(7).integers(mean // 2, mean + mean // 2, size=requests, endpoint=True)


def backlog(*, batch, mean, prefill_s):
    """Rate and time per token of requests that always wait, from when slots are out of step to the last arrival."""
    requests = batch * ROUNDS
    seen = simulate(np.zeros(requests), lengths(requests, mean), slots=batch, prefill_s=prefill_s, step_s=step_s)
    first, last = requests // 4, requests - 3 * batch
    rate = (last - first) / (seen.finished_s[last] - seen.finished_s[first])
    decode_s = (seen.finished_s - seen.first_s)[first:last]
    return rate, decode_s.sum() / (seen.output_tokens[first:last] - 1).sum()


@pytest.mark.parametrize("batch", [4, 32])
@pytest.mark.parametrize("mean", [16, 128])
@pytest.mark.parametrize("prefill", [0.004, 0.03, 0.13])
def test_prompts_that_are_prefilled_alone(batch, mean, prefill):
    rate, tpot_s = backlog(batch=batch, mean=mean, prefill_s=prefill)
    given = {"batch": batch, "output_tokens": mean}

    assert steady_state.requests_per_s(prefill, step_s(batch), **given) == pytest.approx(rate, rel=0.05)
    assert steady_state.served_tpot_s(prefill, step_s(batch), **given) == pytest.approx(tpot_s, rel=0.05)


# NVIDIA NIM 1.8.0 (docs.nvidia.com/nim/benchmarking/llm/1.0.0/performance): Llama-3-70B in fp8 on two H100, 5,000
# tokens in, 500 out. Alone 406.77 ms to the first token, 18.58 ms per token; inter-token latency at 5, 25 and 50 users.
@pytest.mark.parametrize(("users", "published_ms"), [(5, 21.83), (25, 38.75), (50, 59.73)])
def test_a_published_ladder_of_users(users, published_ms):
    found = steady_state.served_tpot_s(0.40677, 0.01858, batch=users, output_tokens=500)

    assert 1e3 * found == pytest.approx(published_ms, rel=0.025)


def drawn(mean, *, spread, count):
    """Answers of one length, or log-normal with a squared variation of 1."""
    if not spread:
        return np.full(count, mean)
    sigma = np.sqrt(np.log(2.0))
    drawn_tokens = np.random.default_rng(5).lognormal(np.log(mean) - sigma**2 / 2, sigma, count)
    return np.maximum(drawn_tokens.astype(int), 2)


# Poisson arrivals whose prefill takes a tenth or a fifth of the time. The mean number in decode follows from Little's
# law, B = L (N - 1) t(B) / (1 - s), which a straight line t solves.
@pytest.mark.parametrize("share", [0.1, 0.2])
@pytest.mark.parametrize(("mean", "prefill"), [(128, 0.03), (500, 0.13)])
@pytest.mark.parametrize("spread", [False, True])
def test_arrivals_at_random(share, mean, prefill, spread):
    """Means within 10 %; the 99th percentile of the time to first token is not below, and at most a third above."""
    count, rate = 4000, share / prefill
    arrivals = np.cumsum(np.random.default_rng(3).exponential(1.0 / rate, count))
    tokens = drawn(mean, spread=spread, count=count)
    seen = simulate(arrivals, tokens, slots=10**6, prefill_s=prefill, step_s=step_s).settled()
    decode_per_s = rate * (tokens.mean() - 1)
    in_decode = decode_per_s * 0.008 / (1 - share - decode_per_s * 0.0002)

    tpot_s = steady_state.arrivals_tpot_s(step_s(in_decode), 0.0002, prefill_share=share, decode_per_s=decode_per_s)
    assert tpot_s == pytest.approx(np.mean((seen.finished_s - seen.first_s) / (seen.output_tokens - 1)), rel=0.1)
    ttft_s = seen.first_s - seen.arrived_s
    found = prefill + step_s(in_decode) / 2 + queueing.mean_wait_s(prefill, share)
    assert found == pytest.approx(np.mean(ttft_s), rel=0.1)
    tail = prefill + step_s(in_decode) + queueing.wait_at_percentile_s(prefill, share, 99.0)
    assert 1.0 <= tail / np.percentile(ttft_s, 99.0) <= 4 / 3


def test_decode_that_leaves_no_time_has_no_end():
    assert steady_state.arrivals_tpot_s(0.01, 0.001, prefill_share=0.5, decode_per_s=[400, 500]).tolist() == [
        pytest.approx((0.01 + 0.001 / 0.1) / 0.5),
        np.inf,
    ]


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
