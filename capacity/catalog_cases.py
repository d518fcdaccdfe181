"""Files that say a deployment or a workload: TOML or JSON tables of the fields of those specs."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from capacity.errors import SpecError, unknown_name
from capacity.importers.json_file import read_object
from capacity.specs.base import Spec
from capacity.specs.deployment import Deployment
from capacity.specs.workload import Workload

LARGEST_FILE_BYTES = 1_000_000


def read_deployment(path: str | Path) -> dict[str, Any]:
    """Fields of a deployment, from a ``.toml`` or ``.json`` file; their names are checked, their values are not.

    Raises
    ------
    SpecError
        If the file cannot be read or holds an unknown field.
    """
    return _known_fields(Path(path), Deployment)


def read_workload(path: str | Path) -> dict[str, Any]:
    """Fields of a workload, from a ``.toml`` or ``.json`` file; their names are checked, their values are not."""
    return _known_fields(Path(path), Workload)


def _known_fields(path: Path, kind: type[Spec]) -> dict[str, Any]:
    table = _read_table(path)
    for name in table:
        if name not in kind.model_fields:
            raise SpecError(f"{path}: {unknown_name('field', name, kind.model_fields)}")
    return table


def _read_table(path: Path) -> dict[str, Any]:
    if path.suffix == ".json":
        return read_object(path, LARGEST_FILE_BYTES)
    if path.suffix != ".toml":
        raise SpecError(f"{path}: a deployment or workload is a .toml or .json file")
    try:
        if path.stat().st_size > LARGEST_FILE_BYTES:
            raise SpecError(f"{path}: too large; at most {LARGEST_FILE_BYTES:,} bytes are read")
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SpecError(f"{path}: no such file") from None
    except OSError as error:
        raise SpecError(f"{path}: cannot be read ({error.strerror or error})") from None
    except RecursionError:
        raise SpecError(f"{path}: nested too deeply") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SpecError(f"{path}: not valid TOML ({error})") from None
