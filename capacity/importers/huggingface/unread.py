"""Unread keys of a configuration: which are harmless, and which may change memory."""

from __future__ import annotations

from functools import cache
from typing import Any, Self

from capacity.files import package_data
from capacity.specs.base import FrozenMapping, Spec


class Unread(Spec):
    """Rules for unread keys, from ``data/hf_types/unread.toml``.

    ``harmless`` names change no size at any value; ``neutral`` names are harmless at the values given;
    a name that contains one of ``stems`` may change memory, unless it is a key that someone took out with a leading
    underscore or the id of a token. ``tokens`` are those known: ``bos`` for ``bos_token_id`` and ``bos_token_index``.
    The names of one row of ``same_fact`` mean the same in different types.
    """

    harmless: tuple[str, ...]
    tokens: tuple[str, ...]
    neutral: FrozenMapping[str, tuple[Any, ...]]
    stems: tuple[str, ...]
    same_fact: tuple[tuple[str, ...], ...]

    @classmethod
    @cache
    def load(cls) -> Self:
        """The rules of the package."""
        return cls.parse(package_data.toml("data/hf_types/unread.toml"), "unread.toml")

    def is_harmless(self, key: str, value: Any) -> bool:
        """Whether ``key`` changes no size at ``value`` and needs no note."""
        name = key.rpartition(".")[2]
        if name in self.harmless or ((token := _token(name)) and token in self.tokens):
            return True
        return any(type(value) is type(other) and value == other for other in self.neutral.get(name, ()))

    def matters(self, key: str) -> bool:
        """Whether the name of ``key`` suggests that it may change memory."""
        name = key.rpartition(".")[2]
        if name.startswith("_") or _token(name):
            return False
        return any(stem in key.lower() for stem in self.stems)


def _token(name: str) -> str:
    """The token whose id a key holds, or nothing.

    >>> _token("bos_token_id"), _token("bos")
    ('bos', '')
    """
    shorter = name.removesuffix("_token_id").removesuffix("_token_index")
    return "" if shorter == name else shorter
