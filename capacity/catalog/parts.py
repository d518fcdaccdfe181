"""Part or server by id, path or table, and dated prices.

Folders are searched in this order: those given as ``folders``, those in the environment variable
``CAPACITY_PATH`` (separated as in PATH), the shipped ones. Loading a part reads that file only, once.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from capacity.catalog.models import Folders, Stamp, file_stamp, user_folders
from capacity.errors import SpecError, unknown_name
from capacity.files import package_data
from capacity.files.text_file import name_or_path, read_toml
from capacity.specs.base import MAX_PATTERN_LETTERS
from capacity.specs.hardware import HardwareSpec
from capacity.specs.hardware_tables import still_measured
from capacity.specs.prices import Price
from capacity.specs.provenance import figures, matches
from capacity.specs.server import ServerSpec

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
    return _ids("hardware_specs", user_folders(folders))


def load_server(source: str | os.PathLike[str] | Mapping[str, Any], *, folders: Folders = ()) -> ServerSpec:
    """The server with this id, in this TOML file, or described by this table; its device must be a known part.

    Parameters
    ----------
    source : str, path or mapping
        A shipped id, a TOML file, or the table itself.
    folders : path or sequence of paths
        Folders of the user's own files, looked through before those of CAPACITY_PATH and the shipped ones.

    Returns
    -------
    ServerSpec
        Devices, links and power of one server.

    Raises
    ------
    SpecError
        For an unknown id (with the nearest ones), an unreadable file, or a device that is no known part.

    Examples
    --------
    >>> server = load_server("nvidia-hgx-h100-8x80gb")
    >>> server.devices, server.device
    (8, 'nvidia-h100-sxm5-80gb')
    """
    user = user_folders(folders)
    if isinstance(source, Mapping):
        return _server(dict(source), str(source.get("name", "server"))[:200], user)
    path = _file(name_or_path(source, "server"), "server", "hardware_specs/servers", user)
    return _server(_table(path), path, user)


def server_ids(*, folders: Folders = ()) -> tuple[str, ...]:
    """Ids of all servers that can be loaded by name, sorted.

    Parameters
    ----------
    folders : path or sequence of paths
        Folders of the user's own files, looked through before those of CAPACITY_PATH and the shipped ones.

    Returns
    -------
    tuple of str
        Ids that `load_server` takes.

    Raises
    ------
    SpecError
        If ``folders`` is neither a path nor a list of paths.

    Examples
    --------
    >>> "nvidia-hgx-h100-8x80gb" in server_ids()
    True
    """
    return _ids("hardware_specs/servers", user_folders(folders))


@cache
def server_with(part: str) -> ServerSpec | None:
    """The first shipped server of this part that states the rate of its network, by id; None where none does."""
    servers = map(load_server, server_ids())
    return next(
        (one for one in servers if one.device == part and one.network and one.network.bytes_per_s_per_device), None
    )


def load_prices(part: str | None = None) -> tuple[Price, ...]:
    """Dated offers for an hour of one device, newest first; of one part, or of all.

    Examples
    --------
    >>> [(price.seller, price.usd_per_hour_low) for price in load_prices("nvidia-gh200-96gb")]
    [('Lambda', 2.29)]
    """
    return tuple(price for price in _all_prices() if part in (None, price.part))


@cache
def _all_prices() -> tuple[Price, ...]:
    prices = []
    for name in package_data.names("data/prices", ".csv"):
        rows = csv.DictReader(io.StringIO(package_data.text(f"data/prices/{name}.csv")))
        prices += [Price.parse(row, f"{name}.csv line {line}") for line, row in enumerate(rows, start=2)]
    return tuple(sorted(prices, key=lambda price: price.date, reverse=True))


def _table(path: str) -> dict[str, Any]:
    """The table in a spec file, with the id from its file name; do not change it."""
    return {"id": Path(path).stem} | _cached_table(path, file_stamp(path))


@lru_cache(maxsize=512)
def _cached_table(path: str, stamp: Stamp) -> dict[str, Any]:
    return read_toml(path)


def _hardware_file(name: str, user: tuple[str, ...], chain: tuple[str, ...]) -> HardwareSpec:
    path = _file(name, "part", "hardware_specs", user)
    shipped = _shipped_file(name)
    replaces = path not in (name, shipped) and os.path.isfile(shipped)
    return _cached_hardware(path, file_stamp(path), _base(_table(path), path, user, (*chain, name)), replaces)


@lru_cache(maxsize=512)
def _cached_hardware(path: str, stamp: Stamp, base: HardwareSpec | None, replaces: bool) -> HardwareSpec:
    part = _hardware(_table(path), path, base)
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
    shipped = _shipped_file(name)
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


def _server(data: dict[str, Any], where: str, user: tuple[str, ...]) -> ServerSpec:
    server = ServerSpec.parse(data, where)
    _file(server.device, "part", "hardware_specs", user)
    return server


def _file(name: str, kind: str, subfolder: str, user: tuple[str, ...]) -> str:
    """The file that an id or a path means."""
    if name.endswith(".toml") or os.sep in name:
        if not name.endswith(".toml"):
            raise SpecError(f"{name[:200]}: a {kind} is a .toml file")
        if not os.path.isfile(name):
            raise SpecError(f"no {kind} file at {name[:200]!r}")
        return name
    for folder in _search(subfolder, user):
        path = os.path.join(folder, f"{name}.toml")
        if os.path.isfile(path):
            return path
    commonest_first = sorted(_ids(subfolder, user), key=lambda one: "-sxm" not in one)  # the form that servers hold
    raise SpecError(unknown_name(kind, name, commonest_first))


def _ids(subfolder: str, user: tuple[str, ...]) -> tuple[str, ...]:
    stems = set()
    for folder in _search(subfolder, user):
        with suppress(OSError):
            stems |= {name.removesuffix(".toml") for name in os.listdir(folder) if name.endswith(".toml")}
    return tuple(sorted(stems))


def _search(subfolder: str, user: tuple[str, ...]) -> list[str]:
    """Folders that may hold specs of one kind, the first match wins: parts may lie directly in a folder of the user."""
    own_name = subfolder.removeprefix("hardware_specs/")
    places = [os.path.join(folder, subfolder) for folder in user]
    places += [folder if own_name == "hardware_specs" else os.path.join(folder, own_name) for folder in user]
    return [*places, _shipped(subfolder)]


def _shipped_file(name: str) -> str:
    return os.path.join(_shipped("hardware_specs"), f"{name}.toml")


@cache
def _shipped(subfolder: str) -> str:
    return str(package_data.folder(subfolder))
