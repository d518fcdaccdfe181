"""The errors of the package, and how one is phrased."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError


class CapacityError(ValueError):
    """Something the user gave is wrong; the message says where, what, what is allowed and what to do."""


class SpecError(CapacityError):
    """A model, part, deployment or workload file does not describe what it claims to."""


class DoesNotFit(CapacityError):
    """The question needs more memory than the device has."""


class Unsupported(CapacityError):
    """The question is sound, but this package has no closed form for it and says so instead of guessing."""


def nearest_names(given: str, allowed: Iterable[str], limit: int = 3) -> list[str]:
    """Names in ``allowed`` that look most like ``given``, best first."""
    names = list(allowed)
    close = difflib.get_close_matches(given.lower(), names, n=limit, cutoff=0.5)
    inside = [name for name in names if given.lower() in name and name not in close]
    return (close + inside)[:limit]


def unknown_name(kind: str, given: str, allowed: Iterable[str]) -> str:
    """One sentence for a name that is not in a list.

    Examples
    --------
    >>> unknown_name("part", "h100", ["nvidia-h100-sxm5-80gb", "nvidia-l4-pcie-24gb"])
    "unknown part 'h100'; nearest: nvidia-h100-sxm5-80gb"
    """
    names = list(allowed)
    close = nearest_names(given, names)
    given = given if len(given) <= 80 else given[:77] + "..."
    if close:
        return f"unknown {kind} {given!r}; nearest: {', '.join(close)}"
    shown = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
    return f"unknown {kind} {given!r}; known: {shown}"


def rephrase(error: ValidationError, where: str) -> SpecError:
    """Turn a Pydantic error into one sentence a line: place, field, what is wrong, what was given."""
    sentences = []
    for item in error.errors(include_url=False):
        field = ".".join(str(part) for part in item["loc"] if not str(part).startswith("function-"))
        message = item["msg"].removeprefix("Value error, ")
        place = f"{where}: {field}" if field else where
        given = "" if item["type"] in {"value_error", "missing"} else f", got {_short(item['input'])}"
        sentences.append(f"{place}: {message}{given}")
    more = f" (and {len(sentences) - 3} more)" if len(sentences) > 3 else ""
    return SpecError("; ".join(sentences[:3]) + more)


def _short(value: object) -> str:
    try:
        text = repr(value)
    except ValueError:  # an int too long to print
        text = "a number of thousands of digits"
    return text if len(text) <= 60 else text[:57] + "..."
