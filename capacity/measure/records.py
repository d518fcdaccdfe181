"""Measured runs as lines of JSON: written whole or not at all, read with bounds."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from capacity.errors import CapacityError, SpecError
from capacity.importers.text_file import read_text
from capacity.specs.measured_run import MeasuredRun

LARGEST_FILE_BYTES = 64_000_000


def write_runs(path: str | Path, runs: Iterable[MeasuredRun]) -> Path:
    """Write sealed runs, one a line, by way of a temporary file beside ``path``.

    Raises
    ------
    CapacityError
        If the folder cannot be written.
    """
    target = Path(path)
    lines = [_line(run.sealed()) for run in runs]
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
        os.chmod(temporary, 0o644)
        os.replace(temporary, target)
    except OSError as error:
        raise CapacityError(f"{target}: cannot be written ({error.strerror or error})") from None
    return target


def _line(run: MeasuredRun) -> str:
    content = run.model_dump(mode="json", exclude_defaults=True)
    return json.dumps({"schema_version": run.schema_version} | content)


def read_runs(path: str | Path) -> tuple[MeasuredRun, ...]:
    """The runs of one file, each validated and its hash checked.

    Raises
    ------
    SpecError
        If the file is too large or not text, or a line is not a run; the line number is given.
    """
    name, lines = Path(path).name, read_text(path, LARGEST_FILE_BYTES).splitlines()
    return tuple(_run(line, f"{name} line {number}") for number, line in enumerate(lines, 1) if line.strip())


def _run(line: str, where: str) -> MeasuredRun:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        raise SpecError(f"{where}: not a JSON object") from None
    if not isinstance(data, dict):
        raise SpecError(f"{where}: not a JSON object")
    run = MeasuredRun.parse(data, where)
    if not run.run_id:
        raise SpecError(f"{where}: run_id is missing; a stored run carries the hash of its content")
    return run
