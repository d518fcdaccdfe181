"""The GPU campaign: ceilings, memory, decode and prefill grids of the CUDA decoder, as records.

Rehearsed without a device by a test that runs the same functions on the emulation and a pretended torch.cuda; what that
takes is never kept.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from capacity.measure import ceilings
from capacity.measure.cuda_check import check_decode, check_prefill, first_tokens, with_result
from capacity.measure.cuda_machine import Bench, compiler_name, left_out
from capacity.measure.driver import CudaDevice
from capacity.measure.harness import counts, workload
from capacity.measure.memory_probe import arena_holds, largest_batch
from capacity.measure.operators import CUDA_CORE_BATCH
from capacity.measure.prefill import Prefill
from capacity.measure.shape import DecoderShape
from capacity.measure.step import ReferenceDecoder
from capacity.measure.weights import DecoderWeights, random_weights
from capacity.specs.measured_run import Held, MeasuredRun

if TYPE_CHECKING:
    from torch import Tensor

    from capacity.measure.emulator import Emulator

Made = Iterator[MeasuredRun | str]  # runs, and a sentence for each case that is left out
REPLAYS = 20
OPERATOR_REPLAYS = 5
PREFILL_REPEATS = 7
CONTEXTS = (128, 2048, 8192)
BATCHES = (1, 2, 4, 16, 64)
MOST_TOKENS = 64 * 2048  # of all sequences of a case
MEMORY_CASES = ((1, 1000), (4, 2048))
PREFILL_CASES = ((1, 128), (1, 1024), (1, 8192), (8, 1024))
ARENA_SHARE = 1.6  # of the weights: leaves room for some sequences and not for all
MOST_SEQUENCES = 256
OWN_READ_BYTES = 2**31
READ_THREADS = 512
IN_TORCH = {"backend": "torch", "gemm_backend": "torch", "attention_backend": "sdpa"}


def shapes(*, quick: bool) -> list[DecoderShape]:
    """Sizes of well-known decoders, 1 to 15 GB a step at 16 bits; three of them in int8 and fp16 too.

    The smallest and the largest of each format come first: they are fitted, and the others held out.
    """
    sizes = {
        "1b": (16, 2048, 32, 8, 64, 8192, 128_256),
        "8b": (32, 4096, 32, 8, 128, 14_336, 128_256),
        "3b": (28, 3072, 24, 8, 128, 8192, 128_256),
        "7b": (32, 4096, 32, 32, 128, 11_008, 32_000),
    }
    if quick:
        return [shape("1b", *sizes["1b"], "bf16")]
    narrow = [shape(name, *sizes[name], weights) for weights in ("int8", "fp16") for name in ("1b", "8b", "3b")]
    return [shape(name, *size, "bf16") for name, size in sizes.items()] + narrow


def shape(
    name: str, layers: int, hidden: int, heads: int, kv: int, head: int, inner: int, words: int, weights: str
) -> DecoderShape:
    """A decoder shape of the campaign."""
    return DecoderShape(
        name=f"cuda-{name}-{weights}",
        layers=layers,
        hidden_size=hidden,
        query_heads=heads,
        kv_heads=kv,
        head_size=head,
        intermediate_size=inner,
        vocabulary=words,
        weight_format=weights,
    )


def planned(kind: str, *, quick: bool) -> list[tuple[str, Callable[[], Made]]]:
    """The runs of a GPU campaign as named makers, in the order that gives most if it is cut short.

    Raises
    ------
    CapacityError
        Without torch, a CUDA device, or its driver.
    """
    ceilings.cuda_torch()
    bench = Bench(CudaDevice())
    found: list[tuple[str, Callable[[], Made]]] = []
    all_shapes = shapes(quick=quick)
    wide = [one for one in all_shapes if one.weight_format == "bf16"]
    if kind in ("ceilings", "all"):
        found.append(("ceilings", lambda: iter([ceiling_run(bench, quick=quick)])))
    if kind in ("memory", "all"):
        found += [(f"memory {one.name}", partial(memory_runs, one, bench, quick=quick)) for one in wide[:2]]
    if kind in ("decode", "all"):
        found += [(f"decode {one.name}", partial(decode_runs, one, bench, quick=quick)) for one in all_shapes]
    if kind in ("prefill", "all"):
        found += [(f"prefill {one.name}", partial(prefill_runs, one, bench, quick=quick)) for one in wide]
    return found


def device_answers() -> bool:
    """Whether the device still works: after an illegal access every further call of this process fails."""
    import torch

    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return False
    return True


# ---- ceilings ----


def ceiling_run(bench: Bench, *, quick: bool) -> MeasuredRun:
    """All ceilings of the device as one record, the decoder's own streaming read among them."""
    found = dict(ceilings.cuda_ceilings(quick=quick))
    found["read_bytes_per_s"] = max(found["read_bytes_per_s"], _own_read_bytes_per_s(bench))
    return bench.record("ceiling", ran={"backend": "torch"}, values=found)


def _own_read_bytes_per_s(bench: Bench) -> float:
    """The decoder's own streaming read of a buffer larger than any cache. [B/s]"""
    import torch

    kernel = bench.backend.load("small", {"WIDE": 0, "HEAD_SIZE": 8, "BLOCK_TOKENS": 1})["stream_read"]
    words = torch.randint(0, 2**31 - 1, (OWN_READ_BYTES // 4,), dtype=torch.int32, device=bench.device)
    out = torch.zeros(1, dtype=torch.int32, device=bench.device)
    grid = (bench.backend.limits.processors * max(1, kernel.blocks_per_processor(READ_THREADS, 0)), 1, 1)
    loads = ctypes.c_longlong(OWN_READ_BYTES // 16)
    return OWN_READ_BYTES / ceilings.cuda_best_s(torch, lambda: kernel(grid, READ_THREADS, 0, words, loads, out))


# ---- decode ----


def decode_runs(one: DecoderShape, bench: Bench, *, quick: bool) -> Made:
    """The decode grid of one shape, on shared random weights."""
    largest = max(one.vocabulary, 2 * one.intermediate_size) * one.hidden_size
    if reason := left_out(one.name, one.weight_bytes() + 2 * 4 * largest):  # two in fp32 while they are drawn
        yield reason
        return
    weights = random_weights(one, bench.device)
    for batch, context in decode_cases(one)[: 1 if quick else None]:
        oracle_bytes = 2 * 8 * one.vocabulary * one.hidden_size  # table and head in float64
        name = f"{one.name}, batch {batch}, context {context}"
        yield left_out(name, one.cache_bytes(batch, context) + oracle_bytes) or decode_run(
            one, batch, context, bench, weights
        )


def decode_cases(one: DecoderShape) -> list[tuple[int, int]]:
    """Batches and contexts of the grid.

    Above ``CUDA_CORE_BATCH`` int8 weights are written out in 16 bits in every step, which no engine does and
    no estimate is for.
    """
    most = CUDA_CORE_BATCH if one.weight_format == "int8" else max(BATCHES)
    cases = [(batch, context) for batch in BATCHES for context in CONTEXTS]
    return [(batch, context) for batch, context in cases if batch <= most and batch * context <= MOST_TOKENS]


def decode_run(one: DecoderShape, batch: int, context: int, bench: Bench, weights: DecoderWeights) -> MeasuredRun:
    """One decode run: first layers checked against the oracle, then the captured step replayed, then each operator."""
    import torch

    quality = check_decode(one, batch, context, bench.backend, weights)
    decoder = ReferenceDecoder(one, batch, context, bench.backend, weights=weights, advance=False)
    decoder.set_state(first_tokens(one, batch), [context - 1] * batch)
    samples = ceilings.event_samples_s(torch, decoder.capture().replay, REPLAYS)
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
        workload=workload(one, batch=batch, context_tokens=context),
        counts=counts(decoder.operators(context)),
        clock="cuda_event",
        warmup_steps=ceilings.WARMUP_RUNS,
        runs_per_sample=ceilings.RUNS_PER_SAMPLE,
        samples_s=samples,
        operator_s=_operator_s(decoder),
        quality=quality,
    )


def _operator_s(decoder: ReferenceDecoder) -> dict[str, float]:
    """Time of each operator of the step, from a graph of its launches in all layers. [s]"""
    import torch

    graphs = {name: decoder.capture(name) for name in decoder.operators_launched}
    return {name: min(ceilings.event_samples_s(torch, g.replay, OPERATOR_REPLAYS)) for name, g in graphs.items()}


# ---- prefill ----


def prefill_runs(one: DecoderShape, bench: Bench, *, quick: bool) -> Made:
    """Prefills of one shape in plain torch, each checked against the oracle before it is timed."""
    import torch

    cases = PREFILL_CASES[: 1 if quick else None]
    if reason := left_out(f"prefill of {one.name}", _prefill_bytes(one, max(batch * count for batch, count in cases))):
        yield reason
        return
    model = Prefill(one, device=bench.device, max_tokens=max(count for _, count in cases))
    source = torch.Generator(bench.device).manual_seed(0)
    for batch, tokens in cases:
        size = (batch, tokens)
        prompts = torch.randint(0, one.vocabulary, size, generator=source, device=bench.device)
        yield prefill_run(model, prompts, bench)


def prefill_run(model: Prefill, prompts: Tensor, bench: Bench) -> MeasuredRun:
    """One prefill run."""
    import torch

    quality = check_prefill(model, prompts)
    samples = ceilings.event_samples_s(torch, partial(model, prompts), PREFILL_REPEATS, runs=1)
    batch, tokens = prompts.shape
    return bench.record(
        "prefill",
        ran=IN_TORCH,
        workload=workload(model.shape, batch=batch, prompt_tokens=tokens),
        clock="cuda_event",
        warmup_steps=ceilings.WARMUP_RUNS,
        samples_s=samples,
        quality=with_result(quality, model(prompts)),
    )


def _prefill_bytes(one: DecoderShape, tokens: int) -> int:
    """About what weights, activations and the oracle's table and head take. [B]"""
    per_token = 4 * one.hidden_size + 4 * one.intermediate_size + 3 * (one.query_size + one.kv_size)
    return one.weight_bytes() + tokens * per_token * one.wide_bytes + 2 * 8 * one.vocabulary * one.hidden_size


# ---- memory ----


def memory_runs(one: DecoderShape, bench: Bench, *, quick: bool) -> Made:
    """What weights, cache and prefill hold, and the largest batch of an arena, for two batches and contexts."""
    arena_bytes = int(ARENA_SHARE * one.weight_bytes())
    for batch, tokens in MEMORY_CASES[: 1 if quick else None]:
        name = f"memory of {one.name}, batch {batch}, {tokens} tokens"
        reason = left_out(name, max(2 * arena_bytes, _prefill_bytes(one, batch * tokens)))
        if reason:
            yield reason
            continue
        yield memory_run(one, batch, tokens, bench)
        yield arena_run(one, tokens, bench)


def memory_run(one: DecoderShape, batch: int, tokens: int, bench: Bench) -> MeasuredRun:
    """Weights and prefill peak as asked of the caching allocator, and the cache as single steps write it."""
    import torch

    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info()
    model = Prefill(one, device=bench.device, max_tokens=tokens)
    prompts = torch.randint(0, one.vocabulary, (batch, tokens), device=bench.device)
    model(prompts[:, :1])  # what the libraries take once is no activation
    torch.cuda.reset_peak_memory_stats()
    base = requested_bytes("current")
    model(prompts)
    torch.cuda.synchronize()
    peak, reserved = requested_bytes("peak") - base, torch.cuda.max_memory_reserved()
    used, weight_bytes = free - torch.cuda.mem_get_info()[0], model.weight_bytes
    del model
    decoder = ReferenceDecoder(one, batch, tokens, bench.backend)
    return bench.record(
        "memory",
        ran=IN_TORCH,
        workload=workload(one, batch=batch, context_tokens=tokens, prompt_tokens=tokens),
        memory=Held(
            weight_bytes=weight_bytes,
            kv_bytes=written_cache_bytes(decoder, tokens),
            kv_allocated_bytes=decoder.cache_bytes(),
            activation_peak_bytes=peak,
            peak_reserved_bytes=reserved,
            device_used_bytes=max(0, used),
            workspace_bytes=decoder.workspace_bytes(),
        ),
    )


def requested_bytes(moment: str) -> int:
    """Bytes asked of the caching allocator, "current" or at their "peak", before it rounds them to its blocks. [B]"""
    import torch

    return int(torch.cuda.memory_stats()[f"requested_bytes.all.{moment}"])


def written_cache_bytes(decoder: ReferenceDecoder, tokens: int) -> int:
    """Bytes that ``tokens`` steps write into a cache of NaN: its values that are numbers afterwards. [B]"""
    graph = decoder.capture()
    for cache in (*decoder.keys, *decoder.values):
        cache.fill_(float("nan"))
    decoder.set_state([0] * decoder.batch, [0] * decoder.batch)
    for _ in range(tokens):
        graph.replay()
    written = sum(int((~cache.isnan()).sum()) for cache in (*decoder.keys, *decoder.values))
    return written * decoder.keys[0].element_size()


def arena_run(one: DecoderShape, tokens: int, bench: Bench) -> MeasuredRun:
    """Largest batch of ``tokens`` each whose weights, cache and prefill stay within an arena, by bisection."""
    model = Prefill(one, device=bench.device, max_tokens=tokens)
    arena_bytes = int(model.weight_bytes * ARENA_SHARE)
    found = largest_batch(
        lambda n: arena_holds(model, batch=n, tokens=tokens, arena_bytes=arena_bytes), limit=MOST_SEQUENCES
    )
    return bench.record(
        "memory",
        ran=IN_TORCH,
        workload=workload(one, batch=max(1, found), context_tokens=tokens, prompt_tokens=tokens),
        memory=Held(weight_bytes=model.weight_bytes, arena_bytes=arena_bytes, max_batch=found),
    )


def tiny_steps(backend: CudaDevice | Emulator | None = None) -> None:
    """A step of every kernel on a small decoder, for a checker of memory accesses to watch."""
    device = backend or CudaDevice()
    for weights, batch in (("bf16", 2), ("int8", 5)):  # int8 above batch 4 takes all the small kernels
        one = shape("tiny", 1, 256, 8, 2, 64, 512, 1030, weights)
        quality = check_decode(one, batch, 64, device, random_weights(one, device.device))
        print(f"{weights}, batch {batch}: error {quality.relative_error:.1e} of {quality.tolerance:.1e}")
