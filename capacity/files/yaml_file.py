"""Read a table from an untrusted YAML file: safe types only, and aliases that stay small when expanded."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path
from typing import Any

from capacity.errors import SpecError, key_name
from capacity.files.text_file import read_text

MAX_YAML_BYTES = 100_000  # ten times the largest file of a known project; the parser takes 20 s for a megabyte
_MAX_NODES = 1_000_000
_MAX_DEPTH = 100  # of brackets: the parser takes time with the square of it
_STEPS = {"[": 1, "{": 1, "]": -1, "}": -1}


def read_yaml(path: str | Path) -> dict[str, Any]:
    """The table in a YAML file.

    Raises
    ------
    SpecError
        If the file cannot be read, is not YAML, is not a table, has a key twice, or its aliases expand without end;
        and if pyyaml is not installed.
    """
    try:
        import yaml  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        raise SpecError(
            f"{path}: reading YAML needs pyyaml; pip install 'capacity-planner[yaml]', or give the content as a table"
        ) from None
    text = read_text(path, MAX_YAML_BYTES)
    try:
        if max(accumulate(_STEPS[letter] for letter in text if letter in _STEPS), default=0) > _MAX_DEPTH:
            raise RecursionError
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is not None and _size(node, {}, str(path)) > _MAX_NODES:
            raise SpecError(f"{path}: its aliases expand to more than {_MAX_NODES:,} values")
        data = None if node is None else loader.construct_document(node)
    except SpecError:
        raise
    except RecursionError:
        raise SpecError(f"{path}: nested too deeply") from None
    except (yaml.YAMLError, ValueError, TypeError, AttributeError, LookupError, ArithmeticError) as error:
        # pyyaml also passes on the errors of a date of month 99 or of a number of thousands of digits.
        raise SpecError(f"{path}: not valid YAML ({_complaint(error)})") from None
    if not isinstance(data, dict):
        raise SpecError(f"{path}: must be a table of fields, got {type(data).__name__}")
    return data


def _complaint(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    if mark is not None:
        return f"{getattr(error, 'problem', None)} at line {mark.line + 1}"
    return " ".join(str(error).partition(";")[0].split())[:120] or type(error).__name__


def _size(node: Any, sizes: dict[int, int], where: str) -> int:
    """Values in a node of the parsed graph with every alias expanded; one inside itself counts as too many."""
    if id(node) not in sizes:
        sizes[id(node)] = _MAX_NODES + 1
        inner = node.value if isinstance(node.value, list) else []
        if node.id == "mapping":
            keys = [key.value for key, _ in inner if key.id == "scalar"]
            repeated = next((key for key in keys if keys.count(key) > 1), None) if len(set(keys)) < len(keys) else None
            if repeated is not None:
                raise SpecError(f"{where}: {key_name(repeated)} is given twice in one table")
            inner = [part for pair in inner for part in pair]
        sizes[id(node)] = 1 + sum(_size(part, sizes, where) for part in inner)
    return sizes[id(node)]
