"""The folder in which compiled kernels are kept between processes."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from capacity.errors import CapacityError


def cache_folder() -> Path:
    """The user's cache folder or, where it cannot be written, a folder of the user's own in that for temporary files.

    Raises
    ------
    CapacityError
        If neither can be written.
    """
    stated = Path(os.environ.get("XDG_CACHE_HOME", ""))  # the XDG specification: ignore a path that is not absolute
    home = (stated if stated.is_absolute() else Path.home() / ".cache") / "capacity"
    for folder in (home, Path(tempfile.gettempdir()) / f"capacity-{os.getuid()}"):
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK) and _is_private(folder):
            return folder
    raise CapacityError(
        f"{home} cannot be written, or others may write to it; set XDG_CACHE_HOME to a folder for compiled kernels"
    )


def _is_private(folder: Path) -> bool:
    """Whether a folder, not a link to one, is the user's own and closed to others: libraries are loaded from it."""
    status = folder.lstat()
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o022


def write_cached(path: Path, content: bytes) -> None:
    """Write a file of the cache by way of a temporary file, so that other processes only ever read whole files."""
    handle, temporary = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    os.replace(temporary, path)
