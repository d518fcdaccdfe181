"""Which figures of a spec are named by which list of patterns: sources, unverified, assumed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Any

from capacity.specs.base import Source


def figures(value: Any, path: str = "") -> Iterator[str]:
    """Dotted names of every number in nested tables; switches are not numbers.

    >>> list(figures({"memory": {"bytes_per_s": 3e12, "unified": False, "kind": "HBM3"}}))
    ['memory.bytes_per_s']
    """
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from figures(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from figures(inner, f"{path}.{index}")
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield path


def named(figure: str, patterns: Iterable[str]) -> bool:
    """Whether a figure, or the table it stands in, is named by one of the patterns.

    >>> named("peak_flop_per_s.bf16", ["memory.*", "peak_flop_per_s.*"]), named("power.tdp_w", ["power"])
    (True, True)
    """
    return any(fnmatchcase(figure, pattern) or figure.startswith(f"{pattern}.") for pattern in patterns)


def cited(sources: Iterable[Source]) -> tuple[str, ...]:
    """All patterns that sources cover."""
    return tuple(pattern for source in sources for pattern in source.fields)


def require_sources(stated: Iterable[str], patterns: Iterable[str]) -> None:
    """Refuse figures that nothing vouches for.

    Raises
    ------
    ValueError
        Naming the bare figures and what to do.
    """
    known = tuple(patterns)
    bare = [figure for figure in stated if not named(figure, known)]
    if bare:
        raise ValueError(
            f"no source for {', '.join(bare)}; add to `fields` of a [[sources]] entry or to `unverified` "
            '(unverified = ["*"] marks everything)'
        )
