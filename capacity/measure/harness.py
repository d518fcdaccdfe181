"""Runs of the reference decoder on a CPU: checked against the oracle, warmed up, repeated, and recorded."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from capacity.measure import cpu_decoder, cpu_library, cpu_oracle
from capacity.measure.environment import code_commit, cpu_machine, load_average, now_utc, software
from capacity.measure.operators import OperatorCount, totals
from capacity.measure.quiet import QuietCore
from capacity.measure.shape import DecoderShape
from capacity.specs.measured_run import LEAST_SAMPLES, Counts, Held, MeasuredRun, Quality, RunWorkload

if TYPE_CHECKING:
    from capacity.measure.prefill import Prefill

WARMUP_STEPS = 2
CHECKED_LAYERS = 2  # each kernel and each buffer between them; the rest of the layers repeats them
CHECKED_CONTEXT = 77
ROUNDS = 5
REPEATS = 15
TRIES = 3
LONGEST_SAMPLING_S = 3.0
CHECKED_PROMPT = 8
PREFILL_REPEATS = 9
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
    while len(times) < repeats and (sum(times) < longest_s or len(times) < LEAST_SAMPLES):
        times.append(_timed_s(run))
    return tuple(times)


def _timed_s(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


@dataclass
class Samples:
    """Times of one case: undisturbed ones, and those that a probe before or after calls disturbed. [s]"""

    quiet_s: list[float] = field(default_factory=list)
    disturbed_s: list[float] = field(default_factory=list)

    def take(self, run: Callable[[], Any], core: QuietCore, wanted: int) -> None:
        """Add up to ``wanted`` undisturbed times after a warm-up, from at most ``TRIES`` times as many."""
        for _ in range(WARMUP_STEPS):
            run()
        found, quiet = 0, core.is_quiet()
        for _ in range(TRIES * wanted):
            before, taken = quiet, _timed_s(run)
            quiet = core.is_quiet()
            kept = self.quiet_s if before and quiet else self.disturbed_s
            kept.append(taken)
            found += before and quiet
            if found == wanted:
                return


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
    kind: str, *, threads: int, load: float, part: str, backend: str = "cpu_ref", **fields: Any
) -> MeasuredRun:
    """A sealed record of this computer's processor; ``load`` is the load average before the run."""
    return MeasuredRun(
        kind=kind,
        source="cpu",
        created_utc=now_utc(),
        code_commit=code_commit(),
        kernel_sha256=cpu_library.source_sha256(),
        machine=cpu_machine(threads, load, part),
        software=software(backend, cpu_library.compiler_version(), gemm_backend=backend),
        **fields,
    ).sealed()


def cpu_decode_runs(
    shape: DecoderShape,
    cases: list[tuple[int, int]],
    *,
    threads: int,
    part: str,
    repeats: int = REPEATS,
) -> Iterator[MeasuredRun]:
    """Decode runs of one shape for pairs of batch and context, on shared random weights.

    The cases take turns, a few steps at a time, so that a slow minute of the computer does not fall on one of them.
    """
    weights = cpu_decoder.random_weights(shape, seed=0)
    load = load_average()
    checked = {batch: check_cpu(shape, batch, CHECKED_CONTEXT, weights) for batch in {batch for batch, _ in cases}}
    decoders = [cpu_decoder.CpuDecoder(shape, *case, threads=threads, weights=weights) for case in cases]
    samples, core = [Samples() for _ in cases], QuietCore()
    for _ in range(ROUNDS):
        for decoder, taken in zip(decoders, samples, strict=True):
            taken.take(decoder.step, core, wanted=-(-repeats // ROUNDS))
    for (batch, context), decoder, taken in zip(cases, decoders, samples, strict=True):
        yield cpu_record(
            "decode",
            threads=threads,
            load=load,
            part=part,
            workload=workload(shape, batch=batch, context_tokens=context),
            counts=counts(decoder.counts()),
            warmup_steps=WARMUP_STEPS,
            samples_s=tuple(taken.quiet_s),
            disturbed_s=tuple(taken.disturbed_s),
            operator_s=decoder.timed_step(),
            quality=checked[batch],
        )


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

    load = load_average()
    model = Prefill(shape, max_tokens=tokens)
    prompts = torch.randint(0, shape.vocabulary, (batch, tokens), generator=torch.Generator().manual_seed(0))
    with LiveStorage() as live:
        model(prompts)
    decoder = cpu_decoder.CpuDecoder(shape, batch, tokens, threads=threads)
    return cpu_record(
        "memory",
        threads=threads,
        load=load,
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
    """Bytes that ``tokens`` steps write into an emptied cache: its values that are no longer zero. [B]"""
    decoder.keys[:] = 0
    decoder.values[:] = 0
    for token in range(1, tokens + 1):
        decoder.move_to(token)
        decoder.step()
    written = np.count_nonzero(decoder.keys) + np.count_nonzero(decoder.values)
    return int(written) * decoder.keys.itemsize


def cpu_arena_run(shape: DecoderShape, *, tokens: int, share: float, threads: int, part: str) -> MeasuredRun:
    """Largest batch of ``tokens`` each that an arena of ``share`` times the weights holds, by bisection."""
    from capacity.measure.memory_probe import arena_holds, largest_batch
    from capacity.measure.prefill import Prefill

    load = load_average()
    model = Prefill(shape, max_tokens=tokens)
    arena_bytes = int(model.weight_bytes * share)
    found = largest_batch(lambda n: arena_holds(model, batch=n, tokens=tokens, arena_bytes=arena_bytes))
    return cpu_record(
        "memory",
        threads=threads,
        load=load,
        part=part,
        backend="torch",
        workload=workload(shape, batch=max(1, found), context_tokens=tokens, prompt_tokens=tokens),
        memory=Held(weight_bytes=model.weight_bytes, arena_bytes=arena_bytes, max_batch=found),
    )


def cpu_prefill_run(shape: DecoderShape, *, batch: int, tokens: int, threads: int, part: str) -> MeasuredRun:
    """Time of a prefill in plain torch."""
    import torch

    from capacity.measure.prefill import Prefill

    load = load_average()
    torch.set_num_threads(threads)
    model = Prefill(shape, max_tokens=tokens)
    quality = check_prefill(model)
    prompts = torch.randint(0, shape.vocabulary, (batch, tokens), generator=torch.Generator().manual_seed(0))
    samples = Samples()
    samples.take(lambda: model(prompts), QuietCore(), wanted=PREFILL_REPEATS)
    return cpu_record(
        "prefill",
        threads=threads,
        load=load,
        part=part,
        backend="torch",
        workload=workload(shape, batch=batch, prompt_tokens=tokens),
        warmup_steps=WARMUP_STEPS,
        samples_s=tuple(samples.quiet_s),
        disturbed_s=tuple(samples.disturbed_s),
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
