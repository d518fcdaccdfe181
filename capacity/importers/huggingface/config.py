"""Single values of a configuration: typed, bounded, with the defaults of the type, remembering what was read."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from capacity.errors import SpecError
from capacity.files.json_file import kind_of
from capacity.importers.checkpoints.quantization import ADVICE
from capacity.importers.huggingface.unread import Unread
from capacity.inputs import LARGEST_COUNT

Keys = str | tuple[str, ...]
_ABSENT = object()
MAX_KEYS = 5_000  # every unknown one is looked up by its name


class Config:
    """The keys of one configuration. A key may be dotted; several names for one fact must agree.

    ``harmless`` keys need no reader; for ``required`` ones no default of the type is taken; of the keys with a
    default only ``nullable`` ones may be null. What the file leaves open is noted with what takes its place.
    """

    def __init__(
        self,
        data: Mapping[str, Any],
        where: str,
        defaults: Mapping[str, Any],
        kind: str,
        harmless: tuple[str, ...] = (),
        required: frozenset[str] = frozenset(),
        nullable: tuple[str, ...] = (),
    ) -> None:
        self.data = data
        self.where = where
        self.kind = kind
        self.notes: list[str] = []
        self.assumed: list[str] = []
        self.defaults = defaults
        self._required = required
        self._nullable = nullable
        self._left_open: dict[str, str] = {}
        self._read: set[str] = set(harmless)

    def count(self, keys: Keys, *, minimum: int = 1, maximum: int = LARGEST_COUNT) -> int:
        """A whole number that must be there, or have a default in the type."""
        value = self.optional_count(keys, minimum=minimum, maximum=maximum)
        if value is None:
            raise self.fault(keys, f"is missing, and its type has no default for it{self._likely(keys)}")
        return value

    def optional_count(self, keys: Keys, *, minimum: int = 1, maximum: int = LARGEST_COUNT) -> int | None:
        """A whole number, or None where the key is null or nowhere and has no default."""
        value = self.value(keys)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.fault(keys, f"must be a whole number, got {_short(value)}")
        if not minimum <= value <= maximum:
            raise self.fault(keys, f"must be between {minimum} and {maximum}, got {_short(value)}")
        return value

    def count_or(self, keys: Keys, derived: int, rule: str, *, minimum: int = 1) -> int:
        """A whole number, or the one that the type derives by a ``rule`` where the file leaves it open."""
        value = self.optional_count(keys, minimum=minimum)
        if value is None:
            self.leave_open(keys, f"{derived}: {rule}")
        return derived if value is None else value

    def flag(self, keys: Keys) -> bool:
        """True or false; off where the file leaves it open and the type has no default."""
        value = self.value(keys)
        if value is None:
            return False
        if not isinstance(value, bool):
            raise self.fault(keys, f"must be true or false, got {_short(value)}")
        return value

    def switch(self, choice: bool | str) -> bool:
        """A yes or no that the type fixes, or that a key decides; ``not key`` negates it."""
        if isinstance(choice, bool):
            return choice
        return self.flag(choice.removeprefix("not ")) != choice.startswith("not ")

    def counts(self, keys: Keys, *, maximum: int = LARGEST_COUNT) -> tuple[int, ...] | None:
        """A list of whole numbers, or None."""
        value = self._list(keys)
        if value is None:
            return None
        if any(isinstance(item, bool) or not isinstance(item, int) or not 0 <= item <= maximum for item in value):
            raise self.fault(keys, f"must be a list of whole numbers from 0 to {maximum}")
        return tuple(value)

    def names(self, keys: Keys, allowed: Iterable[str]) -> tuple[str, ...] | None:
        """A list of strings, each one of ``allowed``, or None."""
        value, names = self._list(keys), tuple(allowed)
        for item in value or ():
            if not isinstance(item, str) or item not in names:
                raise self.fault(keys, f"holds {_short(item)}; supported: {', '.join(names)}")
        return None if value is None else tuple(value)

    def value(self, keys: Keys) -> Any:
        """The value in the file, or the default of the type with a note, or None. A required key has no default."""
        value = self.given(keys)
        if value is None:
            return self._null(keys)
        if value is not _ABSENT:
            return value
        name = _first(keys)
        default = self.defaults.get(name)
        if default is not None and name in self._required:
            raise self.fault(
                keys,
                f"is missing; {default}, the default of type {self.kind}, cannot replace a shape{self._likely(keys)}",
            )
        if default is None or (default is False and "tie" not in name):  # a switch that a file does not name is off
            self.leave_open(keys, "none" if default is None else "off")
        elif name not in self.assumed:
            self.assumed.append(name)
            text = str(default).lower() if isinstance(default, bool) else default
            self.notes.append(f"{name} is absent: assumed {text}, the default of type {self.kind}")
        return default

    def leave_open(self, keys: Keys, instead: str) -> None:
        """Note what takes the place of a key that is absent or null; what says more replaces what says less."""
        if keys and self._left_open.get(_first(keys)) in (None, "none", "off"):
            self._left_open[_first(keys)] = instead

    def _null(self, keys: Keys) -> None:
        """A null where the type allows one, or has no default: nothing is stated."""
        default = self.defaults.get(_first(keys))
        if default is not None and _first(keys) not in self._nullable:
            raise self.fault(keys, f"is null, which type {self.kind} does not allow; give its value")
        self.leave_open(keys, "off" if isinstance(default, bool) else "none")

    def has(self, keys: Keys) -> bool:
        """Whether the file itself has the key with a value other than null."""
        return self.given(keys) not in (_ABSENT, None)

    def given(self, keys: Keys) -> Any:
        """The value under any of the names, null, or a marker for absent. Names that disagree are an error."""
        by_key: dict[str, Any] = {}
        for key in (keys,) if isinstance(keys, str) else keys:
            self._read.add(key)
            value = self._look_up(key)
            if value is not _ABSENT:
                by_key[key] = value
        values = [value for value in by_key.values() if value is not None]
        if any(value != values[0] for value in values[1:]):
            pairs = " and ".join(f"{key} = {_short(value)}" for key, value in by_key.items())
            raise SpecError(f"{self.where}: {pairs} name the same fact and disagree")
        return values[0] if values else None if by_key else _ABSENT

    def require(self, key: str, allowed: Sequence[Any]) -> None:
        """Refuse a value of ``key`` that is not one of those supported; absent and null are left to the type."""
        value = self.value(key) if self.has(key) else None
        if value is not None and not any(type(value) is type(other) and value == other for other in allowed):
            if not allowed:
                raise self.fault(key, f"= {_short(value)} is not supported for type {self.kind}")
            supported = ", ".join(str(other).lower() if isinstance(other, bool) else str(other) for other in allowed)
            raise self.fault(key, f"is supported for type {self.kind} only as {supported}, got {_short(value)}")

    def fault(self, keys: Keys, complaint: str) -> SpecError:
        """An error about one key."""
        return SpecError(f"{self.where}: {_first(keys)} {complaint}")

    def finish(self) -> None:
        """Refuse unread keys that matter for memory; note the others, and what the file leaves open.

        Raises
        ------
        SpecError
            For an unknown key whose name suggests that it changes memory, and for more than `MAX_KEYS` keys.
        """
        unread = Unread.load()
        ignored = []
        for count, (key, value) in enumerate(_leaves(self.data, self._read)):
            if count >= MAX_KEYS:
                raise SpecError(f"{self.where}: more than {MAX_KEYS:,} keys; a configuration has hundreds")
            if key in self._read:
                continue
            if unread.is_harmless(key, value):
                ignored += [] if _finite(value) else [f"{key} (not a finite number)"]
                continue
            if value is not None and unread.matters(key):
                raise SpecError(
                    f"{self.where}: {key} = {_short(value)} may change memory and is not supported for type "
                    f"{self.kind}; {self._advice(key)}"
                )
            ignored.append(key)
        if ignored:
            self.notes.append(f"ignored keys: {', '.join(sorted(ignored)[:30])}")
        if self._left_open:
            self.notes.append(f"not stated: {', '.join(f'{key} ({what})' for key, what in self._left_open.items())}")

    def _likely(self, keys: Keys) -> str:
        """Keys of the file that other types read as the missing one, as the end of a sentence."""
        names = (keys,) if isinstance(keys, str) else keys
        groups = [group for group in Unread.load().same_fact if set(group) & set(names)]
        there = [name for group in groups for name in group if name not in names and self.data.get(name) is not None]
        pairs = ", ".join(f"{name} = {_short(self.data[name])}" for name in there)
        return f"; the file has {pairs}, which type {self.kind} does not read" if pairs else ""

    def _advice(self, key: str) -> str:
        """What to do about a key that is not read: storage can be given instead, a shape must be spelled otherwise."""
        if "quant" in key.lower():
            return ADVICE.format(key)
        close = difflib.get_close_matches(key, sorted(self._read), n=3, cutoff=0.55)
        return f"nearest supported: {', '.join(close)}" if close else f"supported: {', '.join(sorted(self._read))}"

    def _look_up(self, key: str) -> Any:
        inside: Any = self.data
        for part in key.split("."):
            if inside is None:
                return _ABSENT
            if not isinstance(inside, Mapping):
                raise SpecError(f"{self.where}: {key.rpartition('.')[0]} must be an object, got a {kind_of(inside)}")
            if part not in inside:
                return _ABSENT
            inside = inside[part]
        return inside

    def _list(self, keys: Keys) -> list[Any] | None:
        value = self.value(keys)
        if value is not None and not isinstance(value, list | tuple):
            raise self.fault(keys, f"must be a list, got a {kind_of(value)}")
        return value  # type: ignore[return-value]


def _leaves(data: Mapping[str, Any], read: set[str], prefix: str = "") -> Iterable[tuple[str, Any]]:
    """Keys of the object, and of inner objects from which something was read."""
    for name, value in data.items():
        key = f"{prefix}{name}"
        opened = any(other.startswith(f"{key}.") for other in read)
        if opened and isinstance(value, Mapping):
            yield from _leaves(value, read, f"{key}.")
        else:
            yield key, value


def _finite(value: Any) -> bool:
    """Whether no NaN and no infinity is in a value; JSON has neither, and writers of Python let them through."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, float) and not math.isfinite(one):
            return False
        waiting += one.values() if isinstance(one, Mapping) else one if isinstance(one, list | tuple) else ()
    return True


def _first(keys: Keys) -> str:
    return keys if isinstance(keys, str) else (keys or ("a key",))[0]


def _short(value: Any) -> str:
    try:
        text = repr(value)
    except (ValueError, RecursionError):
        return "a value too large to print"
    return text if len(text) <= 40 else f"{text[:37]}..."
