"""Read a JSON object from outside without trusting it: bounded in size, depth and digits, finite numbers only."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NoReturn

from capacity.errors import SpecError

LARGEST_FILE_BYTES = 10_000_000


def read_object(path: Path, largest_bytes: int = LARGEST_FILE_BYTES) -> dict[str, Any]:
    """The JSON object in ``path``.

    Raises
    ------
    SpecError
        If the file is missing, too large, not UTF-8, not JSON, or not an object.
    """
    try:
        size = path.stat().st_size
        if size > largest_bytes:
            raise SpecError(f"{path}: {size:,} bytes is too large; at most {largest_bytes:,} are read")
        content = path.read_bytes()
    except FileNotFoundError:
        raise SpecError(f"{path}: no such file") from None
    except OSError as error:
        raise SpecError(f"{path}: cannot be read ({error.strerror or error})") from None
    return parse_object(content, str(path))


def parse_object(content: bytes, where: str) -> dict[str, Any]:
    """The JSON object in ``content``, which came from ``where``.

    Raises
    ------
    SpecError
        If it is not UTF-8, not JSON, nested too deeply, or not an object.

    Examples
    --------
    >>> parse_object(b'{"hidden_size": 4096}', "config.json")
    {'hidden_size': 4096}
    """
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise SpecError(f"{where}: not UTF-8 text; expected a JSON object") from None
    if not text.strip():
        raise SpecError(f"{where}: the file is empty; expected a JSON object")
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except SpecError as error:
        raise SpecError(f"{where}: {error}") from None
    except RecursionError:
        raise SpecError(f"{where}: nested too deeply to be a configuration") from None
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise SpecError(f"{where}: not valid JSON ({error.msg} at {place}); is the file cut off?") from None
    except ValueError:
        raise SpecError(f"{where}: holds a number of thousands of digits") from None
    if not isinstance(value, dict):
        raise SpecError(f"{where}: expected a JSON object, got a {kind_of(value)}")
    return value


def kind_of(value: Any) -> str:
    """What JSON calls the type of ``value``."""
    names = {dict: "object", list: "list", str: "string", bool: "boolean", type(None): "null"}
    return names.get(type(value), "number" if isinstance(value, int | float) else type(value).__name__)


def _refuse_constant(name: str) -> NoReturn:
    raise SpecError(f"{name} is not a number that a configuration can hold")
