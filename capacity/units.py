"""Units as people write them (bytes, rates, seconds, watts), and number formats with their effective bits."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Literal, NamedTuple

from pydantic import AfterValidator

from capacity.errors import CapacityError, unknown_name
from capacity.files import package_data

KIB, MIB, GIB = 2**10, 2**20, 2**30
KB, MB, GB, TB = 10**3, 10**6, 10**9, 10**12

_BYTE_UNITS = {"b": 1, "kb": KB, "mb": MB, "gb": GB, "tb": TB}
_BYTE_UNITS |= {"kib": KIB, "mib": MIB, "gib": GIB, "tib": 2**40}
_BITS = re.compile("[KMGT]i?b")
_TIME_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9, "min": 60.0, "h": 3600.0}
_PREFIXES = {"": 1, "k": KB, "m": MB, "g": GB, "t": TB, "p": 10**15}
_FLOP_NAMES = ("flop/s", "flops", "op/s", "ops")


class _Quantity(NamedTuple):
    units: Mapping[str, float]
    noun: str
    example: str


_QUANTITIES = {
    "B": _Quantity(_BYTE_UNITS, "number of bytes", "80 GiB"),
    "B/s": _Quantity({f"{unit}/s": factor for unit, factor in _BYTE_UNITS.items()}, "rate in bytes", "3 TB/s"),
    "FLOP/s": _Quantity({p + name: f for name in _FLOP_NAMES for p, f in _PREFIXES.items()}, "rate", "989 TFLOP/s"),
    "Hz": _Quantity({f"{prefix}hz": factor for prefix, factor in _PREFIXES.items()}, "clock", "1.98 GHz"),
    "W": _Quantity({"w": 1, "kw": KB}, "power", "700 W"),
    "s": _Quantity(_TIME_UNITS, "time", "50 ms"),
}
_WHOLE = r"(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+(?:_[0-9]+)*)"  # 1,024 as sizes are printed, or 1_024 as in Python
_QUANTITY = re.compile(rf"\s*({_WHOLE}(?:\.[0-9]*)?(?:e[+-]?[0-9]{{1,3}})?)\s*([A-Za-zµ/]*)\s*", re.IGNORECASE)
MAX_QUANTITY_LETTERS = 100


def parse_bytes(text: str | float) -> int:
    """Bytes of "80 GiB", "24GB", "1.5e9" or a plain number; rounded down to a whole byte.

    Raises
    ------
    CapacityError
        For an unknown unit, bits ("80 Gb"), or a number that is negative or not finite.

    Examples
    --------
    >>> parse_bytes("80 GiB"), parse_bytes("80 GB")
    (85899345920, 80000000000)
    """
    return int(_parse(text, _QUANTITIES["B"]))


def parse_seconds(text: str | float) -> float:
    """Seconds of "50 ms", "0.2 s" or a plain number of seconds.

    >>> parse_seconds("50 ms")
    0.05
    """
    return _parse(text, _QUANTITIES["s"])


def parse_written(text: str, unit: str) -> float:
    """A quantity written as text with its unit, in ``unit``: B, B/s, FLOP/s, Hz, W or s.

    Raises
    ------
    CapacityError
        For an unknown unit, none, bits ("3 Tb/s"), or a number that is negative or not finite.

    Examples
    --------
    >>> parse_written("3 TB/s", "B/s"), parse_written("989.4 TFLOP/s", "FLOP/s")
    (3000000000000.0, 989400000000000.0)
    """
    quantity = _QUANTITIES[unit]
    if (match := _QUANTITY.fullmatch(text[:MAX_QUANTITY_LETTERS])) and not match[2]:
        raise CapacityError(f"{text[:40]!r} has no unit; write a plain number or, for example, {quantity.example!r}")
    return _parse(text, quantity)


def _parse(text: str | float, quantity: _Quantity) -> float:
    units, kind, example = quantity
    if isinstance(text, int | float) and not isinstance(text, bool):
        value, unit = float(text), ""
    else:
        written = str(text)
        match = _QUANTITY.fullmatch(written) if len(written) <= MAX_QUANTITY_LETTERS else None
        if match is None:
            raise CapacityError(f"{str(text)[:40]!r} is not a {kind}; write for example {example!r}")
        value, unit = float(match[1].replace("_", "").replace(",", "")), match[2].lower()
        if unit in units and _BITS.match(match[2]):
            raise CapacityError(f"{text!r}: a small b means bits; write a capital B for bytes, as in {example!r}")
    if unit and unit not in units:
        raise CapacityError(f"{text!r}: {unknown_name('unit', unit, units)}")
    value *= units.get(unit, 1)
    if not math.isfinite(value) or value < 0:
        raise CapacityError(f"a {kind} must be finite and not negative, got {text!r}")
    return value


def format_bytes(count: float, digits: int = 2) -> str:
    """Bytes as people read memory, always in binary units with the unit printed.

    >>> format_bytes(85_520_809_984)
    '79.65 GiB'
    """
    for unit, factor in (("TiB", 2**40), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if abs(count) >= factor:
            return f"{count / factor:,.{digits}f} {unit}"
    return f"{count:,.0f} B"


def format_seconds(seconds: float) -> str:
    """Seconds with a unit that suits the size.

    >>> format_seconds(0.004643)
    '4.643 ms'
    """
    if not math.isfinite(seconds):
        return "never"
    for unit, factor, digits in (("h", 3600.0, 2), ("min", 60.0, 2)):
        if seconds >= 2 * factor:
            return f"{seconds / factor:,.{digits}f} {unit}"
    for unit, factor in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= factor:
            return f"{seconds / factor:,.3f} {unit}"
    return f"{seconds * 1e9:,.1f} ns"


@dataclass(frozen=True)
class NumberFormat:
    """How values are stored: bits of an element and of what a group of elements shares."""

    name: str
    element_bits: int
    family: str
    group: str | int = "none"
    group_rows: int = 1
    group_columns: int = 1
    scale_bits: int = 0
    zero_bits: int = 0
    compute_bits: int = 0
    gguf_only: bool = False
    whole_groups: bool = False

    @property
    def arithmetic_bits(self) -> int:
        """Width of the narrowest arithmetic that can use the stored value as it is. [bit]"""
        return self.compute_bits or self.element_bits

    @property
    def is_narrow_float(self) -> bool:
        """Whether it is a float below 8 bits that a matrix unit can take as it is."""
        return self.family == "float" and self.arithmetic_bits == self.element_bits < 8

    @property
    def effective_bits(self) -> float:
        """Bits of an element with its share of a group of fixed length; row and tensor scales left out.

        >>> number_format("int4_g128").effective_bits
        4.15625
        """
        shared = self.scale_bits + self.zero_bits
        if isinstance(self.group, int):
            return self.element_bits + shared / self.group
        if self.group == "block":
            return self.element_bits + shared / (self.group_rows * self.group_columns)
        return float(self.element_bits)

    def matrix_bytes(self, rows: int, columns: int) -> int:
        """Bytes of a matrix of ``rows`` outputs and ``columns`` inputs with its scales, rounded up. [B]

        >>> number_format("int8").matrix_bytes(4096, 4096) == 4096 * 4096 + 4096 * 4
        True
        """
        shared_bits = self._groups(rows, columns) * (self.scale_bits + self.zero_bits)
        return -(-rows * columns * self.element_bits // 8) + -(-shared_bits // 8)

    def _groups(self, rows: int, columns: int) -> int:
        if isinstance(self.group, int):
            return rows * -(-columns // self.group)
        if self.group == "block":
            return -(-rows // self.group_rows) * -(-columns // self.group_columns)
        return {"none": 0, "tensor": 1, "row": rows}[self.group]

    def cache_bits(self, elements: int) -> int:
        """Bits of ``elements`` values in a cache: groups of fixed length cost, row scales do not exist there."""
        groups = -(-elements // self.group) if isinstance(self.group, int) else 0
        return elements * self.element_bits + groups * (self.scale_bits + self.zero_bits)


class Arithmetic(NamedTuple):
    """The format an operand is stored in, the one it is computed in, and who states the latter; None: no one does."""

    stored: str
    computed: str
    stated_by: Literal["deployment", "checkpoint"] | None = None


@cache
def number_formats() -> dict[str, NumberFormat]:
    """Every number format by name, from ``data/number_formats.toml``."""
    rows = package_data.toml("data/number_formats.toml")
    return {name: NumberFormat(name=name, **row) for name, row in rows.items()}


def number_format(name: str) -> NumberFormat:
    """The number format called ``name``, or that a word in common use means.

    Raises
    ------
    CapacityError
        If there is none, with the nearest names, or with those that could be meant.

    Examples
    --------
    >>> number_format("fp8").name
    'fp8_e4m3'
    """
    formats = number_formats()
    canonical = meant_by(name) or name
    if canonical not in formats:
        several = package_data.toml("data/format_words.toml")["several"].get(str(name).lower())
        if several:
            raise CapacityError(f"number format {name!r} could mean several; give one of: {several}")
        raise CapacityError(unknown_name("number format", str(name), formats))
    return formats[canonical]


def meant_by(word: object) -> str | None:
    """The number format that a word in common use means; None for a name of a format, and for any other word.

    >>> meant_by("FP8"), meant_by("fp8_e4m3")
    ('fp8_e4m3', None)
    """
    meant: dict[str, str] = package_data.toml("data/format_words.toml")["one"]
    return meant.get(word.lower()) if isinstance(word, str) else None


def _known_format(name: str) -> str:
    return number_format(name).name


FormatName = Annotated[str, AfterValidator(_known_format)]
"""The name of a number format, in a spec."""
