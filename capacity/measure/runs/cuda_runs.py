"""Runs on a CUDA device as sealed records: micro-benchmarks, decode, prefill and memory.

Rehearsed without a device by a test that runs the same functions on the emulation and a stand-in for torch.cuda; the
times of a rehearsal are never kept.
"""

from __future__ import annotations

import ctypes
from functools import partial
from typing import TYPE_CHECKING

from capacity.measure.decoder.cuda.driver import CudaDevice
from capacity.measure.decoder.cuda.step import CudaDecoder
from capacity.measure.decoder.prefill import Prefill
from capacity.measure.decoder.weights import DecoderWeights, random_weights
from capacity.measure.runs import timing
from capacity.measure.runs.check import check_cuda_decode, check_prefill, first_tokens
from capacity.measure.runs.cuda_machine import Bench, compiler_name
from capacity.measure.runs.cuda_microbenchmarks import cuda_microbenchmarks
from capacity.measure.runs.fields import counts, workload
from capacity.measure.runs.memory_probe import arena_holds, largest_batch
from capacity.measure.runs.quality import with_result
from capacity.measure.shape import DecoderShape
from capacity.specs.measured_run import MeasuredRun, MemoryReading

if TYPE_CHECKING:
    from torch import Tensor

    from capacity.measure.decoder.cuda.emulator import Emulator

REPLAYS = 20
OPERATOR_REPLAYS = 5
PREFILL_REPEATS = 7
MAX_ARENA_SEQUENCES = 256
OWN_READ_BYTES = 2**31
READ_THREADS = 512
IN_TORCH = {"backend": "torch", "gemm_backend": "torch", "attention_backend": "sdpa"}


# ---- micro-benchmarks ----


def microbenchmark_run(bench: Bench, *, quick: bool) -> MeasuredRun:
    """All micro-benchmarks of the device as one record, the decoder's own streaming read among them."""
    values = dict(cuda_microbenchmarks(quick=quick))
    values["read_bytes_per_s"] = max(values["read_bytes_per_s"], _own_read_bytes_per_s(bench))
    return bench.record("ceiling", ran={"backend": "torch"}, values=values)


def _own_read_bytes_per_s(bench: Bench) -> float:
    """The decoder's own streaming read of a buffer larger than any cache. [B/s]"""
    import torch

    kernel = bench.backend.load("small", {"WIDE": 0, "HEAD_SIZE": 8, "BLOCK_TOKENS": 1})["stream_read"]
    words = torch.randint(0, 2**31 - 1, (OWN_READ_BYTES // 4,), dtype=torch.int32, device=bench.device)
    out = torch.zeros(1, dtype=torch.int32, device=bench.device)
    grid = (bench.backend.limits.processors * max(1, kernel.blocks_per_processor(READ_THREADS, 0)), 1, 1)
    loads = ctypes.c_longlong(OWN_READ_BYTES // 16)
    return OWN_READ_BYTES / timing.cuda_best_s(torch, lambda: kernel(grid, READ_THREADS, 0, words, loads, out))


# ---- decode ----


def decode_run(shape: DecoderShape, batch: int, context: int, bench: Bench, weights: DecoderWeights) -> MeasuredRun:
    """One decode run: first layers checked against the oracle, then the captured step replayed, then each operator."""
    import torch

    quality = check_cuda_decode(shape, batch, context, bench.backend, weights)
    decoder = CudaDecoder(shape, batch, context, bench.backend, weights=weights, advance=False)
    decoder.set_state(first_tokens(shape, batch), [context - 1] * batch)
    samples = timing.event_samples_s(torch, decoder.capture().replay, REPLAYS)
    quality = with_result(quality, decoder.logits)
    return bench.record(
        "decode",
        ran={
            "backend": compiler_name(),
            "gemm_backend": decoder.gemm_backend,
            "attention_backend": "simt",
            "graph": True,
            "splits": decoder.splits,
            "launch": decoder.choices(),
        },
        workload=workload(shape, batch=batch, context_tokens=context),
        counts=counts(decoder.operators(context)),
        clock="cuda_event",
        warmup_steps=timing.WARMUP_RUNS,
        runs_per_sample=timing.RUNS_PER_SAMPLE,
        samples_s=samples,
        operator_s=_operator_s(decoder),
        quality=quality,
    )


def _operator_s(decoder: CudaDecoder) -> dict[str, float]:
    """Time of each operator of the step, from a graph of its launches in all layers. [s]"""
    import torch

    graphs = {name: decoder.capture(name) for name in decoder.operators_launched}
    return {name: min(timing.event_samples_s(torch, g.replay, OPERATOR_REPLAYS)) for name, g in graphs.items()}


def tiny_steps(backend: CudaDevice | Emulator | None = None) -> None:
    """A step of every kernel on a small decoder, for a memory checker such as compute-sanitizer."""
    device = backend or CudaDevice()
    for weights, batch in (("bf16", 2), ("int8", 5)):  # int8 above batch 4 uses all the small kernels
        shape = DecoderShape("cuda-tiny", 1, 256, 8, 2, 64, 512, 1030, weight_format=weights)
        quality = check_cuda_decode(shape, batch, 64, device, random_weights(shape, device.device))
        print(f"{weights}, batch {batch}: error {quality.relative_error:.1e} of {quality.tolerance:.1e}")


# ---- prefill ----


def prefill_run(model: Prefill, prompts: Tensor, bench: Bench) -> MeasuredRun:
    """One prefill run, checked against the oracle before it is timed."""
    import torch

    quality = check_prefill(model, prompts)
    samples = timing.event_samples_s(torch, partial(model, prompts), PREFILL_REPEATS, runs=1)
    batch, tokens = prompts.shape
    return bench.record(
        "prefill",
        ran=IN_TORCH,
        workload=workload(model.shape, batch=batch, prompt_tokens=tokens),
        clock="cuda_event",
        warmup_steps=timing.WARMUP_RUNS,
        samples_s=samples,
        quality=with_result(quality, model(prompts)),
    )


# ---- memory ----


def memory_run(shape: DecoderShape, batch: int, tokens: int, bench: Bench) -> MeasuredRun:
    """Weights and prefill peak as requested from the caching allocator, and the cache as single steps write it."""
    import torch

    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info()
    model = Prefill(shape, device=bench.device, max_tokens=tokens)
    prompts = torch.randint(0, shape.vocabulary, (batch, tokens), device=bench.device)
    model(prompts[:, :1])  # one-time allocations of the libraries are not activations
    torch.cuda.reset_peak_memory_stats()
    base = requested_bytes("current")
    model(prompts)
    torch.cuda.synchronize()
    peak, reserved = requested_bytes("peak") - base, torch.cuda.max_memory_reserved()
    used, weight_bytes = free - torch.cuda.mem_get_info()[0], model.weight_bytes
    del model
    decoder = CudaDecoder(shape, batch, tokens, bench.backend)
    return bench.record(
        "memory",
        ran=IN_TORCH,
        workload=workload(shape, batch=batch, context_tokens=tokens, prompt_tokens=tokens),
        memory=MemoryReading(
            weight_bytes=weight_bytes,
            kv_bytes=written_cache_bytes(decoder, tokens),
            kv_allocated_bytes=decoder.cache_bytes(),
            activation_peak_bytes=peak,
            peak_reserved_bytes=reserved,
            device_used_bytes=max(0, used),
            workspace_bytes=decoder.workspace_bytes(),
        ),
    )


def requested_bytes(counter: str) -> int:
    """Bytes requested from the caching allocator, "current" or "peak", before rounding to its block sizes. [B]"""
    import torch

    return int(torch.cuda.memory_stats()[f"requested_bytes.all.{counter}"])


def written_cache_bytes(decoder: CudaDecoder, tokens: int) -> int:
    """Bytes that ``tokens`` steps write into a cache filled with NaN: those of its values that are then numbers. [B]"""
    graph = decoder.capture()
    for cache in (*decoder.keys, *decoder.values):
        cache.fill_(float("nan"))
    decoder.set_state([0] * decoder.batch, [0] * decoder.batch)
    for _ in range(tokens):
        graph.replay()
    written = sum(int((~cache.isnan()).sum()) for cache in (*decoder.keys, *decoder.values))
    return written * decoder.keys[0].element_size()


def arena_run(shape: DecoderShape, tokens: int, share: float, bench: Bench) -> MeasuredRun:
    """Largest batch of ``tokens`` each that an arena of ``share`` times the weights holds, by bisection."""
    model = Prefill(shape, device=bench.device, max_tokens=tokens)
    arena_bytes = int(model.weight_bytes * share)
    max_batch = largest_batch(
        lambda n: arena_holds(model, batch=n, tokens=tokens, arena_bytes=arena_bytes), limit=MAX_ARENA_SEQUENCES
    )
    return bench.record(
        "memory",
        ran=IN_TORCH,
        workload=workload(shape, batch=max(1, max_batch), context_tokens=tokens, prompt_tokens=tokens),
        memory=MemoryReading(weight_bytes=model.weight_bytes, arena_bytes=arena_bytes, max_batch=max_batch),
    )
