"""The runs of a GPU campaign: shapes, batches and contexts that fit the device, and their order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from capacity.measure.decoder.cuda.driver import CudaDevice
from capacity.measure.decoder.prefill import Prefill
from capacity.measure.decoder.weights import random_weights
from capacity.measure.operators import CUDA_CORE_BATCH
from capacity.measure.runs.cuda_machine import Bench, skip_reason
from capacity.measure.runs.cuda_runs import arena_run, decode_run, memory_run, microbenchmark_run, prefill_run
from capacity.measure.runs.timing import cuda_torch
from capacity.measure.shape import DecoderShape
from capacity.specs.measured_run import MeasuredRun

RunsOrReasons = Iterator[MeasuredRun | str]  # runs, and a sentence for each case that is skipped
CONTEXTS = (128, 2048, 8192)
BATCHES = (1, 2, 4, 16, 64)
MAX_CASE_TOKENS = 64 * 2048  # of all sequences of a case
MEMORY_CASES = ((1, 1000), (4, 2048))
PREFILL_CASES = ((1, 128), (1, 1024), (1, 8192), (8, 1024))
ARENA_SHARE = 1.6  # of the weights: leaves room for some sequences and not for all


def planned(kind: str, *, quick: bool) -> list[tuple[str, Callable[[], RunsOrReasons]]]:
    """The runs of one kind, or of all, as named makers, the most valuable first in case the campaign is cut short.

    Raises
    ------
    CapacityError
        Without torch, a CUDA device, or its driver.
    """
    cuda_torch()
    bench = Bench(CudaDevice())
    tasks: list[tuple[str, Callable[[], RunsOrReasons]]] = []
    all_shapes = shapes(quick=quick)
    wide = [one for one in all_shapes if one.weight_format == "bf16"]
    if kind in ("ceilings", "all"):
        tasks.append(("ceilings", lambda: iter([microbenchmark_run(bench, quick=quick)])))
    if kind in ("memory", "all"):
        tasks += [(f"memory {one.name}", partial(memory_runs, one, bench, quick=quick)) for one in wide[:2]]
    if kind in ("decode", "all"):
        tasks += [(f"decode {one.name}", partial(decode_runs, one, bench, quick=quick)) for one in all_shapes]
    if kind in ("prefill", "all"):
        tasks += [(f"prefill {one.name}", partial(prefill_runs, one, bench, quick=quick)) for one in wide]
    return tasks


def shapes(*, quick: bool) -> list[DecoderShape]:
    """Sizes of well-known decoders, 1 to 15 GB per step at 16 bits; three of them in int8 and fp16 too.

    The smallest and the largest of each format come first: calibrations are fitted to them, the others are held out.
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


def decode_runs(one: DecoderShape, bench: Bench, *, quick: bool) -> RunsOrReasons:
    """The decode grid of one shape, on shared random weights."""
    largest = max(one.vocabulary, 2 * one.intermediate_size) * one.hidden_size
    if reason := skip_reason(one.name, one.weight_bytes() + 2 * 4 * largest):  # two in fp32 while they are drawn
        yield reason
        return
    weights = random_weights(one, bench.device)
    for batch, context in decode_cases(one)[: 1 if quick else None]:
        name, needed_bytes = f"{one.name}, batch {batch}, context {context}", one.cache_bytes(batch, context)
        reason = skip_reason(name, needed_bytes + _oracle_bytes(one))
        yield reason or decode_run(one, batch, context, bench, weights)


def decode_cases(one: DecoderShape) -> list[tuple[int, int]]:
    """Batches and contexts of the grid.

    Above ``CUDA_CORE_BATCH`` int8 weights are expanded to 16 bits in every step, which no engine does and which no
    estimate describes.
    """
    max_batch = CUDA_CORE_BATCH if one.weight_format == "int8" else max(BATCHES)
    cases = [(batch, context) for batch in BATCHES for context in CONTEXTS]
    return [(batch, context) for batch, context in cases if batch <= max_batch and batch * context <= MAX_CASE_TOKENS]


def prefill_runs(one: DecoderShape, bench: Bench, *, quick: bool) -> RunsOrReasons:
    """Prefills of one shape in plain torch."""
    import torch

    cases = PREFILL_CASES[: 1 if quick else None]
    most_tokens = max(batch * count for batch, count in cases)
    if reason := skip_reason(f"prefill of {one.name}", _prefill_bytes(one, most_tokens)):
        yield reason
        return
    model = Prefill(one, device=bench.device, max_tokens=max(count for _, count in cases))
    source = torch.Generator(bench.device).manual_seed(0)
    for batch, tokens in cases:
        size = (batch, tokens)
        prompts = torch.randint(0, one.vocabulary, size, generator=source, device=bench.device)
        yield prefill_run(model, prompts, bench)


def memory_runs(one: DecoderShape, bench: Bench, *, quick: bool) -> RunsOrReasons:
    """What weights, cache and prefill hold, and the largest batch of an arena, for two batches and contexts."""
    arena_bytes = int(ARENA_SHARE * one.weight_bytes())
    for batch, tokens in MEMORY_CASES[: 1 if quick else None]:
        name = f"memory of {one.name}, batch {batch}, {tokens} tokens"
        if reason := skip_reason(name, max(2 * arena_bytes, _prefill_bytes(one, batch * tokens))):
            yield reason
            continue
        yield memory_run(one, batch, tokens, bench)
        yield arena_run(one, tokens, ARENA_SHARE, bench)


def _prefill_bytes(one: DecoderShape, tokens: int) -> int:
    """Approximate need of weights, activations and the oracle. [B]"""
    per_token = 4 * one.hidden_size + 4 * one.intermediate_size + 3 * (one.query_size + one.kv_size)
    return one.weight_bytes() + tokens * per_token * one.wide_bytes + _oracle_bytes(one)


def _oracle_bytes(one: DecoderShape) -> int:
    """Embedding and head in float64, as the oracle holds them. [B]"""
    return 2 * 8 * one.vocabulary * one.hidden_size
