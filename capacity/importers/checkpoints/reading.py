"""What the readers of quantised storage share: checks of single values and of keys, formats of linear parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from capacity.errors import SpecError, unknown_name
from capacity.files import package_data
from capacity.files.json_file import kind_of
from capacity.specs.checkpoint import StoredOverride
from capacity.units import number_formats

LINEAR_PARTS = ("attention", "mlp", "experts")


@dataclass(frozen=True, slots=True)
class Storage:
    """What the configuration of one method states: formats by part, of activations and of the cache.

    ``skipped`` are lists of unquantised modules that only this method has; ``notes`` name keys that carry no size.
    """

    parts: dict[str, str]
    activations: str | None = None
    cache: str | None = None
    overrides: tuple[StoredOverride, ...] = ()
    skipped: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def only(table: Mapping[str, Any], key: str, allowed: Sequence[Any], where: str) -> None:
    """Refuse a value of ``key`` that is none of ``allowed``; absent and null stand for the default of its writer.

    Raises
    ------
    SpecError
        Naming the value and those allowed.
    """
    value = table.get(key)
    if value is not None and not any(type(value) is type(one) and value == one for one in allowed):
        supported = ", ".join(str(one).lower() if isinstance(one, bool) else str(one) for one in allowed)
        raise SpecError(f"{where}: {key} {value!r:.40} is not supported; supported: {supported}")


def empty(table: Mapping[str, Any], key: str, where: str) -> None:
    """Refuse a value of ``key`` that holds anything: what it would say is not read.

    Raises
    ------
    SpecError
        Naming the key and its value.
    """
    if table.get(key) not in (None, [], {}, ""):
        raise SpecError(f"{where}: {key} = {table[key]!r:.40} is not supported")


def flag(table: Mapping[str, Any], key: str, where: str, default: bool = False) -> bool:
    """A yes or no of the table.

    Raises
    ------
    SpecError
        If it is neither true nor false nor null.
    """
    value = table.get(key)
    if value is not None and not isinstance(value, bool):
        raise SpecError(f"{where}: {key} must be true or false, got {value!r:.40}")
    return default if value is None else value


def inner(table: Mapping[str, Any], key: str, where: str) -> Mapping[str, Any]:
    """An object inside the table, empty where it is absent or null.

    Raises
    ------
    SpecError
        If it is no object.
    """
    value = table.get(key)
    if not isinstance(value, Mapping | None):
        raise SpecError(f"{where}: {key} must be an object, got a {kind_of(value)}")
    return value or {}


def linear(name: str, where: str) -> dict[str, str]:
    """The linear parts, all in the format ``name``.

    Raises
    ------
    SpecError
        For a format that is not known.
    """
    if name not in number_formats():
        raise SpecError(f"{where}: {unknown_name('number format', name, number_formats())}")
    return dict.fromkeys(LINEAR_PARTS, name)


def check_keys(table: Mapping[str, Any], where: str, *sections: str) -> tuple[str, ...]:
    """A note on keys that are not known and carry no size.

    Raises
    ------
    SpecError
        For a key that is not known and whose name suggests that it says how something is stored.
    """
    known_keys = {key for section in sections for keys in _keys()[section].values() for key in keys}
    unknown = sorted((key for key in table if key not in known_keys and table[key] is not None), key=str)
    for key in unknown:
        if any(stem in str(key).lower() for stem in _stems()):
            raise SpecError(
                f"{where}: {str(key)[:60]} = {table[key]!r:.40} is not understood and may say how something is stored"
            )
    if any(section == "any" for section in sections):
        unknown += list(_unknown_inside(table, ""))
    return (f"ignored keys of {where.rpartition(': ')[2]}: {', '.join(map(str, unknown[:20]))}",) if unknown else ()


def _unknown_inside(table: Mapping[str, Any], path: str) -> Iterator[str]:
    """Dotted names of keys in the objects that are looked through which no section knows."""
    known_keys = {key for section in _keys().values() for keys in section.values() for key in keys}
    for key, value in table.items():
        if not isinstance(value, Mapping):
            continue
        entries = value.items() if key in _file()["named_objects"] else ()
        objects = [(f"{path}{key}.{name}.", one) for name, one in entries if isinstance(one, Mapping)]
        if key in _file()["objects"]:
            objects.append((f"{path}{key}.", value))
        for place, one in objects:
            yield from (f"{place}{name}"[:120] for name in one if name not in known_keys and one[name] is not None)
            yield from _unknown_inside(one, place)


def unread_method(method: str) -> str:
    """What to know of a method by name that is not read; empty for a method without an entry.

    >>> unread_method("eetq")
    "quant_method 'eetq' is not read here; near in size: int8, a scale for each row"
    """
    near = _file()["unread_methods"].get(method.lower())
    return f"quant_method {method!r} is not read here; near in size: {near}" if near else ""


@cache
def _keys() -> dict[str, dict[str, list[str]]]:
    return {name: one for name, one in _file().items() if isinstance(one, dict) and name != "unread_methods"}


@cache
def _stems() -> tuple[str, ...]:
    return tuple(_file()["stems"])


def _file() -> dict[str, Any]:
    return dict(package_data.toml("data/quantization_keys.toml"))
