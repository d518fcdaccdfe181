"""Peak rates of the current CUDA device in bytes or FLOP per second, and launch times in seconds, by name.

Each rate is the best of several micro-benchmarks, so that no run exceeds it by its choice of access pattern.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from capacity.measure.decoder.weights import torch_dtype
from capacity.measure.runs.timing import cuda_best_s, cuda_torch

READ_BYTES = 4 * 2**30
ROW_BYTES = 32 * 1024  # of the rows that the read benchmarks reduce
LINK_BYTES = 2**28
GEMM_SIZES = (4096, 8192)


def cuda_microbenchmarks(*, quick: bool = False) -> Iterator[tuple[str, float]]:
    """Figures of the current CUDA device, yielded one at a time.

    Raises
    ------
    CapacityError
        Without torch or a CUDA device.
    """
    torch = cuda_torch()
    yield "context_bytes", _context_bytes(torch)
    free, _ = torch.cuda.mem_get_info()
    size = min(READ_BYTES // (8 if quick else 1), free // 4 // ROW_BYTES * ROW_BYTES)
    yield from _streams(torch, size)
    yield from _peaks(torch)
    small = torch.zeros(32, device="cuda")
    yield "eager_launch_s", _eager_launch_s(torch, small)
    yield "graph_launch_s", _graph_launch_s(torch, small)
    pinned = torch.empty(LINK_BYTES, dtype=torch.uint8, pin_memory=True)
    on_device = torch.empty(LINK_BYTES, dtype=torch.uint8, device="cuda")
    pinned.random_()
    yield (
        "host_to_device_bytes_per_s",
        LINK_BYTES / cuda_best_s(torch, lambda: on_device.copy_(pinned, non_blocking=True)),
    )
    yield (
        "device_to_host_bytes_per_s",
        LINK_BYTES / cuda_best_s(torch, lambda: pinned.copy_(on_device, non_blocking=True)),
    )


def _context_bytes(torch: Any) -> float:
    """Device memory in use when only the context has been created."""
    torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    return float(total - free - torch.cuda.memory_reserved())


def _streams(torch: Any, size: int) -> Iterator[tuple[str, float]]:
    words = torch.randn(size // 4, device="cuda")
    target = torch.empty_like(words)
    yield "read_bytes_per_s", max(_reads(torch, words))
    copies = (
        lambda: target.copy_(words),
        lambda: torch.neg(words, out=target),
        lambda: torch.add(words, 1.0, out=target),
    )
    yield "copy_bytes_per_s", 2 * words.nbytes / min(cuda_best_s(torch, copy) for copy in copies)


def _reads(torch: Any, words: Any) -> Iterator[float]:
    """Reductions that write almost nothing: sums of rows, maxima of rows, and products with a vector."""
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


def _peaks(torch: Any) -> Iterator[tuple[str, float]]:
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
    a, b = (torch.randn(size, size, device="cuda").to(torch_dtype(name)) for _ in range(2))
    out = torch.empty(size, size, device="cuda", dtype=torch_dtype(name))
    return lambda: torch.mm(a, b, out=out)


def _int8_product(torch: Any, size: int, name: str) -> Callable[[], Any]:
    a, b = (torch.randint(-127, 128, (size, size), dtype=torch.int8, device="cuda") for _ in range(2))
    return lambda: torch._int_mm(a, b.t())  # the second is stored by columns, as the tensor cores require


def _fp8_product(torch: Any, size: int, name: str) -> Callable[[], Any]:
    a, b = (torch.randn(size, size, device="cuda").to(torch.float8_e4m3fn) for _ in range(2))
    one = torch.ones((), device="cuda")
    return lambda: torch._scaled_mm(a, b.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16)


def _eager_launch_s(torch: Any, small: Any) -> float:
    """Time per small operator when a thousand are issued one after another."""

    def many() -> None:
        for _ in range(1000):
            small.add_(1.0)

    return cuda_best_s(torch, many, repeats=5) / 1000


def _graph_launch_s(torch: Any, small: Any) -> float:
    """Time per small kernel inside a graph of a thousand."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(1000):
            small.add_(1.0)
    return cuda_best_s(torch, graph.replay, repeats=5) / 1000
