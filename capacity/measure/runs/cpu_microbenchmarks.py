"""Peak rates of this processor in bytes or FLOP per second, by name.

Each is the best of several micro-benchmarks, so that no run exceeds it by its choice of access pattern.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import numpy as np

from capacity.measure.decoder.cpu import library as cpu_library
from capacity.measure.decoder.cpu.weights import to_bf16
from capacity.measure.runs.timing import best_s

READ_BYTES = 768 * 2**20


def cpu_microbenchmarks(threads: int, *, quick: bool = False) -> Iterator[tuple[str, float]]:
    """Rates of this computer's processor, yielded one at a time.

    The only matrix peak is that of fp32, in which the decoder on a CPU multiplies weights of every format.
    """
    import torch

    library = cpu_library.library()
    library.ref_threads(threads)
    size = READ_BYTES // (4 if quick else 1)
    buffer = np.random.default_rng(0).standard_normal(size // 4, dtype=np.float32)
    matrix_vector = _matrix_vector(buffer, threads)
    yield "read_bytes_per_s", max(_read(library, buffer), matrix_vector)
    yield "matrix_vector_bytes_per_s", matrix_vector
    torch.set_num_threads(threads)
    yield "copy_bytes_per_s", _copy(buffer)
    yield "multiply_add_flop_per_s", _multiply_add(library, threads)
    yield "fp32_gemm_flop_per_s", _gemm(512 if quick else 2048, threads)


def _read(library: ctypes.CDLL, buffer: np.ndarray) -> float:
    address, count = ctypes.c_void_p(buffer.ctypes.data), ctypes.c_size_t(buffer.size)
    return buffer.nbytes / best_s(lambda: library.ref_read(address, count))


def _copy(buffer: np.ndarray) -> float:
    """Bytes read and written by a copy, in numpy or in torch, whichever is faster."""
    import torch

    target = np.empty_like(buffer)
    source_tensor, target_tensor = torch.from_numpy(buffer), torch.from_numpy(target)
    copies = (lambda: np.copyto(target, buffer), lambda: target_tensor.copy_(source_tensor))
    return 2 * buffer.nbytes / min(best_s(copy) for copy in copies)


def _matrix_vector(buffer: np.ndarray, threads: int) -> float:
    """The decoder's own linear kernel at batch 1 on a large matrix: the best of fp32 and bf16, short and long rows."""
    library = cpu_library.library()
    library.ref_threads(threads)
    halves = to_bf16(buffer[: buffer.size // 2])
    return max(
        _linear_bytes_per_s(library, number, weights, columns)
        for number, weights in ((0, buffer), (1, halves))
        for columns in (1024, 4096)
    )


def _linear_bytes_per_s(library: ctypes.CDLL, number: int, weights: np.ndarray, columns: int) -> float:
    rows = weights.size // columns
    x, y = np.random.default_rng(1).standard_normal(columns, dtype=np.float32), np.zeros(rows, np.float32)
    w, x_address, y_address = (ctypes.c_void_p(array.ctypes.data) for array in (weights, x, y))
    return weights.nbytes / best_s(
        lambda: library.ref_linear(number, w, None, x_address, y_address, rows, columns, 1, 0)
    )


def _multiply_add(library: ctypes.CDLL, threads: int) -> float:
    """Multiply-adds on the registers of one thread, times the threads; 2 FLOP each."""
    seed, result, rounds = np.full(32, 0.5, np.float32), ctypes.c_float(), 2_000_000
    arguments = (ctypes.c_void_p(seed.ctypes.data), ctypes.byref(result), ctypes.c_size_t(rounds))
    per_round = library.ref_multiply_add(*arguments)
    return threads * 2.0 * rounds * float(per_round) / best_s(lambda: library.ref_multiply_add(*arguments))


def _gemm(size: int, threads: int) -> float:
    """The library's matrix product on random data."""
    import torch

    torch.set_num_threads(threads)
    a, b = (torch.randn(size, size, generator=torch.Generator().manual_seed(seed)) for seed in (1, 2))
    out = torch.empty(size, size)
    return 2.0 * size**3 / best_s(lambda: torch.mm(a, b, out=out))
