"""The errors of the package, and how errors are phrased."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails


MAX_MESSAGE_LENGTH = 1200
MAX_WITH_ALL_WORDS = 8
_KEY = re.compile(r"[\w.-]{1,80}", re.ASCII)


class CapacityError(ValueError):
    """Something the user gave is wrong; the message says where, what, what is allowed and what to do.

    The message is one printable line, whatever it quotes.

    >>> print(CapacityError("config.json: unknown key 'a\\n\\ud800'"))
    config.json: unknown key 'a \\ud800'
    """

    def __init__(self, message: str) -> None:
        line = message if message.isprintable() else "".join(map(_printable, message))
        super().__init__(line if len(line) <= MAX_MESSAGE_LENGTH else line[: MAX_MESSAGE_LENGTH - 3] + "...")


class SpecError(CapacityError):
    """A model, part, deployment or workload file does not describe what it claims to."""


class DoesNotFit(CapacityError):
    """The question needs more memory than the device has."""


class Unsupported(CapacityError):
    """The question is valid, but this package has no closed form for it."""


def _printable(character: str) -> str:
    if character.isprintable():
        return character
    return " " if character.isspace() else repr(character)[1:-1]


def nearest_names(query: str, allowed: Iterable[str], limit: int = 3) -> list[str]:
    """Names in ``allowed`` nearest to ``query``, ignoring case and separators.

    First all that hold its words, or words that begin with them (up to `MAX_WITH_ALL_WORDS`), in the order of
    ``allowed``; then, up to ``limit``, the closest, and those that hold it anywhere.

    >>> nearest_names("H200 SXM", ["nvidia-gh200-96gb", "nvidia-h200-nvl-141gb", "nvidia-h200-sxm5-141gb"])
    ['nvidia-h200-sxm5-141gb']
    """
    lowered, names = query.lower(), {name.lower(): name for name in allowed}
    words = _words(lowered)
    holding = [name for name in names if words and all(_holds(name, word) for word in words)]
    holding.sort(key=lambda name: (name != lowered, len(set(words) - set(_words(name))), not name.startswith(lowered)))
    close = difflib.get_close_matches(lowered, names, n=limit, cutoff=0.5)
    inside = [name for name in names if lowered and lowered in name]
    others = [] if len(words) == 1 and holding else [*close, *inside]
    nearest = list(dict.fromkeys((*holding[:MAX_WITH_ALL_WORDS], *others)))
    return [names[name] for name in nearest[: max(limit, min(len(holding), MAX_WITH_ALL_WORDS))]]


def _words(name: str) -> list[str]:
    return [word for word in re.split(r"[^0-9a-z.]+", name) if word]


def _holds(name: str, word: str) -> bool:
    """Whether a word of ``name`` is ``word`` or begins with it."""
    return any(one.startswith(word) for one in _words(name))


def unknown_name(kind: str, name: str, allowed: Iterable[str]) -> str:
    """One sentence for a name that is not in a list.

    Examples
    --------
    >>> unknown_name("part", "h100", ["nvidia-h100-sxm5-80gb", "nvidia-l4-pcie-24gb"])
    "unknown part 'h100'; nearest: nvidia-h100-sxm5-80gb"
    """
    names = list(allowed)
    close = nearest_names(name, names)
    name = name if len(name) <= 80 else name[:77] + "..."
    if close:
        return f"unknown {kind} {name!r}; nearest: {', '.join(close)}"
    return f"unknown {kind} {name!r}; known: {_some(names)}"


def _some(names: list[str]) -> str:
    return ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")


def key_name(key: object) -> str:
    """A key of a file in quotes; what is no short identifier is not repeated: the file may be no spec at all.

    >>> print(key_name("hidden_sise"), key_name("password: hunter2"))
    'hidden_sise' (a name that is no identifier)
    """
    text = str(key)
    return repr(text) if _KEY.fullmatch(text) else "(a name that is no identifier)"


def unknown_field(key: object, allowed: Iterable[str]) -> str:
    """One sentence for a key of a file that is none of its fields.

    >>> unknown_field("hidden_sise", ["hidden_size"])
    "unknown field 'hidden_sise'; nearest: hidden_size"
    """
    if _KEY.fullmatch(str(key)):
        return unknown_name("field", str(key), allowed)
    return f"unknown field {key_name(key)}; known: {_some(list(allowed))}"


def rephrase(error: ValidationError, where: str) -> SpecError:
    """Turn a Pydantic error into sentences: place, field, what is wrong, what was given."""
    sentences = []
    for item in error.errors(include_url=False):
        field = _place(item["loc"])
        if item["type"] == "missing":
            *table, name = item["loc"]
            sentences.append(": ".join(filter(None, (where, _place(table), f"{name} is missing"))))
            continue
        message = _in_words(item)
        place = f"{where}: {field}" if field else where
        value = "" if item["type"] == "value_error" else f", got {_short(item['input'])}"
        sentences.append(f"{place}: {message}{value}")
    more = f" (and {len(sentences) - 3} more)" if len(sentences) > 3 else ""
    return SpecError("; ".join(sentences[:3]) + more)


# What a field must be, by the kind of the fault; numbers come from its context.
_MUST = {
    "float_type": "must be a number",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "string_type": "must be text",
    "tuple_type": "must be a list",
    "list_type": "must be a list",
    "dict_type": "must be a table",
    "model_type": "must be a table",
    "model_attributes_type": "must be a table",
    "finite_number": "must be finite",
    "greater_than": "must be above {gt:,.15g}",
    "greater_than_equal": "must be at least {ge:,.15g}",
    "less_than": "must be below {lt:,.15g}",
    "less_than_equal": "must be at most {le:,.15g}",
    "string_too_short": "must have at least {min_length} letters",
    "string_too_long": "must have at most {max_length} letters",
    "too_short": "must have at least {min_length} entries",
    "too_long": "must have at most {max_length} entries",
    "literal_error": "must be {expected}",
}


def _in_words(item: ErrorDetails) -> str:
    """What is wrong with a field, in the words of this package."""
    if item["type"] in _MUST:
        return _MUST[item["type"]].format(**item.get("ctx", {}))
    return item["msg"].removeprefix("Value error, ").replace("Input should be", "must be")


def _place(location: Iterable[int | str]) -> str:
    """A field as people write it; the rows of a list count from one.

    >>> _place(["sources", 0, "cite"])
    'sources 1.cite'
    """
    parts = (part for part in location if not str(part).startswith("function-"))
    return "".join(f" {part + 1}" if isinstance(part, int) else f".{part}" for part in parts).lstrip(" .")


def _short(value: object) -> str:
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an int of thousands of digits, a table of thousands of levels
        text = "a value too large to print"
    return text if len(text) <= 60 else text[:57] + "..."
