"""Times of repeated runs: by the host's clock, and between events on the stream of a CUDA device."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from capacity.errors import CapacityError

WARMUP_STEPS = 1
MAX_SAMPLES = 16
MIN_SAMPLES = 3
MAX_SAMPLING_S = 3.0
REPEATS = 7
WARMUP_RUNS = 3  # on a CUDA device
RUNS_PER_SAMPLE = 5  # on a CUDA device


def sampled_s(
    run: Callable[[], Any], *, max_samples: int = MAX_SAMPLES, max_sampling_s: float = MAX_SAMPLING_S
) -> tuple[float, ...]:
    """Times of single runs after a warm-up: ``max_samples``, or at least 3 within the time limit. [s]"""
    for _ in range(WARMUP_STEPS):
        run()
    times: list[float] = []
    while len(times) < max_samples and (sum(times) < max_sampling_s or len(times) < MIN_SAMPLES):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return tuple(times)


def best_s(run: Callable[[], Any], repeats: int = REPEATS) -> float:
    """Fastest of several runs after a warm-up. [s]"""
    run()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def cuda_torch() -> Any:
    """torch with a CUDA device.

    Raises
    ------
    CapacityError
        If torch or the device is missing.
    """
    try:
        import torch
    except ImportError:
        raise CapacityError("measuring needs torch: install capacity-planner[measure]") from None
    if not torch.cuda.is_available():
        raise CapacityError("no CUDA device: torch finds none on this computer; use --device cpu, or a CUDA build")
    return torch


def event_samples_s(
    torch: Any, run: Callable[[], Any], repeats: int, *, runs: int = RUNS_PER_SAMPLE
) -> tuple[float, ...]:
    """Mean times of a run between two events around several runs, after a warm-up. [s]

    One untimed run precedes the first event, so that the stream is busy when it reaches the event and the host's
    launch overhead stays outside the sample.
    """
    for _ in range(WARMUP_RUNS):
        run()
    times = []
    for _ in range(repeats):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        run()
        start.record()
        for _ in range(runs):
            run()
        stop.record()
        stop.synchronize()
        times.append(start.elapsed_time(stop) * 1e-3 / runs)
    return tuple(times)


def cuda_best_s(torch: Any, run: Callable[[], Any], repeats: int = 10) -> float:
    """Fastest of several samples between two events on the stream. [s]"""
    return min(event_samples_s(torch, run, repeats))
