"""The CPU kernels as a loaded library: built with g++ at first use and cached under a hash of the build's inputs."""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from capacity.errors import CapacityError
from capacity.files import package_data
from capacity.measure.decoder.build_cache import cache_folder

COMPILE_FLAGS = ("-O3", "-march=native", "-ffast-math", "-fopenmp", "-std=c++17", "-fPIC", "-c")
# Linked without -ffast-math, with which the linker adds code that disables subnormal numbers in the whole process.
LINK_FLAGS = ("-fopenmp", "-shared")


def source_sha256() -> str:
    """Hash of the source of the CPU kernels, for the record of a run."""
    return hashlib.sha256(_source()).hexdigest()


def _source() -> bytes:
    return package_data.content("measure/kernels/cpu_ref.cpp")


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
    """The compiled kernels; built at first use and cached under a hash of source, flags, compiler and CPU."""
    identity = "\n".join([*COMPILE_FLAGS, *LINK_FLAGS, compiler_version(), cpu_flags()]).encode()
    name = hashlib.sha256(_source() + identity).hexdigest()[:24]
    cached = cache_folder() / f"cpu_ref-{name}.so"
    if not cached.exists():
        _build(cached)
    loaded = ctypes.CDLL(str(cached))
    loaded.ref_read.restype = ctypes.c_double
    return loaded


def cpu_flags() -> str:
    """Instruction sets of this CPU as the operating system lists them, since the code is built for them."""
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
        for flags, input_path, output_path in ((COMPILE_FLAGS, source, compiled), (LINK_FLAGS, compiled, built)):
            command = ["g++", *flags, "-o", str(output_path), str(input_path)]
            process = subprocess.run(command, capture_output=True, text=True)
            if process.returncode:
                raise CapacityError(f"g++ could not build cpu_ref.cpp: {process.stderr.strip()[:300]}")
        built.replace(target)
