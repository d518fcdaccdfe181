"""Where TOML files of parts and servers are: folders of the user, then the shipped ones; each file is read once.

Folders are searched in this order: those given as ``folders``, those in the environment variable
``CAPACITY_PATH`` (separated as in PATH), the shipped ones.
"""

from __future__ import annotations

import os
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from capacity.catalog.models import Stamp, file_stamp
from capacity.errors import SpecError, unknown_name
from capacity.files import package_data
from capacity.files.text_file import read_toml

PARTS, SERVERS = "hardware_specs", "hardware_specs/servers"


def spec_table(path: str) -> dict[str, Any]:
    """The table in a spec file, with the id from its file name; do not change it."""
    return {"id": Path(path).stem} | _cached_table(path, file_stamp(path))


@lru_cache(maxsize=512)
def _cached_table(path: str, stamp: Stamp) -> dict[str, Any]:
    return read_toml(path)


def spec_file(name: str, kind: str, subfolder: str, user: tuple[str, ...]) -> str:
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
    commonest_first = sorted(spec_ids(subfolder, user), key=lambda one: "-sxm" not in one)  # the form that servers hold
    raise SpecError(unknown_name(kind, name, commonest_first))


def spec_ids(subfolder: str, user: tuple[str, ...]) -> tuple[str, ...]:
    stems = set()
    for folder in _search(subfolder, user):
        with suppress(OSError):
            stems |= {name.removesuffix(".toml") for name in os.listdir(folder) if name.endswith(".toml")}
    return tuple(sorted(stems))


def _search(subfolder: str, user: tuple[str, ...]) -> list[str]:
    """Folders that may hold specs of one kind, the first match wins: parts may lie directly in a folder of the user."""
    own_name = subfolder.removeprefix(f"{PARTS}/")
    places = [os.path.join(folder, subfolder) for folder in user]
    places += [folder if own_name == PARTS else os.path.join(folder, own_name) for folder in user]
    return [*places, _shipped(subfolder)]


def shipped_part_file(name: str) -> str:
    return os.path.join(_shipped(PARTS), f"{name}.toml")


@cache
def _shipped(subfolder: str) -> str:
    return str(package_data.folder(subfolder))
