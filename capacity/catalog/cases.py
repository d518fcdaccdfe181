"""Files of deployments and workloads: TOML or JSON tables of the fields of those specs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from capacity.errors import SpecError, unknown_field
from capacity.files.json_file import read_object
from capacity.files.text_file import read_toml
from capacity.specs.base import Spec
from capacity.specs.deployment import Deployment
from capacity.specs.workload import Workload


def load_deployment(source: str | Path | Mapping[str, Any]) -> Deployment:
    """The deployment in a ``.toml`` or ``.json`` file, or described by this table.

    Parameters
    ----------
    source : str, path or mapping
        A ``.toml`` or ``.json`` file, or the table itself.

    Returns
    -------
    Deployment
        How one replica is served.

    Raises
    ------
    SpecError
        If the file cannot be read, or a field is unknown or wrong.

    Examples
    --------
    >>> load_deployment({"weights": "fp8_e4m3", "tensor_parallel": 2}).devices
    2
    """
    if isinstance(source, Mapping):
        return Deployment.parse(source, "deployment")
    return Deployment.parse(read_deployment(source), str(source))


def load_workload(source: str | Path | Mapping[str, Any]) -> Workload:
    """The workload in a ``.toml`` or ``.json`` file, or described by this table.

    Parameters
    ----------
    source : str, path or mapping
        A ``.toml`` or ``.json`` file, or the table itself.

    Returns
    -------
    Workload
        Requests, concurrency and objectives.

    Raises
    ------
    SpecError
        If the file cannot be read, or a field is unknown or wrong.

    Examples
    --------
    >>> load_workload({"prompt_tokens": 500, "output_tokens": 100}).memory_tokens
    600
    """
    if isinstance(source, Mapping):
        return Workload.parse(source, "workload")
    return Workload.parse(read_workload(source), str(source))


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
            raise SpecError(f"{path}: {unknown_field(name, kind.model_fields)}")
    return table


def _read_table(path: Path) -> dict[str, Any]:
    if path.suffix == ".json":
        return read_object(path)
    if path.suffix != ".toml":
        raise SpecError(f"{path}: a deployment or workload is a .toml or .json file")
    return read_toml(path)
