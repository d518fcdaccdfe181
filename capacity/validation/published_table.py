"""Tables of published measurements: bounded, and refused whole when they are not what they should be."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from capacity.errors import SpecError
from capacity.importers.text_file import read_text

LARGEST_FILE_BYTES = 10_000_000
LONGEST_COUNT = 9


def read_table(file: str | Path | None, *, shipped: str, columns: Sequence[str]) -> list[dict[str, str]]:
    """Rows of the shipped table ``shipped``, or of another file with the same columns.

    Raises
    ------
    SpecError
        If the file cannot be read, is too large, is not a table, or lacks columns or rows.
    """
    where, text = (shipped, _shipped(shipped)) if file is None else (str(file), read_text(file, LARGEST_FILE_BYTES))
    try:
        reader = csv.DictReader(io.StringIO(text))
        missing = [name for name in columns if name not in (reader.fieldnames or ())]
        if missing:
            raise SpecError(f"{where}: columns are missing: {', '.join(missing)}; expected {', '.join(columns)}")
        rows = [
            {k: v or "" for k, v in row.items() if isinstance(k, str) and isinstance(v, str | None)} for row in reader
        ]
    except csv.Error as error:
        raise SpecError(f"{where}: not a table of comma-separated values ({error})") from None
    if not rows:
        raise SpecError(f"{where}: the table has no rows")
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
    return int(text) if text.isascii() and text.isdigit() and len(text) <= LONGEST_COUNT else None


def _shipped(name: str) -> str:
    return files("capacity").joinpath(f"data/published/{name}").read_text(encoding="utf-8")
