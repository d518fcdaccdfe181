"""Where a command's answer goes: the terminal, JSON on stdout, a file that is either whole or not there."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from capacity.errors import CapacityError
from capacity.files.whole_file import write_whole


def as_json(value: Any) -> str:
    """Valid JSON of plain values, in ASCII: any name of a file can be written; what is not finite becomes null."""
    return json.dumps(_finite(value), indent=2)


def write_json(value: Any, out: str) -> None:
    """Write JSON to ``out``; the file is whole or not there.

    Raises
    ------
    CapacityError
        If the name does not end in .json, or the file cannot be written.
    """
    path = Path(out)
    if path.suffix != ".json":
        raise CapacityError(f"--out {out}: the name must end in .json")
    try:
        write_whole(path, as_json(value) + "\n")
    except OSError as error:
        raise CapacityError(f"--out {out}: cannot be written ({error.strerror or error})") from None


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
