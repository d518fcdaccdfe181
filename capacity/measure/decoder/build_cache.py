"""The folder in which compiled kernels are kept between processes."""

from __future__ import annotations

import os
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
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "capacity"
    for folder in (home, Path(tempfile.gettempdir()) / f"capacity-{os.getuid()}"):
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK) and folder.stat().st_uid == os.getuid():
            return folder
    raise CapacityError(f"{home} cannot be written; set XDG_CACHE_HOME to a folder for compiled kernels")


def write_cached(path: Path, content: bytes) -> None:
    """Write a file of the cache by way of a temporary file, so that other processes only ever read whole files."""
    handle, temporary = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    os.replace(temporary, path)
