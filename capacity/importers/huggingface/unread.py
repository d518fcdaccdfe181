"""Unread keys of a configuration: which are harmless, and which may change memory."""

from __future__ import annotations

from functools import cache
from typing import Any, Self

from capacity.files import package_data
from capacity.specs.base import FrozenMapping, Spec


class Unread(Spec):
    """Rules for unread keys, from ``data/hf_types/unread.toml``.

    ``harmless`` names change no size at any value; ``neutral`` names are harmless at the values given;
    a name that contains one of ``stems`` may change memory.
    """

    harmless: tuple[str, ...]
    neutral: FrozenMapping[str, tuple[Any, ...]]
    stems: tuple[str, ...]

    @classmethod
    @cache
    def load(cls) -> Self:
        """The rules of the package."""
        return cls.parse(package_data.toml("data/hf_types/unread.toml"), "unread.toml")

    def is_harmless(self, key: str, value: Any) -> bool:
        """Whether ``key`` changes no size at ``value``. A leading underscore marks names internal to a library."""
        name = key.rpartition(".")[2]
        if name.startswith("_") or name in self.harmless or name.endswith(("_token_id", "_token_index")):
            return True
        if name == "model_type":
            return True
        return any(type(value) is type(other) and value == other for other in self.neutral.get(name, ()))

    def matters(self, key: str) -> bool:
        """Whether the name of ``key`` suggests that it may change memory."""
        name = key.lower()
        return any(stem in name for stem in self.stems)
