"""Runs on a CPU as sealed records: decode, prefill, memory and micro-benchmarks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from capacity.measure.decoder.cpu import library
from capacity.measure.decoder.cpu.step import CacheArrays, CpuDecoder, random_cache
from capacity.measure.decoder.cpu.weights import random_weights
from capacity.measure.decoder.prefill import Prefill
from capacity.measure.runs.check import check_cpu_decode, check_prefill
from capacity.measure.runs.cpu_microbenchmarks import cpu_microbenchmarks
from capacity.measure.runs.environment import Conditions, code_commit, conditions, cpu_machine, now_utc, software
from capacity.measure.runs.fields import counts, workload
from capacity.measure.runs.live_storage import LiveStorage
from capacity.measure.runs.memory_probe import arena_holds, largest_batch
from capacity.measure.runs.timing import MAX_SAMPLES, WARMUP_STEPS, sampled_s
from capacity.measure.shape import DecoderShape
from capacity.specs.measured_run import MeasuredRun, MemoryReading, Quality

CHECKED_CONTEXT = 77
ROUNDS = 8
PREFILL_SAMPLES = 9


def cpu_record(
    kind: str, *, threads: int, before: Conditions, part: str, backend: str = "cpu_ref", **fields: Any
) -> MeasuredRun:
    """A sealed record of this computer's processor; ``before`` are the conditions before the run."""
    return MeasuredRun(
        kind=kind,
        source="cpu",
        created_utc=now_utc(),
        code_commit=code_commit(),
        kernel_sha256=library.source_sha256(),
        machine=cpu_machine(threads, before, part),
        software=software(backend, library.compiler_version(), gemm_backend=backend),
        **fields,
    ).sealed()


def cpu_microbenchmark_run(part: str, *, threads: int, quick: bool) -> MeasuredRun:
    """All micro-benchmarks of this processor as one record."""
    before = conditions()
    values = dict(cpu_microbenchmarks(threads, quick=quick))
    return cpu_record("ceiling", threads=threads, before=before, part=part, values=values)


# ---- decode ----


@dataclass
class DecodeCase:
    """One decoder at one batch and context, its check against the oracle, and the times sampled so far. [s]"""

    decoder: CpuDecoder
    quality: Quality
    samples_s: list[float] = field(default_factory=list)

    def record(self, *, threads: int, before: Conditions, part: str) -> MeasuredRun:
        """The run of this case as a sealed record."""
        shape, batch, context = self.decoder.shape, self.decoder.batch, self.decoder.max_context
        return cpu_record(
            "decode",
            threads=threads,
            before=before,
            part=part,
            workload=workload(shape, batch=batch, context_tokens=context),
            counts=counts(self.decoder.counts()),
            warmup_steps=WARMUP_STEPS,
            samples_s=tuple(self.samples_s),
            operator_s=self.decoder.timed_step(),
            quality=self.quality,
        )


class CpuDecodeRuns:
    """Decode runs of several shapes, each for the same pairs of batch and context.

    All cases of all shapes are sampled in turn, a few steps at a time, round after round, so that a slow minute of the
    computer affects all of them and not one. Cases of a shape share its weights, shapes with the same cache shape
    share a cache.
    """

    def __init__(self, shapes: Sequence[DecoderShape], pairs: Sequence[tuple[int, int]], *, threads: int, part: str):
        self.shapes, self.pairs, self.threads, self.part = shapes, pairs, threads, part
        self.cases: list[DecodeCase] = []
        self.before = conditions()

    def prepare(self) -> Iterator[MeasuredRun]:
        """Make weights and decoders, and check them; yields no runs."""
        caches: dict[tuple[int, ...], CacheArrays] = {}
        largest = max(batch * context for batch, context in self.pairs)
        for shape in self.shapes:
            weights = random_weights(shape, seed=0)
            key = (shape.layers, shape.kv_heads, shape.head_size)
            if key not in caches:
                caches[key] = random_cache(shape, tokens=largest, seed=1)
            batches = {batch for batch, _ in self.pairs}
            checked = {batch: check_cpu_decode(shape, batch, CHECKED_CONTEXT, weights) for batch in batches}
            for batch, context in self.pairs:
                decoder = CpuDecoder(shape, batch, context, threads=self.threads, weights=weights, cache=caches[key])
                self.cases.append(DecodeCase(decoder, checked[batch]))
        return iter(())

    def sample_round(self) -> Iterator[MeasuredRun]:
        """One round: some steps of every case; yields no runs."""
        for case in self.cases:
            case.samples_s.extend(sampled_s(case.decoder.step, max_samples=MAX_SAMPLES // ROUNDS))
        return iter(())

    def records(self) -> Iterator[MeasuredRun]:
        """The runs, after all rounds."""
        for case in self.cases:
            yield case.record(threads=self.threads, before=self.before, part=self.part)


# ---- prefill ----


def cpu_prefill_run(shape: DecoderShape, *, batch: int, tokens: int, threads: int, part: str) -> MeasuredRun:
    """Time of a prefill in plain torch."""
    import torch

    before = conditions()
    torch.set_num_threads(threads)
    model, prompts = Prefill(shape, max_tokens=tokens), _prompts(shape, batch, tokens)
    quality = check_prefill(model, prompts)
    return cpu_record(
        "prefill",
        threads=threads,
        before=before,
        part=part,
        backend="torch",
        workload=workload(shape, batch=batch, prompt_tokens=tokens),
        warmup_steps=WARMUP_STEPS,
        samples_s=sampled_s(lambda: model(prompts), max_samples=PREFILL_SAMPLES),
        quality=quality,
    )


def _prompts(shape: DecoderShape, batch: int, tokens: int) -> Any:
    import torch

    return torch.randint(0, shape.vocabulary, (batch, tokens), generator=torch.Generator().manual_seed(0))


# ---- memory ----


def cpu_memory_run(shape: DecoderShape, *, batch: int, tokens: int, threads: int, part: str) -> MeasuredRun:
    """Weights, cache and activation peak of ``batch`` prompts: bytes of arrays, values written, live storages."""
    before = conditions()
    model, prompts = Prefill(shape, max_tokens=tokens), _prompts(shape, batch, tokens)
    with LiveStorage() as live:
        model(prompts)
    decoder = CpuDecoder(shape, batch, tokens, threads=threads)
    return cpu_record(
        "memory",
        threads=threads,
        before=before,
        part=part,
        backend="torch",
        workload=workload(shape, batch=batch, context_tokens=tokens, prompt_tokens=tokens),
        memory=MemoryReading(
            weight_bytes=model.weight_bytes,
            kv_bytes=written_cache_bytes(decoder, tokens),
            kv_allocated_bytes=decoder.cache_bytes,
            activation_peak_bytes=live.peak_bytes,
            workspace_bytes=decoder.workspace_bytes,
        ),
    )


def written_cache_bytes(decoder: CpuDecoder, tokens: int) -> int:
    """Bytes that ``tokens`` steps write into a cache filled with NaN: those of its values that are then numbers. [B]"""
    decoder.keys[:] = np.nan
    decoder.values[:] = np.nan
    for token in range(1, tokens + 1):
        decoder.move_to(token)
        decoder.step()
    written = sum(np.count_nonzero(~np.isnan(cache)) for cache in (decoder.keys, decoder.values))
    return int(written) * decoder.keys.itemsize


def cpu_arena_run(shape: DecoderShape, *, tokens: int, share: float, threads: int, part: str) -> MeasuredRun:
    """Largest batch of ``tokens`` each that an arena of ``share`` times the weights holds, by bisection."""
    before = conditions()
    model = Prefill(shape, max_tokens=tokens)
    arena_bytes = int(model.weight_bytes * share)
    max_batch = largest_batch(lambda n: arena_holds(model, batch=n, tokens=tokens, arena_bytes=arena_bytes))
    return cpu_record(
        "memory",
        threads=threads,
        before=before,
        part=part,
        backend="torch",
        workload=workload(shape, batch=max(1, max_batch), context_tokens=tokens, prompt_tokens=tokens),
        memory=MemoryReading(weight_bytes=model.weight_bytes, arena_bytes=arena_bytes, max_batch=max_batch),
    )
