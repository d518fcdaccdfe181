"""The CPU kernels as a loaded library: built with g++ at first use and kept under a hash of all that made it."""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import subprocess
import tempfile
from functools import cache
from importlib.resources import files
from pathlib import Path

from capacity.errors import CapacityError
from capacity.measure.source import cache_folder

COMPILE_FLAGS = ("-O3", "-march=native", "-ffast-math", "-fopenmp", "-std=c++17", "-fPIC", "-c")
# Linked apart: told of -ffast-math, the linker adds code that switches off subnormal numbers in the whole process.
LINK_FLAGS = ("-fopenmp", "-shared")


def source_sha256() -> str:
    """Hash of the source of the CPU kernels, for the record of a run."""
    return hashlib.sha256(_source()).hexdigest()


def _source() -> bytes:
    return files("capacity.measure").joinpath("kernels/cpu_ref.cpp").read_bytes()


def compiler_version() -> str:
    """First line that ``g++ --version`` prints.

    Raises
    ------
    CapacityError
        If there is no g++.
    """
    compiler = shutil.which("g++")
    if compiler is None:
        raise CapacityError("measuring on a CPU needs g++, which is not on the PATH; install the package g++")
    return subprocess.run([compiler, "--version"], capture_output=True, text=True).stdout.splitlines()[0]


@cache
def library() -> ctypes.CDLL:
    """The compiled kernels; built at first use and kept under a hash of source, flags, compiler and CPU."""
    identity = "\n".join([*COMPILE_FLAGS, *LINK_FLAGS, compiler_version(), cpu_flags()]).encode()
    name = hashlib.sha256(_source() + identity).hexdigest()[:24]
    cached = cache_folder() / f"cpu_ref-{name}.so"
    if not cached.exists():
        _build(cached)
    loaded = ctypes.CDLL(str(cached))
    loaded.ref_read.restype = ctypes.c_double
    return loaded


def cpu_flags() -> str:
    """Instruction sets of this CPU as the kernel lists them, since the code is built for them."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")


def _build(target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        source, compiled, built = (Path(folder, f"cpu_ref.{suffix}") for suffix in ("cpp", "o", "so"))
        source.write_bytes(_source())
        for flags, given, made in ((COMPILE_FLAGS, source, compiled), (LINK_FLAGS, compiled, built)):
            done = subprocess.run(["g++", *flags, "-o", str(made), str(given)], capture_output=True, text=True)
            if done.returncode:
                raise CapacityError(f"g++ could not build cpu_ref.cpp: {done.stderr.strip()[:300]}")
        built.replace(target)
