"""What a device can do at most: each ceiling is the best of several micro-benchmarks, so that no run can beat it by
a choice of stream. Rates in bytes or FLOP per second, times in seconds, by name."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from capacity.errors import CapacityError
from capacity.measure import cpu_decoder, cpu_library

READ_BYTES = 768 * 2**20
REPEATS = 7
CUDA_READ_BYTES = 4 * 2**30
ROW_BYTES = 32 * 1024  # of the rows that are summed
LINK_BYTES = 2**28
GEMM_SIZES = (4096, 8192)
WARMUP_RUNS = 3
RUNS_PER_SAMPLE = 5


def best_s(run: Callable[[], Any], repeats: int = REPEATS) -> float:
    """Fastest of several runs after one that is not counted. [s]"""
    run()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def cpu_ceilings(threads: int, *, quick: bool = False) -> Iterator[tuple[str, float]]:
    """Ceilings of this computer's processor, one at a time as they are found.

    The only matrix peak is that of fp32, in which this processor multiplies weights of every format.
    """
    import torch

    library = cpu_library.library()
    library.ref_threads(threads)
    size = READ_BYTES // (4 if quick else 1)
    buffer = np.random.default_rng(0).standard_normal(size // 4, dtype=np.float32)
    matrix_vector = _cpu_matrix_vector(buffer, threads)
    yield "read_bytes_per_s", max(_cpu_read(library, buffer), matrix_vector)
    yield "matrix_vector_bytes_per_s", matrix_vector
    torch.set_num_threads(threads)
    yield "copy_bytes_per_s", _cpu_copy(buffer)
    yield "multiply_add_flop_per_s", _cpu_multiply_add(library, threads)
    yield "fp32_gemm_flop_per_s", _cpu_gemm(512 if quick else 2048, threads)


def _cpu_read(library: ctypes.CDLL, buffer: np.ndarray) -> float:
    address, count = ctypes.c_void_p(buffer.ctypes.data), ctypes.c_size_t(buffer.size)
    return buffer.nbytes / best_s(lambda: library.ref_read(address, count))


def _cpu_copy(buffer: np.ndarray) -> float:
    """Bytes read and written of a copy, by numpy or by torch: the faster."""
    import torch

    target = np.empty_like(buffer)
    given, taken = torch.from_numpy(buffer), torch.from_numpy(target)
    copies = (lambda: np.copyto(target, buffer), lambda: taken.copy_(given))
    return 2 * buffer.nbytes / min(best_s(copy) for copy in copies)


def _cpu_matrix_vector(buffer: np.ndarray, threads: int) -> float:
    """The decoder's own linear at batch 1 on one large matrix, fp32 or bf16, of short or long rows: the best."""
    library = cpu_library.library()
    library.ref_threads(threads)
    halves = cpu_decoder.to_bf16(buffer[: buffer.size // 2])
    return max(
        _linear_bytes_per_s(library, number, weights, columns)
        for number, weights in ((0, buffer), (1, halves))
        for columns in (1024, 4096)
    )


def _linear_bytes_per_s(library: ctypes.CDLL, number: int, weights: np.ndarray, columns: int) -> float:
    rows = weights.size // columns
    x, y = np.random.default_rng(1).standard_normal(columns, dtype=np.float32), np.zeros(rows, np.float32)
    w, given, out = (ctypes.c_void_p(array.ctypes.data) for array in (weights, x, y))
    return weights.nbytes / best_s(lambda: library.ref_linear(number, w, None, given, out, rows, columns, 1, 0))


def _cpu_multiply_add(library: ctypes.CDLL, threads: int) -> float:
    """Multiply-adds on registers of one thread, times threads, 2 FLOP each."""
    seed, result, rounds = np.full(32, 0.5, np.float32), ctypes.c_float(), 2_000_000
    arguments = (ctypes.c_void_p(seed.ctypes.data), ctypes.byref(result), ctypes.c_size_t(rounds))
    done = library.ref_multiply_add(*arguments)
    return threads * 2.0 * rounds * float(done) / best_s(lambda: library.ref_multiply_add(*arguments))


def _cpu_gemm(size: int, threads: int) -> float:
    """The library's matrix product on random data."""
    import torch

    torch.set_num_threads(threads)
    a, b = (torch.randn(size, size, generator=torch.Generator().manual_seed(seed)) for seed in (1, 2))
    out = torch.empty(size, size)
    return 2.0 * size**3 / best_s(lambda: torch.mm(a, b, out=out))


def cuda_ceilings(*, quick: bool = False) -> Iterator[tuple[str, float]]:
    """Ceilings of the present CUDA device, one at a time as they are found.

    Raises
    ------
    CapacityError
        Without torch or a CUDA device.
    """
    torch = cuda_torch()
    yield "context_bytes", _context_bytes(torch)
    free, _ = torch.cuda.mem_get_info()
    size = min(CUDA_READ_BYTES // (8 if quick else 1), free // 4 // ROW_BYTES * ROW_BYTES)
    yield from _cuda_streams(torch, size)
    yield from _cuda_peaks(torch)
    small = torch.zeros(32, device="cuda")
    yield "eager_launch_s", _eager_launch_s(torch, small)
    yield "graph_launch_s", _graph_launch_s(torch, small)
    pinned = torch.empty(LINK_BYTES, dtype=torch.uint8, pin_memory=True)
    there = torch.empty(LINK_BYTES, dtype=torch.uint8, device="cuda")
    pinned.random_()
    yield "host_to_device_bytes_per_s", LINK_BYTES / cuda_best_s(torch, lambda: there.copy_(pinned, non_blocking=True))
    yield "device_to_host_bytes_per_s", LINK_BYTES / cuda_best_s(torch, lambda: pinned.copy_(there, non_blocking=True))


def cuda_torch() -> Any:
    """torch with a CUDA device, or an error that says what is missing."""
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
    """Times of a run between two events around several runs, after a warm-up. [s]

    A run that does not count comes first: the stream is busy when the first event is reached, so the host's launch
    of what follows is no part of the time.
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


def _context_bytes(torch: Any) -> float:
    """Memory of the device that is taken when nothing has been allocated but the context."""
    torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    return float(total - free - torch.cuda.memory_reserved())


def _cuda_streams(torch: Any, size: int) -> Iterator[tuple[str, float]]:
    words = torch.randn(size // 4, device="cuda")
    target = torch.empty_like(words)
    yield "read_bytes_per_s", max(_cuda_reads(torch, words))
    copies = (
        lambda: target.copy_(words),
        lambda: torch.neg(words, out=target),
        lambda: torch.add(words, 1.0, out=target),
    )
    yield "copy_bytes_per_s", 2 * words.nbytes / min(cuda_best_s(torch, copy) for copy in copies)


def _cuda_reads(torch: Any, words: Any) -> Iterator[float]:
    """Reads that give almost nothing back: sums of rows, a largest value, and a product with a vector."""
    rows = words.view(-1, ROW_BYTES // 4)
    x = torch.randn(rows.shape[1], device="cuda")
    out = torch.empty(rows.shape[0], device="cuda")
    narrow, narrow_x = words.view(torch.bfloat16).view(-1, rows.shape[1]), x.bfloat16()
    narrow_out = torch.empty(narrow.shape[0], device="cuda", dtype=torch.bfloat16)
    runs = (
        lambda: torch.sum(rows, 1, out=out),
        lambda: torch.amax(rows, 1, out=out),
        lambda: torch.mv(rows, x, out=out),
        lambda: torch.mv(narrow, narrow_x, out=narrow_out),
    )
    for run in runs:
        yield words.nbytes / cuda_best_s(torch, run)


def _cuda_peaks(torch: Any) -> Iterator[tuple[str, float]]:
    """Rate of the library's matrix product by format; a format that device or library lacks is left out."""
    products = {"bf16": _product, "fp16": _product, "fp32": _product, "int8": _int8_product, "fp8_e4m3": _fp8_product}
    for name, product in products.items():
        try:
            best = max(2.0 * size**3 / cuda_best_s(torch, product(torch, size, name)) for size in GEMM_SIZES)
        except (RuntimeError, AttributeError, TypeError) as error:
            if isinstance(error, torch.OutOfMemoryError) or product is _product:
                raise
            continue
        yield f"{name}_gemm_flop_per_s", best


def _product(torch: Any, size: int, name: str) -> Callable[[], Any]:
    kind = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}[name]
    a, b = (torch.randn(size, size, device="cuda").to(kind) for _ in range(2))
    out = torch.empty(size, size, device="cuda", dtype=kind)
    return lambda: torch.mm(a, b, out=out)


def _int8_product(torch: Any, size: int, name: str) -> Callable[[], Any]:
    a, b = (torch.randint(-127, 128, (size, size), dtype=torch.int8, device="cuda") for _ in range(2))
    return lambda: torch._int_mm(a, b.t())  # the second by columns, as the tensor cores take it


def _fp8_product(torch: Any, size: int, name: str) -> Callable[[], Any]:
    a, b = (torch.randn(size, size, device="cuda").to(torch.float8_e4m3fn) for _ in range(2))
    one = torch.ones((), device="cuda")
    return lambda: torch._scaled_mm(a, b.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16)


def _eager_launch_s(torch: Any, small: Any) -> float:
    """Time of one small operator when thousands are issued one after the other."""

    def many() -> None:
        for _ in range(1000):
            small.add_(1.0)

    return cuda_best_s(torch, many, repeats=5) / 1000


def _graph_launch_s(torch: Any, small: Any) -> float:
    """Time of one small kernel inside a graph of a thousand."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(1000):
            small.add_(1.0)
    return cuda_best_s(torch, graph.replay, repeats=5) / 1000
