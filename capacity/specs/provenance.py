"""The figures of a spec, and the patterns that name them: sources, unverified, assumed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Any

from capacity.specs.base import Source

_RATES = (("bytes_per_s", "B/s"), ("flop_per_s", "FLOP/s"))
_ENDINGS = (("_bytes", "B"), ("_hz", "Hz"), ("_w", "W"), ("_s", "s"))


def figures(value: Any, path: str = "") -> Iterator[str]:
    """Dotted names of every number in nested tables, one written as text with its unit included; booleans are none.

    >>> list(figures({"memory": {"bytes_per_s": 3e12, "unified": False, "kind": "HBM3"}}))
    ['memory.bytes_per_s']
    """
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from figures(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from figures(inner, f"{path}.{index}")
    elif (isinstance(value, int | float) and not isinstance(value, bool)) or (isinstance(value, str) and unit_of(path)):
        yield path


def unit_of(figure: str) -> str:
    """The unit of a figure, which its name ends in or, in a table of rates by format, begins with; "" for a count.

    >>> unit_of("memory.bytes_per_s"), unit_of("peak_flop_per_s.bf16"), unit_of("compute.units")
    ('B/s', 'FLOP/s', '')
    """
    name = figure.rpartition(".")[2]
    rates = (unit for part, unit in _RATES if part in figure)
    return next(rates, next((unit for ending, unit in _ENDINGS if name.endswith(ending)), ""))


def matches(figure: str, patterns: Iterable[str]) -> bool:
    """Whether a figure, or the table that contains it, matches one of the patterns.

    >>> matches("peak_flop_per_s.bf16", ["memory.*", "peak_flop_per_s.*"]), matches("power.tdp_w", ["power"])
    (True, True)
    """
    return any(fnmatchcase(figure, pattern) or figure.startswith(f"{pattern}.") for pattern in patterns)


def cited(sources: Iterable[Source]) -> tuple[str, ...]:
    """All patterns of the sources."""
    return tuple(pattern for source in sources for pattern in source.fields)


def require_sources(names: Iterable[str], patterns: Iterable[str]) -> None:
    """Refuse figures without a source.

    Raises
    ------
    ValueError
        Naming the figures without a source and what to do.
    """
    sourced = tuple(patterns)
    bare = [figure for figure in names if not matches(figure, sourced)]
    if bare:
        raise ValueError(
            f"no source for {', '.join(bare)}; add to `fields` of a [[sources]] entry or to `unverified` "
            '(unverified = ["*"] marks everything)'
        )
