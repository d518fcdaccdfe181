"""The kernel sources, their compile-time macros, and how arguments are packed for a launch."""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from capacity.errors import CapacityError, unknown_name

FOLDER = Path(__file__).parent / "kernels"
UNITS = ("matrix", "attention", "small")
FORMATS = {"bf16": 0, "fp16": 1, "int8": 2}  # as numbers.cuh names them


class Shape(ctypes.Structure):
    """``struct Shape`` of numbers.cuh."""

    _fields_ = [
        (name, ctypes.c_int)
        for name in (
            "hidden",
            "query_heads",
            "kv_heads",
            "inner",
            "vocabulary",
            "max_context",
            "window",
            "splits",
        )
    ] + [("norm_eps", ctypes.c_float)]


class Matrix(ctypes.Structure):
    """``struct Matrix`` of numbers.cuh."""

    _fields_ = [("weights", ctypes.c_void_p), ("scales", ctypes.c_void_p)]


@cache
def unit_source(unit: str) -> str:
    """Source text of one compilation unit; it includes nothing.

    Raises
    ------
    CapacityError
        If there is no unit of that name.
    """
    if unit not in UNITS:
        raise CapacityError(unknown_name("kernel unit", unit, UNITS))
    return "\n".join((FOLDER / f"{part}.cuh").read_text() for part in ("numbers", unit))


@cache
def kernel_names(unit: str) -> tuple[str, ...]:
    """Names of the kernels of a unit, in the order in which they stand."""
    declarations = re.findall(r'extern "C" __global__ [^;{]*?\)\s*\{', unit_source(unit))
    return tuple(re.search(r"(\w+)\((?!MATRIX|ATTENTION|\d)", text).group(1) for text in declarations)  # type: ignore[union-attr]


def unit_macros(unit: str, macros: Mapping[str, int]) -> dict[str, int]:
    """Those of ``macros`` that the code of the unit uses, so that another choice elsewhere compiles nothing again."""
    words = set(re.findall(r"\w+", re.sub(r"//.*", "", unit_source(unit))))
    return {name: value for name, value in sorted(macros.items()) if name in words}


def kernel_sha256() -> str:
    """Hash of the kernel sources of the device, for the record of a run."""
    digest = hashlib.sha256()
    for name in sorted(("numbers", *UNITS)):
        digest.update((FOLDER / f"{name}.cuh").read_bytes())
    return digest.hexdigest()


def cache_folder() -> Path:
    """Where compiled kernels are kept: the user's cache, or a folder of the user's own beside temporary files."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "capacity"
    for folder in (home, Path(tempfile.gettempdir()) / f"capacity-{os.getuid()}"):
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK) and folder.stat().st_uid == os.getuid():
            return folder
    raise CapacityError(f"{home} cannot be written; set XDG_CACHE_HOME to a folder for compiled kernels")


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that no reader ever sees half of it."""
    handle, temporary = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    os.replace(temporary, path)


def pack_arguments(arguments: tuple[Any, ...]) -> tuple[Any, list[Any]]:
    """Array of pointers as ``cuLaunchKernel`` takes it, and the values it points to, which must outlive the call.

    Tensors go as their address and ``None`` as a null pointer; numbers must be ctypes values, because their
    width has to be that of the kernel's parameter.
    """
    values = [_value(argument) for argument in arguments]
    array = (ctypes.c_void_p * len(values))(*[ctypes.cast(ctypes.byref(v), ctypes.c_void_p) for v in values])
    return array, values


def _value(argument: Any) -> Any:
    if argument is None or hasattr(argument, "data_ptr"):
        return ctypes.c_void_p(argument.data_ptr() if argument is not None else None)
    if isinstance(argument, (ctypes.Structure, ctypes._SimpleCData)):
        return argument
    raise TypeError(f"a kernel argument must be a tensor, None or a ctypes value, got {type(argument).__name__}")
