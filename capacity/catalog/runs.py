"""Measured runs as lines of JSON: written whole or not at all, read with a limit of size."""

from __future__ import annotations

import json
from collections.abc import Iterable
from io import StringIO
from pathlib import Path

from capacity.errors import CapacityError, SpecError
from capacity.files import package_data
from capacity.files.text_file import read_text
from capacity.files.whole_file import write_whole
from capacity.specs.measured_run import MeasuredRun

MAX_FILE_BYTES = 16_000_000


def write_runs(path: str | Path, runs: Iterable[MeasuredRun]) -> Path:
    """Write sealed runs, one per line; the file is complete or absent.

    Raises
    ------
    CapacityError
        If the file cannot be written.
    """
    target = Path(path)
    lines = [_line(run.sealed()) for run in runs]
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_whole(target, "\n".join(lines) + "\n")
    except OSError as error:
        raise CapacityError(f"{target}: cannot be written ({error.strerror or error})") from None
    return target


def _line(run: MeasuredRun) -> str:
    content = run.model_dump(mode="json", exclude_defaults=True)
    return json.dumps({"schema_version": run.schema_version} | content)


def shipped_runs() -> tuple[MeasuredRun, ...]:
    """The committed runs of all devices."""
    folder = package_data.folder("data/runs")
    return tuple(
        run for name in package_data.names("data/runs", ".jsonl") for run in read_runs(folder / f"{name}.jsonl")
    )


def read_runs(path: str | Path) -> tuple[MeasuredRun, ...]:
    """The runs of one file, each validated and its hash checked.

    Raises
    ------
    SpecError
        If the file is too large or not text, a line is not a run, or a run occurs twice; with the line number.
    """
    name, lines = Path(path).name, StringIO(read_text(path, MAX_FILE_BYTES))  # not all lines at once
    runs: list[MeasuredRun] = []
    line_of: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        run = _run(line, f"{name} line {number}")
        if run.run_id in line_of:
            raise SpecError(f"{name} line {number}: run {run.run_id[:12]} is the same as on line {line_of[run.run_id]}")
        line_of[run.run_id] = number
        runs.append(run)
    return tuple(runs)


def _run(line: str, where: str) -> MeasuredRun:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        raise SpecError(f"{where}: not a JSON object") from None
    if not isinstance(data, dict):
        raise SpecError(f"{where}: not a JSON object")
    run = MeasuredRun.parse(data, where)
    if not run.run_id:
        raise SpecError(f"{where}: run_id is missing; a stored run has the hash of its content")
    return run
