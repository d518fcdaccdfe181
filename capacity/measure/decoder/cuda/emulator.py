"""The CUDA kernels on the host: built by the C++ compiler, one fiber per CUDA thread, called as on the device."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from capacity.errors import CapacityError
from capacity.measure.decoder.build_cache import cache_folder, write_cached
from capacity.measure.decoder.cuda.arguments import pack_arguments
from capacity.measure.decoder.cuda.plan import Limits
from capacity.measure.decoder.cuda.source import FOLDER, kernel_names, unit_macros, unit_source

FLAGS = ("-std=c++17", "-O1", "-march=native", "-shared", "-fPIC", "-fvisibility=hidden", "-w")
SANITIZE = ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer")
SCHEDULES = (0, 1, 2)  # in order, in reverse, random with stalling warps


class Emulator:
    """A device of fibers. Correct kernels give the same bits under every schedule.

    Parameters
    ----------
    schedule : int
        One of ``SCHEDULES``.
    sanitize : bool
        Build with the address and undefined-behaviour sanitizers (their runtime must be preloaded).
    """

    device = "cpu"
    limits = Limits(processors=2, block_shared_bytes=227 * 1024, processor_shared_bytes=228 * 1024)

    def __init__(self, schedule: int = 0, sanitize: bool = False) -> None:
        self.schedule = schedule
        self.sanitize = sanitize

    def load(self, unit: str, macros: Mapping[str, int], source: str | None = None) -> dict[str, HostKernel]:
        """Kernels of a unit by name; ``source`` replaces the unit's own file, for tests that break it on purpose."""
        library = _open(build(unit, macros, source, self.sanitize))
        return {name: HostKernel(library, name, self.schedule) for name in kernel_names(unit)}


class HostKernel:
    """One kernel, called like a kernel on the device."""

    def __init__(self, library: ctypes.CDLL, name: str, schedule: int) -> None:
        self.library = library
        self.name = name
        self.schedule = schedule

    def __call__(self, grid: tuple[int, int, int], threads: int, shared_bytes: int, *arguments: Any) -> None:
        """Run all blocks to completion.

        Raises
        ------
        CapacityError
            If threads deadlock.
        """
        array, _values = pack_arguments(arguments)
        self.library.emu_schedule(self.schedule)
        error = self.library.emu_launch(self.name.encode(), *grid, threads, 1, 1, shared_bytes, array)
        if error:
            raise CapacityError(f"kernel {self.name} under schedule {self.schedule}: {error.decode()}")

    def loaded_bytes(self) -> tuple[int, int]:
        """Bytes of weights, and of keys and values, loaded since the library was opened. [B]"""
        return self.library.emu_weight_bytes(), self.library.emu_cache_bytes()

    def blocks_per_processor(self, threads: int, shared_bytes: int) -> int:
        """Resident blocks as on a device; 2 here, so that small matrices need several iterations."""
        return 2


def build(unit: str, macros: Mapping[str, int], source: str | None = None, sanitize: bool = False) -> Path:
    """Shared library of a unit, built once per combination of source, macros and compiler.

    Raises
    ------
    CapacityError
        If there is no C++ compiler, or it rejects the source.
    """
    compiler = find_compiler()
    flags = [*FLAGS, *(SANITIZE if sanitize else ()), *(f"-D{k}={v}" for k, v in unit_macros(unit, macros).items())]
    glue = [(FOLDER / name).read_text() for name in ("cpu_shim.h", "emu.cpp")]
    key = repr((unit_source(unit), source, glue, flags, _version(compiler), os.uname().machine))
    digest = hashlib.sha256(key.encode()).hexdigest()
    library = cache_folder() / f"emu-{unit}-{digest}.so"
    if not library.exists():
        text = FOLDER / f"{unit}.cuh"
        if source is not None:
            text = library.with_suffix(".cuh")
            write_cached(text, source.encode())
        _compile(compiler, flags, unit, text, library)
    return library


@cache
def find_compiler() -> str:
    """Path of the C++ compiler: ``CXX`` or the first of c++, g++, clang++."""
    for name in (os.environ.get("CXX", ""), "c++", "g++", "clang++"):
        if name and shutil.which(name):
            return str(shutil.which(name))
    raise CapacityError(
        "no C++ compiler found: install g++ or clang++, or name one in CXX, to run the kernels on the CPU"
    )


@cache
def _version(compiler: str) -> str:
    return subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False).stdout


@cache
def _open(path: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))
    library.emu_launch.restype = ctypes.c_char_p
    library.emu_weight_bytes.restype = library.emu_cache_bytes.restype = ctypes.c_uint64
    return library


def _compile(compiler: str, flags: list[str], unit: str, text: Path, library: Path) -> None:
    kernels = " ".join(f"f({name})" for name in kernel_names(unit))
    temporary = library.with_suffix(f".{os.getpid()}")
    command = [compiler, *flags, f'-DEMU_UNIT="{text}"', f"-DEMU_KERNELS(f)={kernels}"]
    process = subprocess.run(
        [*command, "-o", str(temporary), str(FOLDER / "emu.cpp")], capture_output=True, text=True, check=False
    )
    if process.returncode:
        raise CapacityError(f"{compiler} did not compile the kernels of {unit}: {process.stderr[:2000]}")
    os.replace(temporary, library)
