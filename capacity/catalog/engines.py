"""The engines whose allocation is known, by name and version."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from capacity.errors import CapacityError, unknown_name
from capacity.files import package_data
from capacity.specs.engine import EngineSpec

FOLDER = "data/engines"
_VERSION = re.compile(
    r"v?(\d{1,5})(?:\.(\d{1,5}))?(?:\.(\d{1,5}))?(?:[-.]?(?:a|b|rc|post|dev|alpha|beta)\d{0,12})*(?:\+[\w.]{1,40})?"
)

Version = tuple[int, int, int]


def engine_ids() -> tuple[str, ...]:
    """Names of all engines, sorted."""
    return package_data.names(FOLDER, ".toml")


@cache
def load_engine(name: str, version: str | None = None) -> EngineSpec:
    """The engine called ``name``, by the rules of a version: those of the newest without one.

    Raises
    ------
    CapacityError
        If there is none (the nearest names are given), or if the version is none.
    """
    if name not in engine_ids():
        raise CapacityError(unknown_name("engine", name, engine_ids()))
    table = dict(package_data.toml(f"{FOLDER}/{name}.toml"))
    changes = table.pop("versions", [])
    if not changes and version is not None:
        raise CapacityError(f"engine_version {version!r}: engine {name!r} has no versions")
    if changes:
        table = _of_version(name, table, changes, version)
    return EngineSpec.parse(table, where=f"{name}.toml")


def _of_version(
    name: str, table: dict[str, Any], changes: list[Mapping[str, Any]], version: str | None
) -> dict[str, Any]:
    """The table with the changes of all versions up to this one; ``checked`` is the newest that was looked at."""
    checked = table.pop("checked")
    chosen = checked if version is None else version
    number, note = _number(name, chosen), ""
    for change in changes:
        since = _number(name, change["since"])
        if change is changes[0] and number < since:
            note = f"{name} {chosen} is older than any known; the rules of {change['since']} stand in"
        elif number < since:
            break
        table = _merged(table, {key: value for key, value in change.items() if key != "since"})
    if number > _number(name, checked):
        note = f"{name} {chosen} is newer than any known; the rules of {checked} stand in"
    return {**table, "version": chosen, "version_note": note}


def _number(name: str, version: str) -> Version:
    match = _VERSION.fullmatch(version.strip())
    if match is None:
        raise CapacityError(f"engine_version {version[:40]!r}: a version of {name} looks like 0.19 or 0.20.2")
    major, minor, patch = (int(part or 0) for part in match.groups())
    return major, minor, patch


def _merged(table: dict[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """The table with a change laid over it: tables are merged, sources added, all else replaced."""
    merged = dict(table)
    for key, value in change.items():
        old = merged.get(key)
        if isinstance(old, dict) and isinstance(value, Mapping):
            merged[key] = _merged(old, value)
        elif key == "sources":
            merged[key] = [*(old or []), *value]
        else:
            merged[key] = value
    return merged
