"""Read untrusted text and TOML tables, and the name or path by which a user names a file."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

from capacity.errors import SpecError
from capacity.files.json_file import read_content

MAX_SPEC_BYTES = 1_000_000
_MAX_DOTS_PER_LINE = 200  # a key of n dotted names nests n tables, and takes n^2 steps to read


def read_text(path: str | Path, max_bytes: int) -> str:
    """The text of a regular file of at most ``max_bytes``, without a byte order mark.

    Raises
    ------
    SpecError
        If the file is missing, not a regular one, too large, cannot be read, or is not UTF-8.
    """
    try:
        return read_content(Path(path), max_bytes).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise SpecError(f"{path}: not UTF-8 text") from None


def read_toml(path: str | Path) -> dict[str, Any]:
    """The table in a TOML file.

    Raises
    ------
    SpecError
        As `read_text`, and if the text is not TOML, is nested too deeply, or holds a number of thousands of digits.
    """
    text = read_text(path, MAX_SPEC_BYTES)
    try:
        if any(line.count(".") > _MAX_DOTS_PER_LINE for line in text.splitlines()):
            raise RecursionError
        return tomllib.loads(text)
    except RecursionError:
        raise SpecError(f"{path}: nested too deeply") from None
    except tomllib.TOMLDecodeError as error:
        raise SpecError(f"{path}: not valid TOML ({str(error)[:120]})") from None
    except ValueError:
        raise SpecError(f"{path}: holds a number of thousands of digits") from None


def name_or_path(source: Any, kind: str) -> str:
    """The name or path by which a user names a ``kind`` of spec, as a string.

    Raises
    ------
    SpecError
        If it is neither a string nor a path, or holds a null character.
    """
    name = os.fspath(source) if isinstance(source, str | os.PathLike) else None
    if not isinstance(name, str):
        raise SpecError(f"a {kind} is given by name, path or table, got {type(source).__name__}")
    if "\0" in name:
        raise SpecError(f"a {kind} name cannot hold a null character")
    return name
