"""How a cell is written: bytes in binary units, times in a unit that suits them, rates with a decimal prefix."""

from __future__ import annotations

from numbers import Integral
from unicodedata import category

from capacity.presentation.sheet import Cell, Section, Words
from capacity.units import format_bytes, format_seconds

ABSENT = "-"
_COMMANDS = ("Cc", "Cf", "Zl", "Zp")  # control, format (direction of writing), ends of line and paragraph
_PREFIXED = ("B/s", "FLOP", "FLOP/s", "Hz", "W")
_SPELLED = ("FLOP/B", "token/s", "request/s", "1/s", "s/s")
_PREFIXES = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def figure(cell: Cell) -> str:
    """The value of a cell with its unit; of a unit that is a word for what is counted, the number alone.

    >>> figure(Cell(85_520_809_984, "B")), figure(Cell(0.004643, "s")), figure(Cell(8192, "token"))
    ('79.65 GiB', '4.643 ms', '8,192')
    """
    value, unit = cell.value, cell.unit
    if value is None:
        return ABSENT
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if unit == "B":
        return format_bytes(value, 2 if cell.digits is None else cell.digits)
    if unit == "s":
        return _seconds(value)
    if unit in _PREFIXED:
        return in_units(value, unit)
    if unit == "1":
        return f"{value:.{1 if cell.digits is None else cell.digits}%}"
    if unit == "probability":
        return _probability(value)
    return _number(value, cell.digits) + (f" {unit}" if unit in _SPELLED else "")


def words(text: Words) -> str:
    """A sentence with its numbers written out."""
    parts = (text,) if isinstance(text, str) else text
    return "".join(printable(part) if isinstance(part, str) else figure(part) for part in parts)


def shown(section: Section) -> list[list[str]]:
    """The cells of a section as they are written: values, notes in cells without a value, and marks of doubt."""
    marked = [_marked(section, number) for number in range(len(section.columns))]
    return [[_cell_text(cell, marked=mark) for cell, mark in zip(row, marked, strict=True)] for row in section.rows]


def _marked(section: Section, number: int) -> bool:
    """Whether a column marks what is assumed, for want of a column of evidence."""
    return section.evidence is None and any(row[number].evidence == "assumed" for row in section.rows)


def _cell_text(cell: Cell, *, marked: bool) -> str:
    text = words(cell.note) if cell.value == "" else figure(cell)
    return text + (" ?" if cell.evidence == "assumed" else "  ") if marked else text


def in_units(value: float, unit: str) -> str:
    """A value with a decimal prefix.

    >>> in_units(3.35e12, "B/s")
    '3.35 TB/s'
    """
    for factor, prefix in _PREFIXES:
        if abs(value) >= factor:
            return f"{value / factor:,.4g} {prefix}{unit}"
    return f"{value:,.4g} {unit}"


def counted(count: int, word: str) -> str:
    """A count with its word in the right number.

    >>> counted(1, "part"), counted(2048, "token")
    ('1 part', '2,048 tokens')
    """
    return f"{count:,} {word}" + ("" if count == 1 else "s")


def printable(text: str) -> str:
    """The text without characters that would command a terminal or break a line; those of no encoding stay."""
    return text if text.isprintable() else "".join("?" if category(letter) in _COMMANDS else letter for letter in text)


def _seconds(value: float) -> str:
    if value == 0:
        return "0 s"
    return "-" + format_seconds(-value) if value < 0 else format_seconds(value)


def _number(value: float, digits: int | None) -> str:
    if digits is not None:
        return f"{value:,.{digits}f}"
    return f"{value:,}" if isinstance(value, Integral) else f"{value:,.4g}"


def _probability(share: float) -> str:
    """In whole percents, open at both ends: an estimate with an assumed jitter has no more digits."""
    return "under 1%" if share < 0.01 else "over 99%" if share > 0.99 else f"{share:.0%}"
