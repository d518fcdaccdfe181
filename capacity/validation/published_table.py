"""Tables of published measurements: bounded, and refused whole when they are not what they should be."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from pathlib import Path

from capacity.errors import SpecError
from capacity.files import package_data
from capacity.files.text_file import read_text

MAX_FILE_BYTES = 10_000_000
MAX_COUNT_DIGITS = 9


def read_table(file: str | Path | None, *, shipped: str, columns: Sequence[str]) -> list[dict[str, str]]:
    """Rows of the shipped table ``shipped``, or of another file with the same columns, of which the first is an id.

    Raises
    ------
    SpecError
        If the file cannot be read, is too large, is not a table, or lacks columns or rows; if a column or an id comes
        twice, or a row has more cells than there are columns.
    """
    if file is None:
        where, text = shipped, package_data.text(f"data/published/{shipped}")
    else:
        where, text = str(file), read_text(file, MAX_FILE_BYTES)
    try:
        reader = csv.DictReader(io.StringIO(text), strict=True)
        reader.fieldnames = [name.strip() for name in reader.fieldnames or ()]
        _check_header(reader.fieldnames, columns, where)
        rows = _rows(reader, columns[0], where)
    except csv.Error as error:
        raise SpecError(f"{where}: not a table of comma-separated values ({error})") from None
    if not rows:
        raise SpecError(f"{where}: the table has no rows")
    return rows


def _check_header(header: Sequence[str], columns: Sequence[str], where: str) -> None:
    """Refuse a header that lacks a column or has one twice."""
    if missing := [name for name in columns if name not in header]:
        raise SpecError(f"{where}: columns are missing: {', '.join(missing)}; expected {', '.join(columns)}")
    name, times = max(((name, header.count(name)) for name in header), key=lambda item: item[1])
    if times > 1:
        raise SpecError(f"{where}: line 1: column {name[:40]!r} is named {times} times")


def _rows(reader: csv.DictReader[str], id_column: str, where: str) -> list[dict[str, str]]:
    """All rows, the cells that are left out at their end empty."""
    rows: list[dict[str, str]] = []
    line_of: dict[str, int] = {}
    for row in reader:
        line = reader.line_num
        if surplus := row.pop(None, None):  # where csv puts cells without a column
            cells = f"{len(row) + len(surplus)} cells under {len(row)} columns"
            raise SpecError(f"{where}: line {line}: {cells}; the first without is {surplus[0][:40]!r}")
        rows.append({name: cell or "" for name, cell in row.items()})
        name = rows[-1][id_column].strip()
        if name in line_of:
            raise SpecError(f"{where}: line {line}: {id_column} {name[:40]!r} is that of line {line_of[name]} too")
        line_of[name] = line
    return rows


def positive(text: str) -> float | None:
    """A finite positive number, or None for anything else."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if value > 0 and math.isfinite(value) and math.isfinite(1 / value) else None


def count(text: str) -> int | None:
    """A whole number of at most nine digits, or None for anything else."""
    text = text.strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) <= MAX_COUNT_DIGITS else None
