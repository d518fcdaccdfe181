"""The conditions of a run on any device: machine, software, commit, load and clocks."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from capacity.specs.measured_run import Machine, Software


def now_utc() -> str:
    """The current time to the second, in ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")


@cache
def code_commit() -> str:
    """Commit of the running code: the value of CAPACITY_COMMIT, or "release" when installed, or the commit from git.

    A commit from git ends in "+" when the measuring code has changes; "unknown" where none of the three is available.
    Determined once: the tree may change during a campaign, the loaded code does not.
    """
    folder = Path(__file__).resolve().parents[1]  # of the whole measuring code
    if stated := os.environ.get("CAPACITY_COMMIT", "").strip():
        return stated
    if {"site-packages", "dist-packages"} & set(folder.parts):
        return "release"
    try:
        commit = _git(folder, "rev-parse", "--short=12", "HEAD")
        changed = _git(folder, "status", "--porcelain", "--untracked-files=no", "--", str(folder))
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return commit + ("+" if changed else "")


def _git(folder: Path, *words: str) -> str:
    command = ["git", "-C", str(folder), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def load_average() -> float:
    """Mean number of runnable processes over the last minute; 0 where the system does not report it."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0


def cpu_model() -> str:
    """The name of the processor, with family and model where the kernel lists them, since a name may be ambiguous."""
    listed = _cpu_listing()
    name = listed.get("model name") or platform.processor() or platform.machine()
    if "cpu family" not in listed or "model" not in listed:
        return name
    return f"{name}, family {listed['cpu family']} model {listed['model']}"


def _cpu_listing() -> dict[str, str]:
    """The fields of /proc/cpuinfo for the first core."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")[0].splitlines()
    except OSError:
        return {}
    pairs = (line.split(":", 1) for line in lines if ":" in line)
    return {name.strip(): value.strip() for name, value in pairs}


def cpu_clock_hz() -> dict[str, float]:
    """The clock of the first core, where the kernel lists it. [Hz]"""
    listed = _cpu_listing().get("cpu MHz")
    return {"core": float(listed) * 1e6} if listed else {}


def last_level_cache_bytes() -> int | None:
    """Size of the largest cache of the first core; None where the kernel does not list it. [B]"""
    sizes = []
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = path.read_text(encoding="ascii").strip()
        if text.endswith("K") and text[:-1].isdigit():
            sizes.append(int(text[:-1]) * 1024)
    return max(sizes, default=None)


def memory_bytes() -> int | None:
    """Main memory of the computer; None where the system does not report it. [B]"""
    if not hasattr(os, "sysconf"):
        return None
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@dataclass(frozen=True)
class Conditions:
    """Load average and clocks at one time. [1], [Hz]"""

    load: float
    clock_hz: dict[str, float]


def conditions() -> Conditions:
    """The current load average and clocks."""
    return Conditions(load_average(), cpu_clock_hz())


def cpu_machine(threads: int, before: Conditions, part: str | None = None) -> Machine:
    """The computer as the measured device, with the conditions before a run and now."""
    after = conditions()
    return Machine(
        device_name=cpu_model(),
        part=part,
        l2_bytes=last_level_cache_bytes(),
        memory_bytes=memory_bytes(),
        clock_hz_before=before.clock_hz,
        clock_hz_after=after.clock_hz,
        cpu_model=cpu_model(),
        threads=threads,
        load_before=before.load,
        load_after=after.load,
    )


def software(backend: str, compiler: str, **more: Any) -> Software:
    """Versions of the software of this process; that of torch only when it is loaded."""
    torch = sys.modules.get("torch")
    return Software(
        python=platform.python_version(),
        numpy=np.__version__,
        torch=torch.__version__ if torch else None,
        system=f"{platform.system()} {platform.release().split('-')[0]} {platform.machine()}",
        compiler=compiler,
        backend=backend,
        **more,
    )
