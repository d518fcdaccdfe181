"""The kernel sources of the CUDA decoder, their hash and their compile-time macros."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from functools import cache

from capacity.errors import CapacityError, unknown_name
from capacity.files import package_data

FOLDER = package_data.folder("measure/kernels")
UNITS = ("matrix", "attention", "small")
FORMATS = {"bf16": 0, "fp16": 1, "int8": 2}  # as in numbers.cuh


@cache
def unit_source(unit: str) -> str:
    """Source text of one compilation unit; it includes no other file.

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
    """Names of the kernels of a unit, in the order of their definitions."""
    declarations = re.findall(r'extern "C" __global__ [^;{]*?\)\s*\{', unit_source(unit))
    return tuple(re.search(r"(\w+)\((?!MATRIX|ATTENTION|\d)", text).group(1) for text in declarations)  # type: ignore[union-attr]


def unit_macros(unit: str, macros: Mapping[str, int]) -> dict[str, int]:
    """The macros that occur in the code of the unit: a change of any other one leaves its cached build valid."""
    words = set(re.findall(r"\w+", re.sub(r"//.*", "", unit_source(unit))))
    return {name: value for name, value in sorted(macros.items()) if name in words}


def kernel_sha256() -> str:
    """Hash of the kernel sources of the device, for the record of a run."""
    digest = hashlib.sha256()
    for name in sorted(("numbers", *UNITS)):
        digest.update((FOLDER / f"{name}.cuh").read_bytes())
    return digest.hexdigest()
