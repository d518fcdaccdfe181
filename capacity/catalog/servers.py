"""Server by id, path or table."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from typing import Any

from capacity.catalog.models import Folders, user_folders
from capacity.catalog.spec_files import PARTS, SERVERS, spec_file, spec_ids, spec_table
from capacity.files.text_file import name_or_path
from capacity.specs.server import ServerSpec


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
    path = spec_file(name_or_path(source, "server"), "server", SERVERS, user)
    return _server(spec_table(path), path, user)


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
    return spec_ids(SERVERS, user_folders(folders))


@cache
def server_with(part: str) -> ServerSpec | None:
    """The first shipped server of this part that states the rate of its network, by id; None where none does."""
    servers = map(load_server, server_ids())
    return next(
        (one for one in servers if one.device == part and one.network and one.network.bytes_per_s_per_device), None
    )


def _server(data: dict[str, Any], where: str, user: tuple[str, ...]) -> ServerSpec:
    server = ServerSpec.parse(data, where)
    spec_file(server.device, "part", PARTS, user)
    return server
