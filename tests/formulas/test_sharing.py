"""Robots and sessions on one device, against published runs and the chapter."""

import numpy as np
import pytest

from capacity.errors import CapacityError
from capacity.formulas import paging as kv_tools
from capacity.formulas import sharing as k


# GR00T N1.7 on an A30, vllm-omni #6567: 152.3 ms a decision and 6.56 to 6.77 decisions a second, however many ask.
def test_robots_without_batching_are_those_that_one_device_serves_in_turn():
    assert float(k.robots_unbatched(0.1523, replan_interval_s=1.0)) == 6


def test_robots_without_batching_are_whole():
    assert k.robots_unbatched([0.073, 0.1, 0.6], replan_interval_s=0.5).tolist() == [6.0, 5.0, 0.0]


def test_sessions_of_a_growing_cache():
    # 30 frames/s of 256 tokens into a Llama-2-7B (524,288 B a token) grow at 4.03 GB/s.
    growth = 30 * 256 * 524_288

    assert growth == pytest.approx(4.03e9, rel=1e-3)
    assert float(k.seconds_until_full(62e9, sessions=2, bytes_per_s=growth)) == pytest.approx(62 / 8.053, rel=1e-3)
    tokens = k.cache_tokens([1, 10], start_tokens=0, tokens_per_s=7680, window_tokens=25_600)
    assert tokens.tolist() == [7680, 25_600]
    held = k.sessions_that_fit(62e9, constant_bytes=0, cache_bytes=tokens * 524_288)
    assert held.tolist() == [15, 4]


def test_full_memory_holds_no_session():
    assert float(k.sessions_that_fit(-1e9, constant_bytes=1, cache_bytes=0)) == 0


def test_paged_cache_reserves_what_is_used_and_contiguous_what_could_be():
    lengths = [100, 300, 2000]
    contiguous = kv_tools.contiguous_tokens(lengths, longest_tokens=2048)
    paged = kv_tools.paged_tokens(lengths, block_tokens=16)

    assert (contiguous, paged) == (3 * 2048, 112 + 304 + 2000)
    fit = [
        kv_tools.requests_that_fit(62e9, token_bytes=524_288, held_tokens=held, requests=3)
        for held in (contiguous, paged)
    ]
    assert fit == [57, 146]  # 62e9 / (524288 x 2048) = 57.7; 62e9 / (524288 x 805.3) = 146.8


def test_window_with_sinks_stops_the_growth():
    assert kv_tools.window_tokens([500, 1024, 25_600], window=1020, sinks=4).tolist() == [500, 1024, 1024]


def test_nonsense_is_refused():
    with pytest.raises(CapacityError, match="without growth"):
        k.seconds_until_full(1e9, sessions=1, bytes_per_s=0)
    with pytest.raises(CapacityError, match="does not fit"):
        kv_tools.contiguous_tokens([4096], longest_tokens=2048)
    with pytest.raises(CapacityError, match="sinks"):
        kv_tools.window_tokens(10, window=4, sinks=-1)
    with pytest.raises(CapacityError, match="not be negative"):
        k.sessions_that_fit(1e9, constant_bytes=-1, cache_bytes=np.zeros(2))
    with pytest.raises(CapacityError, match="must be positive"):
        kv_tools.requests_that_fit(1e9, token_bytes=0, held_tokens=1, requests=1)
