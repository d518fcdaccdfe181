"""Read an untrusted JSON object: bounded in size, depth and digits, finite numbers only."""

from __future__ import annotations

import json
import math
import stat
from collections import Counter
from pathlib import Path
from typing import Any, NoReturn

from capacity.errors import SpecError, key_name

MAX_FILE_BYTES = 10_000_000


def read_object(path: Path, max_bytes: int = MAX_FILE_BYTES, *, constants: bool = False) -> dict[str, Any]:
    """The JSON object in ``path``; ``constants`` lets NaN and Infinity pass, for a reader that looks at each value.

    Raises
    ------
    SpecError
        If the file is missing, too large, not UTF-8, not JSON, or not an object.
    """
    return parse_object(read_content(path, max_bytes), str(path), constants=constants)


def read_content(path: Path, max_bytes: int) -> bytes:
    """The bytes of ``path``; a device, a pipe or a folder is never opened: it may be endless.

    Raises
    ------
    SpecError
        If the file is missing, not a regular file, too large, or cannot be read.
    """
    require_regular(path)
    try:
        with path.open("rb") as file:
            content = file.read(max_bytes + 1)
    except OSError as error:
        raise SpecError(f"{path}: cannot be read ({error.strerror or error})") from None
    if len(content) > max_bytes:
        raise SpecError(f"{path}: too large; at most {max_bytes:,} bytes are read")
    return content


def require_regular(path: Path) -> None:
    """Refuse a path that is not that of a regular file.

    Raises
    ------
    SpecError
        If nothing is there, the name cannot be that of a file, or it is a folder, a device or a pipe.
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise SpecError(f"{path}: no such file") from None
    except OSError as error:
        raise SpecError(f"{path}: cannot be read ({error.strerror or error})") from None
    except ValueError:  # a null character, or half of a surrogate pair
        raise SpecError(f"{str(path)[:200]!r} cannot be the name of a file") from None
    if not stat.S_ISREG(mode):
        raise SpecError(f"{path}: not a regular file")


def parse_object(content: bytes, where: str, *, constants: bool = False) -> dict[str, Any]:
    """The JSON object in ``content``, which came from ``where``.

    Raises
    ------
    SpecError
        If it is not UTF-8, not JSON, nested too deeply, not an object, or has a key twice.

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
        constant = float if constants else _refuse_constant
        value = json.loads(text, parse_constant=constant, parse_float=_finite, object_pairs_hook=_without_repeats)
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


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise SpecError(f"{text[:40]} is too large a number")
    return number


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        repeated, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise SpecError(f"key {key_name(repeated)} is given more than once")
    return table
