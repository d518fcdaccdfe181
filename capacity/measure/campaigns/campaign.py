"""One campaign on one device: its runs made with a progress bar and written as one file of records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from capacity.catalog.runs import write_runs
from capacity.errors import CapacityError, unknown_name
from capacity.files.whole_file import write_whole
from capacity.measure.campaigns import cpu_grid, cuda_grid
from capacity.measure.runs.cuda_machine import device_responds
from capacity.measure.runs.environment import code_commit
from capacity.specs.measured_run import MeasuredRun

# Named makers of runs; a maker also yields a sentence for each case that it skips.
Planned = Sequence[tuple[str, Callable[[], Iterator[MeasuredRun | str]]]]
KINDS = ("ceilings", "decode", "memory", "prefill", "all")
DEVICES = ("cpu", "cuda")


@dataclass(frozen=True)
class Campaign:
    """The file of the records, how many it holds, and a sentence for each failure."""

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
        One small shape and few cases: a trial, not a record to commit.
    out : path, optional
        File of the records; by default ``<device>-<kind>.jsonl`` in the current folder.

    Returns
    -------
    Campaign
        The file that was written, and the failures.

    Raises
    ------
    CapacityError
        For an unknown kind or device, a missing device or torch, or a file that cannot be written or is not empty.
    """
    for name, value, allowed in (("kind", kind, KINDS), ("device", device, DEVICES)):
        if value not in allowed:
            raise CapacityError(unknown_name(name, value, allowed))
    target = _fresh(Path(f"{device}-{kind}.jsonl" if out is None else out))
    if find_spec("torch") is None:
        raise CapacityError("measuring needs torch: install capacity-planner[measure]")
    code_commit()  # determined now: the code that runs is the code that is loaded
    if device == "cpu":
        return _written_with_progress(target, cpu_grid.planned(kind, quick=quick), lambda: True)
    return _written_with_progress(target, cuda_grid.planned(kind, quick=quick), device_responds)


def _fresh(target: Path) -> Path:
    """The file, once it is known to be writable and empty: tested before hours of measuring."""
    try:
        if not target.parent.is_dir():
            raise CapacityError(f"--out {target}: the folder {target.parent} does not exist")
        if target.is_dir():
            raise CapacityError(f"--out {target}: this is a folder; name a file")
        exists = target.exists()
        if exists and not target.is_file():
            raise CapacityError(f"--out {target}: this is not a regular file")
        if exists and target.stat().st_size:
            raise CapacityError(f"--out {target}: this file is not empty; move it away or name another")
        write_whole(target, "")
        if not exists:
            target.unlink()
    except OSError as error:
        raise CapacityError(f"--out {target}: cannot be written ({error.strerror or error})") from None
    return target


def _written_with_progress(target: Path, planned: Planned, responds: Callable[[], bool]) -> Campaign:
    """Make the runs; the file is complete after each of them, so that an interrupted campaign keeps its runs.

    Failures are reported and the campaign continues, unless the device no longer ``responds``.
    """
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    records: list[MeasuredRun] = []
    written = 0
    failed: list[str] = []
    columns = (SpinnerColumn(), TextColumn("{task.completed:.0f}/{task.total:.0f}"), TextColumn("{task.description}"))
    with Progress(*columns, TimeElapsedColumn(), transient=True) as progress:
        task = progress.add_task("starting", total=len(planned))

        def report(text: str) -> None:
            progress.console.print(text, highlight=False, markup=False, soft_wrap=True)

        for name, make in planned:
            progress.update(task, description=name)
            try:
                for result in make():
                    if not isinstance(result, str):
                        records.append(result)
                        write_runs(target, records)
                        written = len(records)
                    report(result if isinstance(result, str) else describe(result))
            except Exception as error:  # of any kind: it must not cost the other runs
                failed.append(f"{name} failed: {_first_line(error)}")
                report(failed[-1])
                if not responds():
                    failed.append("the device no longer responds, so the remaining runs were not made")
                    report(failed[-1])
                    break
            progress.advance(task)
    return Campaign(target, written, tuple(failed))


def _first_line(error: Exception) -> str:
    """The message in one line, with the type of an error that is not the package's own."""
    text = (str(error).strip() or "no reason stated").splitlines()[0]
    return text if isinstance(error, CapacityError) else f"{type(error).__name__}: {text}"


def describe(run: MeasuredRun) -> str:
    """A run in one line, and whether it is accepted."""
    verdict = "accepted" if run.accepted else f"rejected: {run.reject_reason}"
    if run.workload is None:
        values = ", ".join(f"{name} {value:.3g}" for name, value in run.values.items())
        return f"{run.kind}, {values}: {verdict}"
    w = run.workload
    text = f"{run.kind} {w.model}, batch {w.batch}, context {w.context_tokens or w.prompt_tokens}"
    return f"{text}, {run.min_s * 1e3:.2f} ms: {verdict}" if run.samples_s else f"{text}: {verdict}"
