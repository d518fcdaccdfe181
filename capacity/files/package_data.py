"""The only reader of package data: it gives text and tables, others give them meaning."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any


def text(path: str) -> str:
    """The text of a shipped file, by its path inside the package.

    >>> text("data/number_formats.toml").startswith("#")
    True
    """
    return files("capacity").joinpath(path).read_text(encoding="utf-8")


def content(path: str) -> bytes:
    """The bytes of a shipped file, for its hash."""
    return files("capacity").joinpath(path).read_bytes()


@cache
def toml(path: str) -> dict[str, Any]:
    """The table of a shipped TOML file, parsed once; do not change what is inside.

    >>> sorted(toml("data/collectives.toml"))[:1]
    ['NVLink']
    """
    return tomllib.loads(text(path))


@cache
def names(folder: str, suffix: str) -> tuple[str, ...]:
    """Names of the files of a shipped folder that end in ``suffix``, without it, sorted.

    >>> names("data/hf_types", ".toml")[:2]
    ('RefinedWeb', 'RefinedWebModel')
    """
    entries = (entry.name for entry in files("capacity").joinpath(folder).iterdir())
    return tuple(sorted(name.removesuffix(suffix) for name in entries if name.endswith(suffix)))


def folder(path: str) -> Path:
    """A shipped folder as a path; ``hardware_specs`` lies inside the installed package, or next to it in a checkout.

    >>> folder("hardware_specs").name
    'hardware_specs'
    """
    package = Path(str(files("capacity")))
    return package / path if (package / path).is_dir() else package.parent / path
