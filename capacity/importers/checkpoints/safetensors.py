"""Names, formats and exact bytes of the tensors of a checkpoint, from the headers of its files alone.

A file begins with eight bytes that hold the length of a JSON header; the header holds for each tensor its type, shape
and offsets. Weights are never read. Format: github huggingface/safetensors README.md.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from capacity.errors import SpecError
from capacity.files.json_file import parse_object, read_object, require_regular

MAX_HEADER_BYTES = 10_000_000  # a hundred thousand tensors in one file
ELEMENT_BITS = {
    "F64": 64, "F32": 32, "F16": 16, "BF16": 16, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F4": 4, "F6_E2M3": 6,
    "F6_E3M2": 6, "I64": 64, "I32": 32, "I16": 16, "I8": 8, "U64": 64, "U32": 32, "U16": 16, "U8": 8, "BOOL": 8,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor as its file declares it. Bytes are those of its data, without the header."""

    dtype: str
    shape: tuple[int, ...]
    data_bytes: int


def read_header(path: str | Path) -> dict[str, StoredTensor]:
    """The tensors of one file by name.

    Raises
    ------
    SpecError
        If the file is truncated, the header is too large or not JSON, sizes and offsets disagree, or the tensors do
        not cover the data exactly once.
    """
    file_bytes, content = _header_bytes(Path(path))
    table = parse_object(content, str(path))
    data_bytes = file_bytes - 8 - len(content)
    table.pop("__metadata__", None)
    tensors = {name: _tensor(row, name, str(path), data_bytes) for name, row in table.items()}
    _require_no_holes({name: row["data_offsets"] for name, row in table.items()}, data_bytes, str(path))
    return tensors


def read_folder(folder: str | Path) -> dict[str, StoredTensor]:
    """The tensors of all files of a checkpoint: those that its index names, or every file in the folder.

    Raises
    ------
    SpecError
        If there is no such file, the index names none or one that is missing, or a tensor is in two of them.
    """
    place, tensors = Path(folder), dict[str, StoredTensor]()
    for name in _file_names(place):
        for tensor, stored in read_header(place / name).items():
            if tensor in tensors:
                raise SpecError(f"{place / name}: tensor {tensor[:80]!r} is in another file as well")
            tensors[tensor] = stored
    return tensors


def _file_names(folder: Path) -> list[str]:
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        weights = read_object(index).get("weight_map")
        if not isinstance(weights, Mapping) or not all(isinstance(name, str) for name in weights.values()):
            raise SpecError(f"{index}: weight_map must be an object of file names")
        if not weights:
            raise SpecError(f"{index}: weight_map names no tensor")
        names = sorted(set(weights.values()))
        if any(os.path.basename(name) != name for name in names):
            raise SpecError(f"{index}: weight_map names a file outside the folder")
        return names
    names = sorted(path.name for path in folder.glob("*.safetensors"))
    if not names:
        raise SpecError(f"{folder}: no .safetensors file in the folder")
    return names


def _header_bytes(path: Path) -> tuple[int, bytes]:
    require_regular(path)
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > size - 8:
                raise SpecError(f"{path}: truncated: the header is declared to take {length} of {size} bytes")
            if length > MAX_HEADER_BYTES:
                raise SpecError(f"{path}: a header of {length:,} bytes is too large")
            return size, file.read(length)
    except OSError as error:
        raise SpecError(f"{path}: cannot be read ({error.strerror or error})") from None


def _tensor(row: Any, name: str, where: str, data_bytes: int) -> StoredTensor:
    table = row if isinstance(row, Mapping) else {}
    dtype, shape, place = table.get("dtype"), _counts(table.get("shape")), _counts(table.get("data_offsets"))
    if not isinstance(dtype, str) or dtype not in ELEMENT_BITS or shape is None or place is None or len(place) != 2:
        raise SpecError(f"{where}: tensor {name[:80]!r} has no valid dtype, shape and data_offsets")
    needed = -(-prod(shape) * ELEMENT_BITS[dtype] // 8)
    if place[1] - place[0] != needed or place[1] > data_bytes:
        raise SpecError(f"{where}: tensor {name[:80]!r} needs {needed} bytes, which data_offsets do not give it")
    return StoredTensor(dtype, shape, needed)


def _require_no_holes(places: Mapping[str, list[int]], data_bytes: int, where: str) -> None:
    """The format demands that every byte of the data belongs to exactly one tensor."""
    end = 0
    for name, (first, stop) in sorted(places.items(), key=lambda item: item[1]):
        if first != end:
            fault = "overlaps another tensor" if first < end else f"leaves a hole of {first - end} bytes before it"
            raise SpecError(f"{where}: tensor {name[:80]!r} {fault}; data_offsets must cover the data once")
        end = stop
    if end != data_bytes:
        raise SpecError(
            f"{where}: {data_bytes - end} bytes of data belong to no tensor; data_offsets must cover the data once"
        )


def _counts(value: Any) -> tuple[int, ...] | None:
    """A short list of whole numbers as a tuple; None for anything else."""
    is_counts = isinstance(value, list) and len(value) <= 16 and all(type(n) is int and 0 <= n < 2**63 for n in value)
    return tuple(value) if is_counts else None
