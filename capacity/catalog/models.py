"""Model by name, path or table: shipped files, those of user folders, and any ``config.json``.

A model file holds a configuration with its provenance: ``id``, ``name``, ``config``, ``checkpoint``, ``sources``
and ``notes``. It goes through the same importer as a ``config.json``, which a user folder may hold as well.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from capacity.catalog.hub import is_hub_id, not_shipped, shipped_under
from capacity.errors import SpecError, unknown_field
from capacity.files import package_data
from capacity.files.json_file import kind_of, read_object
from capacity.files.text_file import name_or_path
from capacity.importers.huggingface.model import import_config, import_model
from capacity.specs.checkpoint import Checkpoint
from capacity.specs.model import ModelSpec

Folders = Iterable[str | os.PathLike[str]]
Stamp = tuple[str, int, int, int]
_FIELDS = ("id", "name", "config", "checkpoint", "sources", "notes")


def load_model(source: str | os.PathLike[str] | Mapping[str, Any], *, folders: Folders = ()) -> ModelSpec:
    """The model with this name, in this ``config.json`` or its folder, or described by this table.

    Parameters
    ----------
    source : str, path or mapping
        A shipped name, the Hub id of a shipped model, a ``config.json``, its folder, or the table itself.
    folders : path or sequence of paths
        Folders of the user's own files, looked through before those of CAPACITY_PATH and the shipped ones.

    Returns
    -------
    ModelSpec
        The network, with its checkpoint where one is known.

    Raises
    ------
    SpecError
        For an unknown name (with the nearest ones), an unreadable file, or a configuration that is not supported.

    Examples
    --------
    >>> load_model("llama-3-8b").decoder.layer_count
    32
    """
    if isinstance(source, Mapping):
        return _from_table(source, str(source.get("name", source.get("_name_or_path", "config")))[:200])
    path = _file(name_or_path(source, "model"), user_folders(folders))
    return _cached_model(path, _stamps(path))


def model_ids(*, folders: Folders = ()) -> tuple[str, ...]:
    """Names of all models that can be loaded by name, sorted.

    Parameters
    ----------
    folders : path or sequence of paths
        Folders of the user's own files, looked through before those of CAPACITY_PATH and the shipped ones.

    Returns
    -------
    tuple of str
        Names that `load_model` takes.

    Raises
    ------
    SpecError
        If ``folders`` is neither a path nor a list of paths.

    Examples
    --------
    >>> "llama-3-8b" in model_ids()
    True
    """
    stems = set()
    for folder in _search(user_folders(folders)):
        with suppress(OSError):
            stems |= {name.removesuffix(".json") for name in os.listdir(folder) if name.endswith(".json")}
    return tuple(sorted(stems))


@lru_cache(maxsize=512)
def _cached_model(path: str, stamps: tuple[Stamp, ...]) -> ModelSpec:
    if os.path.basename(path) == "config.json":
        return import_model(path)
    data = read_object(Path(path), constants=True)
    return _from_table(data, path) if "config" in data else import_model(path)


def _from_table(data: Mapping[str, Any], where: str) -> ModelSpec:
    if "config" not in data:
        return import_model(data, name=None)
    for key in data:
        if key not in _FIELDS:
            raise SpecError(f"{where}: {unknown_field(key, _FIELDS)}")
    config = data["config"]
    if not isinstance(config, Mapping):
        raise SpecError(f"{where}: config must be an object, got a {kind_of(config)}")
    model = import_config(config, str(data.get("name", data.get("id", "model"))), where)
    changes: dict[str, Any] = {"notes": (*_strings(data, "notes", where), *model.notes)}
    if data.get("checkpoint") is not None:
        changes["checkpoint"] = Checkpoint.parse(data["checkpoint"], f"{where}: checkpoint")
        changes["notes"] = tuple(note for note in changes["notes"] if not note.startswith("stored format assumed"))
    table = model.model_dump() | changes | {"sources": data.get("sources", ())}
    return ModelSpec.parse(table, where)


def _strings(data: Mapping[str, Any], key: str, where: str) -> tuple[str, ...]:
    value = data.get(key, ())
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise SpecError(f"{where}: {key} must be a list of strings")
    return tuple(value)


def _file(name: str, user: tuple[str, ...]) -> str:
    """The file of a name, a path, a folder or a Hub id."""
    if is_hub_id(name):
        shipped = model_ids(folders=user)
        own = shipped_under(name, shipped)
        if own is None:
            raise SpecError(not_shipped(name, shipped))
        name = own
    if name.endswith(".json") or os.sep in name or os.path.isdir(name):
        if os.path.isdir(name):
            if not os.path.isfile(os.path.join(name, "config.json")):
                raise SpecError(f"{name[:200]}: the folder has no config.json")
            return os.path.join(name, "config.json")
        if not os.path.isfile(name):
            raise SpecError(f"no model file at {name[:200]!r}")
        return name
    for folder in _search(user):
        path = os.path.join(folder, f"{name}.json")
        if len(name) < 200 and os.path.isfile(path):
            return path
    raise SpecError(not_shipped(name, model_ids(folders=user)))


def _search(user: tuple[str, ...]) -> list[str]:
    """Folders that may hold models; the first match wins."""
    return [place for folder in user for place in (os.path.join(folder, "models"), folder)] + [_shipped()]


@cache
def _shipped() -> str:
    return str(package_data.folder("data/models"))


def user_folders(folders: Folders) -> tuple[str, ...]:
    """Folders to search before the shipped ones: those given, then those of the environment."""
    paths = [folders] if isinstance(folders, str | os.PathLike) else folders
    if not isinstance(paths, Iterable):
        raise SpecError(f"folders must be a path or a list of paths, got {type(folders).__name__}")
    from_environment = os.environ.get("CAPACITY_PATH", "").split(os.pathsep)
    return (*(name_or_path(folder, "folder") for folder in paths), *filter(None, from_environment))


def file_stamp(path: str) -> Stamp:
    """Changes when the file does, so that an edited file is read again.

    Raises
    ------
    SpecError
        If it is a link that leads nowhere or in a circle, or is gone.
    """
    try:
        status = os.stat(path)
    except OSError as error:
        what = "a link that leads nowhere" if os.path.islink(path) else "cannot be read"
        raise SpecError(f"{path}: {what} ({error.strerror}); is the download complete?") from None
    return path, status.st_mtime_ns, status.st_size, status.st_ino


def _stamps(path: str) -> tuple[Stamp, ...]:
    """Stamps of a model file and, next to a ``config.json``, of the other files that describe how it is stored."""
    folder, name = os.path.split(path)
    others = os.listdir(folder or ".") if name == "config.json" else ()
    endings = (".safetensors", ".safetensors.index.json", "hf_quant_config.json")
    stored = sorted(other for other in others if other.endswith(endings))
    return tuple(file_stamp(other) for other in (path, *(os.path.join(folder, other) for other in stored)))
