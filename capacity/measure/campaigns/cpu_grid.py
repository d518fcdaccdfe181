"""The runs of a CPU campaign: shapes, batches and contexts, and their order."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from capacity.measure.runs import cpu_runs
from capacity.measure.runs.environment import cpu_model
from capacity.measure.shape import DecoderShape
from capacity.specs.measured_run import MeasuredRun

THREADS = 1
DECODE_CASES = [(batch, context) for batch in (1, 2, 4, 8, 16) for context in (128, 512, 1024)]
QUICK_CASES = [(1, 128), (4, 128)]
MEMORY_CASES = [(1, 128), (1, 500), (3, 77), (8, 16), (16, 1)]
ARENA_TOKENS = (40, 256)
ARENA_SHARE = 1.6  # of the weights: leaves room for some sequences and not for all
PREFILL_CASES = [(1, 32), (1, 128), (1, 512), (4, 128)]
SIZES = {  # layers, hidden size, query heads, intermediate size
    "cpu-70m": (8, 640, 10, 1728),
    "cpu-120m": (10, 832, 14, 2240),
    "cpu-200m": (12, 1024, 16, 2816),
    "cpu-350m": (16, 1280, 20, 3456),
    "cpu-500m": (20, 1408, 22, 3840),
}
NARROW = ("cpu-70m", "cpu-200m", "cpu-500m")  # measured in bf16 and int8 too
WIDE_HEADS = (2, 256, 16, 256)  # a small decoder whose attention is wider than its hidden size


def planned(kind: str, *, quick: bool) -> list[tuple[str, Callable[[], Iterator[MeasuredRun]]]]:
    """The runs of one kind, or of all, as named makers, the cheap ones first."""
    part = part_id()
    tasks: list[tuple[str, Callable[[], Iterator[MeasuredRun]]]] = []
    if kind in ("ceilings", "all"):
        microbenchmarks = cpu_runs.cpu_microbenchmark_run
        tasks.append(("ceilings", lambda: iter([microbenchmarks(part, threads=THREADS, quick=quick)])))
    if kind in ("memory", "all"):
        small = [shape("cpu-70m", *SIZES["cpu-70m"]), shape("cpu-wide-heads", *WIDE_HEADS)]
        tasks += [(f"memory {one.name}", _memory(one, part)) for one in small[: 1 if quick else 2]]
    if kind in ("prefill", "all"):
        cases = PREFILL_CASES[: 1 if quick else None]
        wide = [one for one in shapes(quick=quick) if one.weight_format == "fp32"]
        tasks += [(f"prefill {one.name}", _prefill(one, cases, part)) for one in wide[:3]]
    if kind in ("decode", "all"):
        tasks += _decode(part, quick=quick)
    return tasks


def shapes(*, quick: bool) -> list[DecoderShape]:
    """Five sizes in fp32, three of them in bf16 and int8 too; with ``quick`` one small shape."""
    if quick:
        return [shape("cpu-70m", *SIZES["cpu-70m"])]
    narrow = [shape(name, *SIZES[name], weights) for weights in ("bf16", "int8") for name in NARROW]
    return [shape(name, *size) for name, size in SIZES.items()] + narrow


def shape(name: str, layers: int, hidden: int, heads: int, inner: int, weights: str = "fp32") -> DecoderShape:
    """A decoder with heads of 64, two query heads per KV head, a vocabulary of 32,000 and an fp32 cache."""
    return DecoderShape(
        name=f"{name}-{weights}",
        layers=layers,
        hidden_size=hidden,
        query_heads=heads,
        kv_heads=heads // 2,
        head_size=64,
        intermediate_size=inner,
        vocabulary=32_000,
        weight_format=weights,
        kv_format="fp32",
    )


def part_id() -> str:
    """The id of this processor's hardware file: its name in lower case words."""
    words = "".join(letter if letter.isalnum() else " " for letter in cpu_model().lower()).split()
    return "-".join([*words, f"{THREADS}-thread"])


def _decode(part: str, *, quick: bool) -> list[tuple[str, Callable[[], Iterator[MeasuredRun]]]]:
    cases = QUICK_CASES if quick else DECODE_CASES
    runs, rounds = cpu_runs.CpuDecodeRuns(shapes(quick=quick), cases, threads=THREADS, part=part), cpu_runs.ROUNDS
    sampling = [(f"decode: round {number} of {rounds}", runs.sample_round) for number in range(1, rounds + 1)]
    return [("decode: weights and check", runs.prepare), *sampling, ("decode: records", runs.records)]


def _prefill(one: DecoderShape, cases: list[tuple[int, int]], part: str) -> Callable[[], Iterator[MeasuredRun]]:
    return lambda: (
        cpu_runs.cpu_prefill_run(one, batch=batch, tokens=tokens, threads=THREADS, part=part) for batch, tokens in cases
    )


def _memory(one: DecoderShape, part: str) -> Callable[[], Iterator[MeasuredRun]]:
    def make() -> Iterator[MeasuredRun]:
        for batch, tokens in MEMORY_CASES:
            yield cpu_runs.cpu_memory_run(one, batch=batch, tokens=tokens, threads=THREADS, part=part)
        for tokens in ARENA_TOKENS:
            yield cpu_runs.cpu_arena_run(one, tokens=tokens, share=ARENA_SHARE, threads=THREADS, part=part)

    return make
