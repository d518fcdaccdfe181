"""Write a file that is either whole or not there."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Write UTF-8 text by way of a temporary file in the same folder, which is removed on failure.

    A link stays one: the file that it leads to is written. A device, a pipe or a folder is never replaced.

    Raises
    ------
    OSError
        If the file cannot be written; what was there before is then as it was.
    """
    path = _target(path)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _target(path: Path) -> Path:
    target = Path(os.path.realpath(path))
    if target.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    if target.exists() and not (target.is_file() or target.is_dir()):  # a folder is refused when it would be replaced
        raise OSError(errno.EINVAL, "not a regular file")
    return target
