"""Part by id, path or table, on demand based on another part. Loading a part reads that file only, once."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from capacity.catalog.models import Folders, Stamp, file_stamp, user_folders
from capacity.catalog.spec_files import PARTS, shipped_part_file, spec_file, spec_ids, spec_table
from capacity.errors import SpecError
from capacity.files.text_file import name_or_path
from capacity.specs.base import MAX_PATTERN_LETTERS
from capacity.specs.hardware import HardwareSpec
from capacity.specs.hardware_tables import still_measured
from capacity.specs.provenance import figures, matches

_MAX_CHAIN = 8


def load_hardware(source: str | os.PathLike[str] | Mapping[str, Any], *, folders: Folders = ()) -> HardwareSpec:
    """The part with this id, in this TOML file, or described by this table.

    A file or table may give ``based_on = "<id>"`` and only what differs; inherited figures are ``assumed``.

    Parameters
    ----------
    source : str, path or mapping
        A shipped id, a TOML file, or the table itself.
    folders : path or sequence of paths
        Folders of the user's own files, looked through before those of CAPACITY_PATH and the shipped ones.

    Returns
    -------
    HardwareSpec
        One device.

    Raises
    ------
    SpecError
        For an unknown id (with the nearest ones), an unreadable file, or figures that do not hold together.

    Examples
    --------
    >>> load_hardware("nvidia-h100-sxm5-80gb").memory.capacity_bytes
    85520809984
    """
    if isinstance(source, Mapping):
        where, table = str(source.get("name", "hardware"))[:200], dict(source)
        return _hardware(table, where, _base(table, where, user_folders(folders), ()))
    user = user_folders(folders)
    return _hardware_file(name_or_path(source, "part"), user, ())


def hardware_ids(*, folders: Folders = ()) -> tuple[str, ...]:
    """Ids of all parts that can be loaded by name, sorted.

    Parameters
    ----------
    folders : path or sequence of paths
        Folders of the user's own files, looked through before those of CAPACITY_PATH and the shipped ones.

    Returns
    -------
    tuple of str
        Ids that `load_hardware` takes.

    Raises
    ------
    SpecError
        If ``folders`` is neither a path nor a list of paths.

    Examples
    --------
    >>> "nvidia-h100-sxm5-80gb" in hardware_ids()
    True
    """
    return spec_ids(PARTS, user_folders(folders))


def _hardware_file(name: str, user: tuple[str, ...], chain: tuple[str, ...]) -> HardwareSpec:
    path = spec_file(name, "part", PARTS, user)
    shipped = shipped_part_file(name)
    replaces = path not in (name, shipped) and os.path.isfile(shipped)
    return _cached_hardware(path, file_stamp(path), _base(spec_table(path), path, user, (*chain, name)), replaces)


@lru_cache(maxsize=512)
def _cached_hardware(path: str, stamp: Stamp, base: HardwareSpec | None, replaces: bool) -> HardwareSpec:
    part = _hardware(spec_table(path), path, base)
    note = (f"{path} replaces the shipped part of this id",) if replaces else ()
    return part.model_copy(update={"notes": (*part.notes, *note)})


def _hardware(data: dict[str, Any], where: str, base: HardwareSpec | None) -> HardwareSpec:
    return HardwareSpec.parse(data if base is None else _merged(base, data, where), where)


def _base(data: dict[str, Any], where: str, user: tuple[str, ...], chain: tuple[str, ...]) -> HardwareSpec | None:
    """The part that a table is based on, read again if its file has changed; None where it has none.

    A file that replaces a shipped part may be based on it under the name that they share.
    """
    name = data.get("based_on")
    if name is None:
        return None
    if not isinstance(name, str):
        raise SpecError(f"{where}: based_on must be the id of a part, got {name!r:.60}")
    shipped = shipped_part_file(name)
    if chain[-1:] == (name,) and where != shipped and os.path.isfile(shipped):
        return _hardware_file(name, (), chain[:-1])
    if len(chain) > _MAX_CHAIN or name in chain:
        raise SpecError(f"{where}: based_on is circular: {' -> '.join((*chain, name))}")
    return _hardware_file(name_or_path(name, "part"), user, chain)


def _merged(base: HardwareSpec, own: dict[str, Any], where: str) -> dict[str, Any]:
    """The table of ``base`` with the values of ``own``; figures for which ``own`` has no source are assumed."""
    base_part = base.model_copy(update={"measured": still_measured(base.measured, figures(own), base.figures())})
    inherited = base_part.model_dump(exclude={"id", "sources", "unverified", "assumed", "based_on"}, exclude_none=True)
    table = _over({**inherited, "name": f"{base.name} (changed)"}, own)
    sourced = (*_patterns(own, where), *_names(own, "unverified", where), *_names(own, "assumed", where))
    added = figures({key: value for key, value in table.items() if key not in ("exceptions", "sources")})
    table["assumed"] = (*_names(own, "assumed", where), *(figure for figure in added if not matches(figure, sourced)))
    return table


def _over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """``below`` with the tables and values of ``above`` laid over it."""
    merged = dict(below)
    for key, value in above.items():
        under = merged.get(key)
        merged[key] = _over(under, value) if isinstance(under, Mapping) and isinstance(value, Mapping) else value
    return merged


def _patterns(own: Mapping[str, Any], where: str) -> tuple[str, ...]:
    sources = own.get("sources", ())
    rows = [row for row in sources if isinstance(row, Mapping)] if isinstance(sources, list | tuple) else []
    return tuple(pattern for row in rows for pattern in _names(row, "fields", where))


def _names(table: Mapping[str, Any], key: str, where: str) -> tuple[str, ...]:
    """The list of names under a key.

    Raises
    ------
    SpecError
        If it holds something else: laid over another part it would be dropped in silence.
    """
    value = table.get(key, ())
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) for name in value):
        raise SpecError(f"{where}: {key} must be a list of names, got {value!r:.60}")
    if longest := next((name for name in value if len(name) > MAX_PATTERN_LETTERS), None):
        raise SpecError(f"{where}: {key}: {longest[:40]!r}... is longer than {MAX_PATTERN_LETTERS} letters")
    return tuple(value)
