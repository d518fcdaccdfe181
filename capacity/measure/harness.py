"""Runs of the reference decoder on a CPU: checked against the oracle, warmed up, repeated, and recorded."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from capacity.measure import cpu_decoder, cpu_library, cpu_oracle
from capacity.measure.environment import Conditions, code_commit, conditions, cpu_machine, now_utc, software
from capacity.measure.operators import OperatorCount, totals
from capacity.measure.shape import DecoderShape
from capacity.specs.measured_run import Counts, Held, MeasuredRun, Quality, RunWorkload

if TYPE_CHECKING:
    from capacity.measure.prefill import Prefill

WARMUP_STEPS = 1
CHECKED_LAYERS = 2  # each kernel and each buffer between them; the rest of the layers repeats them
CHECKED_CONTEXT = 77
ROUNDS = 8
REPEATS = 16
LONGEST_SAMPLING_S = 3.0
CHECKED_PROMPT = 8
NO_NUMBER = 1e9  # error of a result that is not a number
TIE_SHARE = 1e-4
PREFILL_TOLERANCE = 1e-5  # of probabilities, which turn an error of a logit into a relative one
TOLERANCE = 5e-6  # fp32 sums of some thousand terms; the weights are exact in all formats


def sampled_s(
    run: Callable[[], Any], *, repeats: int = REPEATS, longest_s: float = LONGEST_SAMPLING_S
) -> tuple[float, ...]:
    """Times of single runs after a warm-up: up to ``repeats``, stopped after ``longest_s`` but never under 3. [s]"""
    for _ in range(WARMUP_STEPS):
        run()
    times: list[float] = []
    while len(times) < repeats and (sum(times) < longest_s or len(times) < 3):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return tuple(times)


def workload(shape: DecoderShape, *, batch: int, context_tokens: int = 0, prompt_tokens: int = 0) -> RunWorkload:
    """The workload of a record: every size of the shape is written out."""
    return RunWorkload(
        model=shape.name,
        shape=asdict(shape),
        weights=shape.weight_format,
        kv_cache=shape.kv_format,
        activations="fp32" if shape.kv_format == "fp32" else shape.wide_format,
        batch=batch,
        context_tokens=context_tokens,
        prompt_tokens=prompt_tokens,
    )


def counts(rows: tuple[OperatorCount, ...]) -> Counts:
    """Counts of one step from the decoder's own table."""
    sums = totals(rows)
    return Counts(
        weight_bytes=sums.weight_bytes,
        kv_read_bytes=sums.kv_read_bytes,
        kv_write_bytes=sums.kv_write_bytes,
        activation_bytes=sums.activation_bytes,
        flop=sums.flop,
        launches=sums.launches,
    )


def cpu_record(
    kind: str, *, threads: int, before: Conditions, part: str, backend: str = "cpu_ref", **fields: Any
) -> MeasuredRun:
    """A sealed record of this computer's processor; ``before`` are the conditions before the run."""
    return MeasuredRun(
        kind=kind,
        source="cpu",
        created_utc=now_utc(),
        code_commit=code_commit(),
        kernel_sha256=cpu_library.source_sha256(),
        machine=cpu_machine(threads, before, part),
        software=software(backend, cpu_library.compiler_version(), gemm_backend=backend),
        **fields,
    ).sealed()


@dataclass
class DecodeCase:
    """One decoder at one batch and context, its check against the oracle, and the times taken so far. [s]"""

    decoder: cpu_decoder.CpuDecoder
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


class CpuDecodeCampaign:
    """Decode runs of several shapes, each for the same pairs of batch and context.

    All cases of all shapes take turns, a few steps at a time, round after round, so that a slow minute of the computer
    falls on all of them and not on one. Cases of a shape share its weights; shapes of one cache format share a cache.
    """

    def __init__(self, shapes: Sequence[DecoderShape], cases: Sequence[tuple[int, int]], *, threads: int, part: str):
        self.shapes, self.pairs, self.threads, self.part = shapes, cases, threads, part
        self.cases: list[DecodeCase] = []
        self.before = conditions()

    def prepare(self) -> Iterator[MeasuredRun]:
        """Make weights and decoders, and check them; gives no runs."""
        caches: dict[tuple[int, ...], cpu_decoder.CacheArrays] = {}
        largest = max(batch * context for batch, context in self.pairs)
        for shape in self.shapes:
            weights = cpu_decoder.random_weights(shape, seed=0)
            key = (shape.layers, shape.kv_heads, shape.head_size)
            if key not in caches:
                caches[key] = cpu_decoder.random_cache(shape, tokens=largest, seed=1)
            checked = {batch: check_cpu(shape, batch, CHECKED_CONTEXT, weights) for batch in {b for b, _ in self.pairs}}
            for batch, context in self.pairs:
                decoder = cpu_decoder.CpuDecoder(
                    shape, batch, context, threads=self.threads, weights=weights, cache=caches[key]
                )
                self.cases.append(DecodeCase(decoder, checked[batch]))
        return iter(())

    def take_turns(self) -> Iterator[MeasuredRun]:
        """One round: some steps of every case; gives no runs."""
        for case in self.cases:
            case.samples_s.extend(sampled_s(case.decoder.step, repeats=REPEATS // ROUNDS))
        return iter(())

    def records(self) -> Iterator[MeasuredRun]:
        """The runs, when all rounds are done."""
        for case in self.cases:
            yield case.record(threads=self.threads, before=self.before, part=self.part)


def check_cpu(shape: DecoderShape, batch: int, context: int, weights: cpu_decoder.Weights) -> Quality:
    """A step of the first layers, with table and head, against the float64 oracle."""
    first = replace(shape, layers=min(shape.layers, CHECKED_LAYERS))
    part = replace(weights, layers=weights.layers[: first.layers])
    decoder = cpu_decoder.CpuDecoder(first, batch, context, weights=part)
    expected = cpu_oracle.logits(decoder)
    decoder.step()
    found = decoder.workspace["logits"].astype(np.float64)
    return quality_of(found, expected, tolerance=TOLERANCE)


def quality_of(found: np.ndarray, expected: np.ndarray, *, tolerance: float, tie_share: float = TIE_SHARE) -> Quality:
    """Error and choice of token of [batch, vocabulary] values; what is not a number is an error without measure.

    Tokens that the oracle puts closer together than ``tie_share`` of its largest value count as the same choice.
    """
    error = float(np.linalg.norm(found - expected) / np.linalg.norm(expected))
    same = bool(np.array_equal(np.argmax(found, axis=1), np.argmax(expected, axis=1)))
    return Quality(
        relative_error=error if math.isfinite(error) else NO_NUMBER,
        argmax_match=same or _near_ties(found, expected, tie_share),
        tolerance=tolerance,
        nan_count=int(np.count_nonzero(~np.isfinite(found))),
    )


def _near_ties(found: np.ndarray, expected: np.ndarray, tie_share: float) -> bool:
    """Whether the tokens chosen differ only where the oracle's two best are closer than the rounding."""
    chosen = np.take_along_axis(expected, np.argmax(found, axis=1)[:, None], axis=1)[:, 0]
    return bool(np.all(expected.max(axis=1) - chosen < tie_share * np.abs(expected).max()))


def cpu_memory_run(shape: DecoderShape, *, batch: int, tokens: int, threads: int, part: str) -> MeasuredRun:
    """Weights, cache and activation peak of ``batch`` prompts: bytes of arrays, values written, live storages."""
    import torch

    from capacity.measure.prefill import LiveStorage, Prefill

    before = conditions()
    model = Prefill(shape, max_tokens=tokens)
    prompts = torch.randint(0, shape.vocabulary, (batch, tokens), generator=torch.Generator().manual_seed(0))
    with LiveStorage() as live:
        model(prompts)
    decoder = cpu_decoder.CpuDecoder(shape, batch, tokens, threads=threads)
    return cpu_record(
        "memory",
        threads=threads,
        before=before,
        part=part,
        backend="torch",
        workload=workload(shape, batch=batch, context_tokens=tokens, prompt_tokens=tokens),
        memory=Held(
            weight_bytes=model.weight_bytes,
            kv_bytes=written_cache_bytes(decoder, tokens),
            kv_allocated_bytes=decoder.cache_bytes,
            activation_peak_bytes=live.peak_bytes,
            workspace_bytes=decoder.workspace_bytes,
        ),
    )


def written_cache_bytes(decoder: cpu_decoder.CpuDecoder, tokens: int) -> int:
    """Bytes that ``tokens`` steps write into a cache that held no number: its values that are one afterwards. [B]"""
    decoder.keys[:] = np.nan
    decoder.values[:] = np.nan
    for token in range(1, tokens + 1):
        decoder.move_to(token)
        decoder.step()
    written = sum(np.count_nonzero(~np.isnan(cache)) for cache in (decoder.keys, decoder.values))
    return int(written) * decoder.keys.itemsize


def cpu_arena_run(shape: DecoderShape, *, tokens: int, share: float, threads: int, part: str) -> MeasuredRun:
    """Largest batch of ``tokens`` each that an arena of ``share`` times the weights holds, by bisection."""
    from capacity.measure.memory_probe import arena_holds, largest_batch
    from capacity.measure.prefill import Prefill

    before = conditions()
    model = Prefill(shape, max_tokens=tokens)
    arena_bytes = int(model.weight_bytes * share)
    found = largest_batch(lambda n: arena_holds(model, batch=n, tokens=tokens, arena_bytes=arena_bytes))
    return cpu_record(
        "memory",
        threads=threads,
        before=before,
        part=part,
        backend="torch",
        workload=workload(shape, batch=max(1, found), context_tokens=tokens, prompt_tokens=tokens),
        memory=Held(weight_bytes=model.weight_bytes, arena_bytes=arena_bytes, max_batch=found),
    )


def cpu_prefill_run(shape: DecoderShape, *, batch: int, tokens: int, threads: int, part: str) -> MeasuredRun:
    """Time of a prefill in plain torch."""
    import torch

    from capacity.measure.prefill import Prefill

    before = conditions()
    torch.set_num_threads(threads)
    model = Prefill(shape, max_tokens=tokens)
    quality = check_prefill(model)
    prompts = torch.randint(0, shape.vocabulary, (batch, tokens), generator=torch.Generator().manual_seed(0))
    return cpu_record(
        "prefill",
        threads=threads,
        before=before,
        part=part,
        backend="torch",
        workload=workload(shape, batch=batch, prompt_tokens=tokens),
        warmup_steps=WARMUP_STEPS,
        samples_s=sampled_s(lambda: model(prompts), repeats=9),
        quality=quality,
    )


def check_prefill(model: Prefill) -> Quality:
    """The first layers and a short prompt against single steps, the last of them in float64."""
    import torch

    first = model.first_layers(CHECKED_LAYERS)
    prompt = torch.randint(0, first.shape.vocabulary, (CHECKED_PROMPT,), generator=torch.Generator().manual_seed(1))
    decoder = cpu_decoder.CpuDecoder(first.shape, 1, CHECKED_PROMPT, weights=cpu_decoder.weights_of(first))
    for number, token in enumerate(prompt.tolist(), start=1):
        decoder.move_to(number)
        decoder.tokens[:] = token
        if number < CHECKED_PROMPT:
            decoder.step()
    logits = cpu_oracle.logits(decoder)[0]
    expected = np.exp(logits - logits.max())
    expected /= expected.sum()
    found = first(prompt[None])[0].double().numpy()
    return quality_of(found[None], expected[None], tolerance=PREFILL_TOLERANCE)
