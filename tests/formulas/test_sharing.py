"""Robots and sessions on one device, against published runs and the chapter."""

import numpy as np
import pytest

from capacity.errors import CapacityError
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


# 0.3 s at 5 tokens per second are one token and a half; memory rounds up.
def test_a_token_that_has_begun_takes_a_whole_place():
    tokens = k.cache_tokens([0, 0.2, 0.3], start_tokens=20, tokens_per_s=5, window_tokens=None)

    assert tokens.tolist() == [20, 21, 22]


def test_a_session_without_a_window_grows_for_ever():
    assert float(k.cache_tokens(1e6, start_tokens=0, tokens_per_s=7680, window_tokens=None)) == 7.68e9


def test_memory_that_is_full_is_full_at_once():
    assert k.seconds_until_full([0, -1e9], sessions=1, bytes_per_s=1e-3).tolist() == [0, 0]


def test_full_memory_holds_no_session():
    assert float(k.sessions_that_fit(-1e9, constant_bytes=1, cache_bytes=0)) == 0


def test_nonsense_is_refused():
    with pytest.raises(CapacityError, match="without growth"):
        k.seconds_until_full(1e9, sessions=1, bytes_per_s=0)
    with pytest.raises(CapacityError, match="not be negative"):
        k.sessions_that_fit(1e9, constant_bytes=-1, cache_bytes=np.zeros(2))
