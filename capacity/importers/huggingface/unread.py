"""Keys that no reader asked for: which are harmless, and which would change memory if they were understood."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any, Self

from capacity.specs.base import FrozenMapping, Spec


class Unread(Spec):
    """Rules for unread keys, from ``data/hf_types/unread.toml``.

    ``harmless`` names change no size whatever they say; ``neutral`` names are harmless at the values given;
    a name with one of ``stems`` in it may change memory.
    """

    harmless: tuple[str, ...]
    neutral: FrozenMapping[str, tuple[Any, ...]]
    stems: tuple[str, ...]

    @classmethod
    @cache
    def load(cls) -> Self:
        """The rules of the package."""
        text = files("capacity").joinpath("data/hf_types/unread.toml").read_text(encoding="utf-8")
        return cls.parse(tomllib.loads(text), "unread.toml")

    def is_harmless(self, key: str, value: Any) -> bool:
        """Whether ``key`` changes no size at ``value``. Names that begin with an underscore are library marks."""
        name = key.rpartition(".")[2]
        if name.startswith("_") or name in self.harmless or name.endswith(("_token_id", "_token_index")):
            return True
        if name == "model_type":
            return True
        return any(type(value) is type(other) and value == other for other in self.neutral.get(name, ()))

    def matters(self, key: str) -> bool:
        """Whether the name of ``key`` says that it may change memory."""
        name = key.lower()
        return any(stem in name for stem in self.stems)
