"""The GPU campaign: ceilings, correctness, decode and prefill grids and memory of the CUDA decoder, as records.

Rehearsed without a device by running the same functions on the emulation; what that takes is never recorded.
"""

from __future__ import annotations

import subprocess
import tomllib
from collections.abc import Callable, Iterator
from functools import partial
from importlib.resources import files
from typing import Any

from capacity.measure import ceilings, nvrtc
from capacity.measure.environment import code_commit, cpu_model, load_average, now_utc, software
from capacity.measure.harness import counts, workload
from capacity.measure.memory_probe import largest_batch
from capacity.measure.oracle import relative_error, step
from capacity.measure.prefill import Prefill
from capacity.measure.shape import DecoderShape
from capacity.measure.source import kernel_sha256
from capacity.measure.step import ReferenceDecoder
from capacity.specs.measured_run import Held, Machine, MeasuredRun, Quality

# fp32 accumulation up to batch 4; above, activations in 16 bits round once a kernel (docs/kernel.md).
TOLERANCES = {"fused": 2e-6, "bf16": 2e-2, "int8": 2e-2, "fp16": 3e-3}
REPLAYS = 20
CONTEXTS = (128, 2048, 8192)
BATCHES = (1, 2, 4, 16, 64)


def shapes(*, quick: bool) -> list[DecoderShape]:
    """Sizes of well-known decoders, 1 to 15 GB a step at 16 bits, and two of them in int8 and fp16."""
    sizes = {
        "1b": (16, 2048, 32, 8, 64, 8192, 128_256),
        "3b": (28, 3072, 24, 8, 128, 8192, 128_256),
        "7b": (32, 4096, 32, 32, 128, 11_008, 32_000),
        "8b": (32, 4096, 32, 8, 128, 14_336, 128_256),
    }
    wanted = [("1b", "bf16")] if quick else [(name, "bf16") for name in sizes]
    wanted += [] if quick else [("1b", "int8"), ("8b", "int8"), ("1b", "fp16")]
    return [shape(name, *sizes[name], weights) for name, weights in wanted]


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


def planned(kind: str, *, quick: bool) -> list[tuple[str, Callable[[], Iterator[MeasuredRun]]]]:
    """The runs of a GPU campaign as named makers, in the order that gives most if it is cut short."""
    found: list[tuple[str, Callable[[], Iterator[MeasuredRun]]]] = []
    all_shapes = shapes(quick=quick)
    if kind in ("ceilings", "all"):
        found.append(("ceilings", lambda: iter([ceiling_run(quick=quick)])))
    if kind in ("decode", "all"):
        found += [(f"decode {one.name}", _decode(one, quick)) for one in all_shapes]
    if kind in ("memory", "all"):
        found += [(f"memory {one.name}", _memory(one)) for one in all_shapes[:2]]
    if kind in ("prefill", "all"):
        found += [(f"prefill {one.name}", _prefill(one, quick)) for one in all_shapes if one.weight_format == "bf16"]
    return found


def ceiling_run(*, quick: bool) -> MeasuredRun:
    """All ceilings of the device as one record, its own streaming read among them."""
    before = _smi()
    load = load_average()
    found = dict(ceilings.cuda_ceilings(quick=quick))
    found["read_bytes_per_s"] = max(found["read_bytes_per_s"], _own_read_bytes_per_s())
    return _record("ceiling", before, load, values=found)


def _own_read_bytes_per_s() -> float:
    """The decoder's own streaming read of a buffer larger than any cache. [B/s]"""
    import ctypes

    import torch

    from capacity.measure.driver import CudaDevice

    device = CudaDevice()
    kernel = device.load("small", {"WIDE": 0, "HEAD_SIZE": 8, "BLOCK_TOKENS": 1})["stream_read"]
    size = 2**31
    words = torch.randint(0, 2**31 - 1, (size // 4,), dtype=torch.int32, device="cuda")
    out = torch.zeros(1, dtype=torch.int32, device="cuda")
    blocks = device.limits.processors * max(1, kernel.blocks_per_processor(512, 0))
    count = ctypes.c_longlong(size // 16)
    return size / ceilings.cuda_best_s(torch, lambda: kernel((blocks, 1, 1), 512, 0, words, count, out))


def _decode(one: DecoderShape, quick: bool) -> Callable[[], Iterator[MeasuredRun]]:
    def make() -> Iterator[MeasuredRun]:
        from capacity.measure.driver import CudaDevice
        from capacity.measure.weights import random_weights

        device = CudaDevice()
        weights = random_weights(one, device.device)
        for batch in BATCHES[: 1 if quick else None]:
            for context in CONTEXTS[: 1 if quick else None]:
                if batch * context <= 64 * 2048:
                    yield decode_run(one, batch, context, device, weights)

    return make


def decode_run(one: DecoderShape, batch: int, context: int, backend: Any, weights: Any) -> MeasuredRun:
    """One decode run: checked against the oracle on a shape of one layer, then a captured step replayed."""
    import torch

    before, load = _smi(), load_average()
    quality = check(one, batch, min(context, 512), backend)
    decoder = ReferenceDecoder(one, batch, context, backend, weights=weights, advance=False)
    decoder.set_state([0] * batch, [context - 1] * batch)
    graph = decoder.capture()
    return _record(
        "decode",
        before,
        load,
        workload=workload(one, batch=batch, context_tokens=context),
        counts=counts(decoder.operators(context)),
        clock="cuda_event",
        warmup_steps=3,
        samples_s=ceilings.event_samples_s(torch, graph.replay, REPLAYS),
        quality=quality,
        graph=True,
        gemm_backend=decoder.gemm_backend,
        splits=decoder.splits,
    )


def check(one: DecoderShape, batch: int, context: int, backend: Any) -> Quality:
    """A step of a decoder of two such layers and a short vocabulary against the float64 oracle."""
    from dataclasses import replace

    import torch

    small = replace(one, layers=2, vocabulary=min(one.vocabulary, 4096))
    decoder = ReferenceDecoder(small, batch, context, backend, advance=False)
    token = [number % small.vocabulary for number in range(batch)]
    decoder.set_state(token, [context - 1] * batch)
    decoder.step()
    if backend.device == "cuda":
        torch.cuda.synchronize()
    table = decoder.workspace["block_table"]
    expected = step(
        small, decoder.weights, decoder_tokens(decoder, token), decoder.position, decoder.keys, decoder.values, table
    ).logits
    found = decoder.logits[:, : small.vocabulary]
    same = bool((found.argmax(1) == expected.argmax(1)).all())
    narrow = decoder.gemm_backend != "simt"
    return Quality(
        relative_error=relative_error(found, expected),
        argmax_match=same or narrow,  # 16-bit logits tie; the error then judges alone
        tolerance=TOLERANCES[small.weight_format if narrow else "fused"],
    )


def decoder_tokens(decoder: ReferenceDecoder, token: list[int]) -> Any:
    """The tokens of the step as the decoder's device holds them; the step itself has replaced its own."""
    import torch

    return torch.tensor(token, dtype=torch.int32, device=decoder.position.device)


def _prefill(one: DecoderShape, quick: bool) -> Callable[[], Iterator[MeasuredRun]]:
    def make() -> Iterator[MeasuredRun]:
        import torch

        model = Prefill(one, device="cuda", max_tokens=8192)
        for batch, tokens in [(1, 128)] if quick else [(1, 128), (1, 1024), (1, 8192), (8, 1024)]:
            before, load = _smi(), load_average()
            prompts = torch.randint(0, one.vocabulary, (batch, tokens), device="cuda")
            samples = ceilings.event_samples_s(torch, partial(model, prompts), repeats=9)
            asked = workload(one, batch=batch, prompt_tokens=tokens)
            yield _record(
                "prefill", before, load, workload=asked, clock="cuda_event", samples_s=samples, backend="torch"
            )

    return make


def _memory(one: DecoderShape) -> Callable[[], Iterator[MeasuredRun]]:
    def make() -> Iterator[MeasuredRun]:
        for batch, tokens in ((1, 1000), (4, 2048)):
            yield memory_run(one, batch=batch, tokens=tokens)

    return make


def memory_run(one: DecoderShape, *, batch: int, tokens: int) -> MeasuredRun:
    """Weights, cache and prefill peak as the caching allocator counts them, and the largest batch in an arena."""
    import torch

    from capacity.measure.memory_probe import arena_holds, paged_cache

    before, load = _smi(), load_average()
    start = torch.cuda.memory_allocated()
    model = Prefill(one, device="cuda", max_tokens=tokens)
    prompts = torch.randint(0, one.vocabulary, (batch, tokens), device="cuda")
    held = paged_cache(one, batch, tokens, "cuda")
    torch.cuda.reset_peak_memory_stats()
    base = torch.cuda.memory_allocated()
    model(prompts)
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated() - base
    arena_bytes = int(model.weight_bytes * 1.6)
    found = largest_batch(lambda n: arena_holds(model, batch=n, tokens=tokens, arena_bytes=arena_bytes), limit=256)
    allocated = sum(tensor.nbytes for tensor in held)
    return _record(
        "memory",
        before,
        load,
        workload=workload(one, batch=batch, context_tokens=tokens, prompt_tokens=tokens),
        backend="torch",
        memory=Held(
            weight_bytes=model.weight_bytes,
            kv_bytes=2 * one.layers * tokens * one.kv_size * one.kv_bytes * batch,
            kv_allocated_bytes=allocated,
            activation_peak_bytes=peak,
            context_bytes=start,
            arena_bytes=arena_bytes,
            max_batch=found,
        ),
    )


def _record(kind: str, before: dict[str, float], load: float, **fields: Any) -> MeasuredRun:
    """A sealed record of this device."""
    told = {name: fields.pop(name) for name in ("graph", "gemm_backend", "splits") if name in fields}
    return MeasuredRun(
        kind=kind,
        source="gpu",
        created_utc=now_utc(),
        code_commit=code_commit(),
        kernel_sha256=kernel_sha256(),
        machine=machine(before, load),
        software=software(fields.pop("backend", "nvrtc"), nvrtc.compiler_version(), **told),
        **fields,
    ).sealed()


def machine(before: dict[str, float], load: float) -> Machine:
    """The device and its clocks and power limit before and after."""
    import torch

    facts, after = torch.cuda.get_device_properties(0), _smi()
    return Machine(
        device_name=facts.name,
        part=part_of_device(facts.name),
        compute_capability=f"{facts.major}.{facts.minor}",
        units=facts.multi_processor_count,
        l2_bytes=getattr(facts, "L2_cache_size", None),
        memory_bytes=facts.total_memory,
        driver=_smi_text("driver_version"),
        power_limit_w=after.get("power_limit_w"),
        clock_hz_before={name: before[name] for name in ("sm", "memory") if name in before},
        clock_hz_after={name: after[name] for name in ("sm", "memory") if name in after},
        cpu_model=cpu_model(),
        threads=1,
        load_before=load,
        load_after=load_average(),
    )


def part_of_device(name: str) -> str | None:
    """The part of the catalogue that a device name stands for; None when the table does not know the name."""
    text = files("capacity").joinpath("data/device_names.toml").read_text(encoding="utf-8")
    return tomllib.loads(text).get(name)


def _smi() -> dict[str, float]:
    """Clocks [Hz] and power limit [W] as the driver tool prints them; empty where it is missing."""
    numbers = _smi_text("clocks.sm,clocks.mem,power.limit").split(",")
    names = (("sm", 1e6), ("memory", 1e6), ("power_limit_w", 1.0))
    try:
        return {name: float(text) * factor for (name, factor), text in zip(names, numbers, strict=True)}
    except ValueError:
        return {}


def _smi_text(query: str) -> str:
    command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits", "--id=0"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
