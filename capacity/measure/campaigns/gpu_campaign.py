"""The whole GPU campaign: ``python -m capacity.measure.campaigns.gpu_campaign --out FOLDER``, in a bare checkout.

Each stage is a process of its own with a time limit, so that one that fails or hangs costs no other. The folder gets
``runs.jsonl``, ``comparison.txt`` and ``campaign.log``; the records of a running stage are in a file of its name,
complete after every run. This module needs the standard library only and reports what is missing for the rest.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from shutil import which

ROOT = Path(__file__).resolve().parents[3]
TESTS = ROOT / "tests" / "measure" / "decoder" / "cuda" / "test_kernels_cuda.py"
NEEDED = ("numpy", "pydantic", "typer", "rich", "torch")
TOTAL_S = 470.0  # of all stages but the comparison
LAST_LINES = 12
WIDTH = "140"  # of the comparison [characters]
OK, FAILED, WRONG_INPUT = 0, 1, 2
TIMED_OUT = 124
TINY = "from capacity.measure.runs.cuda_runs import tiny_steps; tiny_steps()"


@dataclass(frozen=True)
class Stage:
    """One process of the campaign and its time limit; its records or its output may go to a file of their own."""

    name: str
    command: tuple[str, ...]
    limit_s: float
    records: Path | None = None
    output: Path | None = None


def stages(folder: Path, *, quick: bool) -> list[Stage]:
    """The stages, the most valuable first in case time runs out; the comparison of all runs comes last."""
    python, planned = sys.executable, []
    if TESTS.exists() and find_spec("pytest"):
        options = ("-m", "pytest", "-m", "gpu", "-p", "no:cacheprovider", str(TESTS))
        planned.append(Stage("correctness", (python, *options), 120))
    for kind, limit_s in (("ceilings", 60), ("memory", 90), ("decode", 300), ("prefill", 60)):
        records = folder / f"{kind}.jsonl"
        command = (python, "-m", "capacity.cli", "measure", kind, "--device", "cuda", "--out", str(records))
        planned.append(Stage(kind, command + (("--quick",) if quick else ()), limit_s, records=records))
    if sanitizer := which("compute-sanitizer"):
        for tool in ("memcheck", "racecheck"):
            checked = (sanitizer, "--tool", tool, "--error-exitcode", "3", python, "-c", TINY)
            planned.append(Stage(tool, checked, 90))
    compare = (python, "-m", "capacity.cli", "validate", "--runs", str(folder / "runs.jsonl"))
    return [*planned, Stage("comparison", compare, 60, output=folder / "comparison.txt")]


def missing() -> list[str]:
    """A sentence for each thing that the campaign needs and this machine lacks."""
    absent = [sentence for name in NEEDED if (sentence := _not_imported(name))]
    if absent:
        return absent
    from capacity.measure.decoder.cuda.nvrtc import compiler_version
    from capacity.measure.runs.environment import code_commit

    lacking = [sentence for check in (_device_in_catalogue, compiler_version) if (sentence := _error_of(check))]
    if code_commit() == "unknown":
        lacking.append("the commit of this code is unknown to git: set CAPACITY_COMMIT to it")
    return lacking


def _not_imported(name: str) -> str | None:
    try:
        import_module(name)
    except ImportError as error:
        return f"the package {name} cannot be used ({error}): install it, or put a folder with it on PYTHONPATH"
    return None


def _device_in_catalogue() -> object:
    """The catalogue's part for the device that the runs will use.

    Raises
    ------
    CapacityError
        If there is no device, or no part for it, so that its runs could not be compared with any estimate.
    """
    from capacity.errors import CapacityError
    from capacity.measure.runs.cuda_machine import part_of_device
    from capacity.measure.runs.timing import cuda_torch

    cuda = cuda_torch().cuda
    name = cuda.get_device_properties(cuda.current_device()).name
    if part := part_of_device(name):
        return part
    raise CapacityError(f"{name} has no part in the catalogue: add a row to capacity/data/device_names.toml")


def _error_of(check: Callable[[], object]) -> str | None:
    """The message with which a check fails; None when it passes."""
    from capacity.errors import CapacityError

    try:
        check()
    except CapacityError as error:
        return str(error)
    return None


def execute(command: Sequence[str], limit_s: float, output: Path) -> int:
    """Run a process, append its output to a file, and return its exit status; 124 when it was stopped at its limit."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    variables = {"PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1", "COLUMNS": WIDTH}
    with output.open("a", encoding="utf-8") as file:
        try:
            process = subprocess.run(
                command,
                stdout=file,
                stderr=subprocess.STDOUT,
                timeout=limit_s,
                env=os.environ | variables,
                cwd=ROOT,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return TIMED_OUT
    return process.returncode


def join(records: Path, runs: Path) -> None:
    """Append the records of a stage to the file of all runs, and remove its own file."""
    if not records.exists():
        return
    with runs.open("a", encoding="utf-8") as file:
        file.write(records.read_text(encoding="utf-8"))
    records.unlink()


def carry_out(folder: Path, *, quick: bool, total_s: float) -> int:
    """Run all stages, each within its limit and all within ``total_s``, and return the exit code.

    The comparison always has its full limit.
    """
    start, verdicts, code = time.monotonic(), [], OK
    for stage in stages(folder, quick=quick):
        left_s = total_s - (time.monotonic() - start)
        limit_s = stage.limit_s if stage.output else min(stage.limit_s, left_s)
        status, verdict = _run(stage, limit_s, folder) if limit_s > 0 else (TIMED_OUT, "skipped, no time left")
        verdicts.append(f"{stage.name}: {verdict}")
        print(f"== {verdicts[-1]}", flush=True)
        code = code if status == 0 else FAILED
    print("\n".join(["", *verdicts]))
    return code


def _run(stage: Stage, limit_s: float, folder: Path) -> tuple[int, str]:
    """Run a stage, print the end of its output, and return its exit status and its verdict."""
    start, output = time.monotonic(), stage.output or folder / "campaign.log"
    before = output.stat().st_size if output.exists() else 0
    status = execute(stage.command, limit_s, output)
    if stage.records:
        join(stage.records, folder / "runs.jsonl")
    lines = output.read_bytes()[before:].decode("utf-8", "replace").splitlines()
    print("\n".join(lines if stage.output else lines[-LAST_LINES:]), flush=True)
    verdicts = {0: "done", TIMED_OUT: f"stopped at its limit of {limit_s:.0f} s"}
    return status, f"{verdicts.get(status, f'failed with exit code {status}')} ({time.monotonic() - start:.0f} s)"


def main(arguments: Sequence[str] | None = None) -> int:
    """Check the requirements, run the stages, and print how each ended."""
    parser = argparse.ArgumentParser(
        prog="python -m capacity.measure.campaigns.gpu_campaign", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--out", metavar="FOLDER", type=Path, required=True, help="new or empty folder of the results")
    parser.add_argument("--quick", action="store_true", help="one shape and few cases: whether everything works")
    parser.add_argument("--seconds", type=float, default=TOTAL_S, help="limit of all stages (default: %(default)s)")
    options = parser.parse_args(arguments)
    folder, lacking = options.out.resolve(), missing()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        lacking.append(f"--out {options.out}: this is not an empty folder; name another")
    if lacking:
        print("\n".join(f"gpu_campaign: {sentence}" for sentence in lacking), file=sys.stderr)
        return WRONG_INPUT
    folder.mkdir(parents=True, exist_ok=True)
    return carry_out(folder, quick=options.quick, total_s=options.seconds)


if __name__ == "__main__":
    sys.exit(main())
