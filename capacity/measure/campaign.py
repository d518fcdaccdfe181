"""A measuring campaign: which runs are made, in which order, with a progress bar, written as one file of records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from capacity.catalog.runs import write_runs
from capacity.errors import CapacityError, unknown_name
from capacity.files.whole_file import write_whole
from capacity.measure import ceilings, harness
from capacity.measure.environment import code_commit, conditions, cpu_model
from capacity.measure.shape import DecoderShape
from capacity.specs.measured_run import MeasuredRun

# Named makers of runs; a maker also yields a sentence for each case that it leaves out.
Planned = Sequence[tuple[str, Callable[[], Iterator[MeasuredRun | str]]]]
KINDS = ("ceilings", "decode", "memory", "prefill", "all")
DEVICES = ("cpu", "cuda")
THREADS = 1
DECODE_CASES = [(batch, context) for batch in (1, 2, 4, 8, 16) for context in (128, 512, 1024)]
QUICK_CASES = [(1, 128), (4, 128)]
MEMORY_CASES = [(1, 128), (1, 500), (3, 77), (8, 16), (16, 1)]
PREFILL_CASES = [(1, 32), (1, 128), (1, 512), (4, 128)]
ARENA_SHARE = 1.6  # of the weights: leaves room for some sequences and not for all


def cpu_shape(name: str, layers: int, hidden: int, heads: int, inner: int, weights: str = "fp32") -> DecoderShape:
    """A decoder of 64-wide heads, two query heads a KV head, 32,000 words, fp32 cache."""
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


def cpu_shapes(*, quick: bool) -> list[DecoderShape]:
    """Five sizes in fp32, three of them in bf16 and int8 too; one small shape for a quick look."""
    sizes = [
        ("cpu-70m", 8, 640, 10, 1728),
        ("cpu-120m", 10, 832, 13 + 1, 2240),
        ("cpu-200m", 12, 1024, 16, 2816),
        ("cpu-350m", 16, 1280, 20, 3456),
        ("cpu-500m", 20, 1408, 22, 3840),
    ]
    if quick:
        return [cpu_shape(*sizes[0])]
    narrow = [cpu_shape(*sizes[i], weights) for weights in ("bf16", "int8") for i in (0, 2, 4)]
    return [cpu_shape(*size) for size in sizes] + narrow


@dataclass(frozen=True)
class Campaign:
    """The file of the records, how many it holds, and what was asked for and failed, a sentence each."""

    path: Path
    runs: int
    failed: tuple[str, ...] = ()


def run(kind: str, device: str, *, quick: bool = False, out: str | Path | None = None) -> Campaign:
    """Make the runs of one kind, or of all, on one device, and write them.

    Parameters
    ----------
    kind : str
        ceilings, decode, memory, prefill or all.
    device : str
        cpu or cuda.
    quick : bool
        One small shape and few cases: a look, not a record to commit.
    out : path, optional
        File of the records; ``<device>-<kind>.jsonl`` in the present folder when not given.

    Returns
    -------
    Campaign
        The file that was written, and what failed.

    Raises
    ------
    CapacityError
        For an unknown kind or device, a device that is not there, or a file that cannot be written or that already
        holds something.
    """
    for name, given, allowed in (("kind", kind, KINDS), ("device", device, DEVICES)):
        if given not in allowed:
            raise CapacityError(unknown_name(name, given, allowed))
    target = _fresh(Path(f"{device}-{kind}.jsonl" if out is None else out))
    code_commit()  # fixed now: the code that runs is the code that is loaded
    if device == "cpu":
        return _written_with_progress(target, cpu_planned(kind, quick=quick), lambda: True)
    from capacity.measure import cuda_runs

    return _written_with_progress(target, cuda_runs.planned(kind, quick=quick), cuda_runs.device_answers)


def _fresh(target: Path) -> Path:
    """The file, when it can be written and nothing is lost by that: tried before hours of measuring."""
    try:
        if not target.parent.is_dir():
            raise CapacityError(f"--out {target}: the folder {target.parent} does not exist")
        if target.is_dir():
            raise CapacityError(f"--out {target}: this is a folder; name a file")
        there = target.exists()
        if there and not target.is_file():
            raise CapacityError(f"--out {target}: this is not a regular file")
        if there and target.stat().st_size:
            raise CapacityError(f"--out {target}: this file holds something already; move it away or name another")
        write_whole(target, "")
        if not there:
            target.unlink()
    except OSError as error:
        raise CapacityError(f"--out {target}: cannot be written ({error.strerror or error})") from None
    return target


def _written_with_progress(target: Path, planned: Planned, answers: Callable[[], bool]) -> Campaign:
    """Make the runs; the file is whole after each of them, so that a campaign that is cut short keeps what it has.

    What fails is told and the rest goes on, unless the device no longer ``answers``.
    """
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    made: list[MeasuredRun] = []
    written = 0
    failed: list[str] = []
    columns = (SpinnerColumn(), TextColumn("{task.completed:.0f}/{task.total:.0f}"), TextColumn("{task.description}"))
    with Progress(*columns, TimeElapsedColumn(), transient=True) as progress:
        task = progress.add_task("starting", total=len(planned))

        def tell(text: str) -> None:
            progress.console.print(text, highlight=False, markup=False, soft_wrap=True)

        for name, make in planned:
            progress.update(task, description=name)
            try:
                for found in make():
                    if not isinstance(found, str):
                        made.append(found)
                        write_runs(target, made)
                        written = len(made)
                    tell(found if isinstance(found, str) else describe(found))
            except Exception as error:  # whatever it is, it must not cost the other runs
                failed.append(f"{name} failed: {_first_line(error)}")
                tell(failed[-1])
                if not answers():
                    failed.append("the device no longer answers, so the runs after that were not made")
                    tell(failed[-1])
                    break
            progress.advance(task)
    return Campaign(target, written, tuple(failed))


def _first_line(error: Exception) -> str:
    """What went wrong, in one line; the kind of an error that is not ours says more than its words."""
    text = (str(error).strip() or "no reason given").splitlines()[0]
    return text if isinstance(error, CapacityError) else f"{type(error).__name__}: {text}"


def describe(made: MeasuredRun) -> str:
    """A run in one line, and whether it is accepted."""
    verdict = "accepted" if made.accepted else f"rejected: {made.reject_reason}"
    if made.workload is None:
        values = ", ".join(f"{name} {value:.3g}" for name, value in made.values.items())
        return f"{made.kind}, {values}: {verdict}"
    w = made.workload
    text = f"{made.kind} {w.model}, batch {w.batch}, context {w.context_tokens or w.prompt_tokens}"
    return f"{text}, {made.min_s * 1e3:.2f} ms: {verdict}" if made.samples_s else f"{text}: {verdict}"


def cpu_planned(kind: str, *, quick: bool) -> list[tuple[str, Callable[[], Iterator[MeasuredRun]]]]:
    """The runs of a CPU campaign as named makers, cheap ones first."""
    part = cpu_part_id()
    shapes, planned = cpu_shapes(quick=quick), []
    if kind in ("ceilings", "all"):
        planned.append(("ceilings", lambda: iter([cpu_ceiling_run(part, quick=quick)])))
    if kind in ("memory", "all"):
        small = [cpu_shape("cpu-70m", 8, 640, 10, 1728), cpu_shape("cpu-wide-heads", 2, 256, 16, 256)]
        planned += [(f"memory {shape.name}", _memory(shape, part)) for shape in small[: 1 if quick else 2]]
    if kind in ("prefill", "all"):
        cases = PREFILL_CASES[: 1 if quick else None]
        chosen = [shape for shape in shapes if shape.weight_format == "fp32"][:3]
        planned += [(f"prefill {shape.name}", _prefill(shape, cases, part)) for shape in chosen]
    if kind in ("decode", "all"):
        cases = QUICK_CASES if quick else DECODE_CASES
        decode = harness.CpuDecodeCampaign(shapes, cases, threads=THREADS, part=part)
        planned.append(("decode: weights and check", decode.prepare))
        rounds = harness.ROUNDS
        planned += [(f"decode: round {n} of {rounds}", decode.take_turns) for n in range(1, rounds + 1)]
        planned.append(("decode: records", decode.records))
    return planned


def cpu_part_id() -> str:
    """The id of this processor's hardware file: its name in lower case words."""
    words = "".join(letter if letter.isalnum() else " " for letter in cpu_model().lower()).split()
    return "-".join([*words, f"{THREADS}-thread"])


def _prefill(shape: DecoderShape, cases: list[tuple[int, int]], part: str) -> Callable[[], Iterator[MeasuredRun]]:
    return lambda: (
        harness.cpu_prefill_run(shape, batch=batch, tokens=tokens, threads=THREADS, part=part)
        for batch, tokens in cases
    )


def _memory(shape: DecoderShape, part: str) -> Callable[[], Iterator[MeasuredRun]]:
    def make() -> Iterator[MeasuredRun]:
        for batch, tokens in MEMORY_CASES:
            yield harness.cpu_memory_run(shape, batch=batch, tokens=tokens, threads=THREADS, part=part)
        for tokens in (40, 256):
            yield harness.cpu_arena_run(shape, tokens=tokens, share=ARENA_SHARE, threads=THREADS, part=part)

    return make


def cpu_ceiling_run(part: str, *, quick: bool) -> MeasuredRun:
    """All ceilings of this processor as one record."""
    before = conditions()
    found = dict(ceilings.cpu_ceilings(THREADS, quick=quick))
    return harness.cpu_record("ceiling", threads=THREADS, before=before, part=part, values=found)
