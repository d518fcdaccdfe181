"""Compile the kernels for one architecture: NVRTC through ctypes, or nvcc, with a cache of the results."""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from capacity.errors import CapacityError
from capacity.measure.decoder.build_cache import cache_folder, write_cached
from capacity.measure.decoder.cuda.source import unit_macros, unit_source

INSTALL = (
    "no CUDA compiler found: install one with `pip install nvidia-cuda-nvrtc` (CUDA 13) or "
    "`pip install nvidia-cuda-nvrtc-cu12` (CUDA 12), or put nvcc on the PATH"
)


def compile_unit(unit: str, macros: Mapping[str, int], architecture: str) -> bytes:
    """Machine code (a cubin) of a unit of kernels, from the cache when it has been compiled before.

    Parameters
    ----------
    unit : str
        ``matrix``, ``attention`` or ``small``.
    macros : mapping of str to int
        Values of the macros that numbers.cuh lists.
    architecture : str
        ``sm_90`` for compute capability 9.0, and so on.

    Raises
    ------
    CapacityError
        If there is no compiler, or it rejects the source or the architecture.
    """
    source, used = unit_source(unit), unit_macros(unit, macros)
    key = repr((source, used, architecture, compiler_version()))
    path = cache_folder() / f"{unit}-{architecture}-{hashlib.sha256(key.encode()).hexdigest()}.cubin"
    if not path.exists():
        write_cached(path, compile_source(source, used, architecture)[0])
    return path.read_bytes()


def compile_source(source: str, macros: Mapping[str, int], architecture: str) -> tuple[bytes, str]:
    """The cubin and the compiler's report (registers and spills of each kernel), without the cache."""
    library = find_nvrtc()
    if library is not None:
        return _compile_nvrtc(library, source, macros, architecture)
    if shutil.which("nvcc"):
        return _compile_nvcc(source, macros, architecture)
    raise CapacityError(INSTALL)


def compiler_version() -> str:
    """``nvrtc 13.5`` or ``nvcc 13.0``: part of the cache's key and of the record of a run."""
    library = find_nvrtc()
    if library is not None:
        major, minor = ctypes.c_int(), ctypes.c_int()
        library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
        return f"nvrtc {major.value}.{minor.value}"
    if shutil.which("nvcc"):
        text = subprocess.run(["nvcc", "--version"], capture_output=True, text=True, check=False).stdout
        release = re.search(r"release ([\d.]+)", text)
        return f"nvcc {release.group(1) if release else 'unknown'}"
    raise CapacityError(INSTALL)


def find_nvrtc() -> Any:
    """The NVRTC library, or None; when torch is loaded, that of the CUDA version torch was built for is preferred."""
    torch = sys.modules.get("torch")
    built_for = torch.version.cuda if torch else None
    return _open_first((built_for or "").partition(".")[0])


@cache
def _open_first(major: str) -> Any:
    """The first library that loads, ``major`` first: a driver loads no image of a newer major version than its own."""
    for candidate in sorted(_candidates(), key=lambda path: not (major and str(path).endswith(f".so.{major}"))):
        try:
            library = ctypes.CDLL(str(candidate))
        except OSError:
            continue
        library.nvrtcGetErrorString.restype = ctypes.c_char_p
        return library
    return None


def _candidates() -> list[str | Path]:
    """Libraries in the installed packages, then on the loader's search path, then below CUDA_HOME."""
    packaged = [
        path
        for folder in sys.path
        if folder
        for path in sorted(Path(folder).glob("nvidia/*/lib/libnvrtc.so.1[0-9]"), reverse=True)
    ]
    toolkit = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    in_toolkit = sorted(Path(toolkit).glob("lib*/libnvrtc.so.1[0-9]"), reverse=True) if toolkit else []
    return [*packaged, "libnvrtc.so.13", "libnvrtc.so.12", *in_toolkit]


def _compile_nvrtc(library: Any, source: str, macros: Mapping[str, int], architecture: str) -> tuple[bytes, str]:
    options = [f"--gpu-architecture={architecture}", "--std=c++17", "--ptxas-options=-v", *_defines(macros)]
    program = ctypes.c_void_p()
    _check(library, library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"decode.cu", 0, None, None))
    try:
        array = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
        status = library.nvrtcCompileProgram(program, len(options), array)
        report = _read(library, program, "ProgramLog").decode(errors="replace").strip("\0")
        if status:
            reason = library.nvrtcGetErrorString(status).decode()
            raise CapacityError(f"NVRTC did not compile the kernels for {architecture}: {reason}\n{report[:2000]}")
        return _read(library, program, "CUBIN"), report
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _read(library: Any, program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    _check(library, getattr(library, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(size.value)
    _check(library, getattr(library, f"nvrtcGet{what}")(program, buffer))
    return buffer.raw


def _check(library: Any, status: int) -> None:
    if status:
        raise CapacityError(f"NVRTC failed: {library.nvrtcGetErrorString(status).decode()}")


def _compile_nvcc(source: str, macros: Mapping[str, int], architecture: str) -> tuple[bytes, str]:
    with tempfile.TemporaryDirectory() as folder:
        text, cubin = Path(folder) / "decode.cu", Path(folder) / "decode.cubin"
        text.write_text(source)
        command = ["nvcc", "-cubin", f"-arch={architecture}", "-std=c++17", "-Xptxas", "-v", *_defines(macros)]
        process = subprocess.run([*command, "-o", str(cubin), str(text)], capture_output=True, text=True, check=False)
        if process.returncode:
            raise CapacityError(f"nvcc did not compile the kernels for {architecture}: {process.stderr[:2000]}")
        return cubin.read_bytes(), process.stderr


def _defines(macros: Mapping[str, int]) -> list[str]:
    return [f"-D{name}={value}" for name, value in macros.items()]
