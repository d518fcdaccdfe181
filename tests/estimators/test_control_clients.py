"""Robots and sessions on one device, against published runs and the chapter."""

import numpy as np
import pytest

from capacity.errors import CapacityError
from capacity.estimators import clients as k
from capacity.estimators import kv_tools


def test_clients_without_batching_wait_for_each_other():
    # GR00T N1.7 on an A30, vllm-omni #6567: 152.3 ms for one client, 1164.5 ms for eight (published mean).
    told = float(k.closed_loop_latency_s(8, decision_s=0.1523, think_s=0.0))

    assert told == pytest.approx(1.1645, rel=0.05)
    assert float(k.robots_unbatched(0.1523, replan_interval_s=1.0)) == 6  # 6.56 to 6.77 requests/s, whatever n


def test_think_time_hides_waiting_until_the_device_is_full():
    assert k.closed_loop_latency_s([1, 3, 10], decision_s=0.1, think_s=0.3).tolist() == pytest.approx([0.1, 0.1, 0.7])


def test_two_systems_on_one_device_reproduce_vla_perf_table_9():
    # arXiv:2602.18397 table 9, Jetson Thor: 32.3 ms and 20.3 ms; planner capped at 5 and 10 a second.
    assert k.fast_system_per_s(0.0323, 0.0203, slow_per_s=[5, 10]).round(1).tolist() == [27.8, 24.7]


def test_robots_without_batching_are_whole():
    assert k.robots_unbatched([0.073, 0.1, 0.6], replan_interval_s=0.5).tolist() == [6.0, 5.0, 0.0]


def test_batched_robots_wait_for_the_batch_before_theirs():
    times = [0.05, 0.06, 0.07, 0.08, 0.12]

    assert k.robots_batched(times, replan_interval_s=0.1, max_latency_s=1.0) == 4
    assert k.robots_batched(times, replan_interval_s=0.1, max_latency_s=0.13) == 2
    assert k.robots_batched(times, replan_interval_s=0.04, max_latency_s=1.0) == 0


def test_overlap_gains_only_where_one_part_computes_and_the_other_reads():
    chip = {"flop_per_s": 1e14, "bytes_per_s": 1e12}
    encode_alone, decode_alone = 0.02, 0.015  # 2e12 FLOP over 1e14; 15e9 B over 1e12

    mixed = float(k.overlapped_s(2e12, 1e9, 1e11, 15e9, **chip))
    assert max(encode_alone, decode_alone) <= mixed < encode_alone + decode_alone
    same = float(k.overlapped_s(0, 15e9, 0, 15e9, **chip))
    assert same == pytest.approx(0.030)


def test_pipeline_on_two_devices_hides_the_shorter_part():
    latency, interval = k.pipeline_s(0.02, 0.05)

    assert (float(latency), float(interval)) == (pytest.approx(0.07), 0.05)


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
    with pytest.raises(CapacityError, match="cannot run"):
        k.fast_system_per_s(0.03, 0.2, slow_per_s=10)
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
