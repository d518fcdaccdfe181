"""A Hugging Face ``config.json``, as a file, its folder or a dictionary, made into a `ModelSpec`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from capacity.errors import SpecError, rephrase, unknown_name
from capacity.files.json_file import kind_of, read_object
from capacity.importers.checkpoints.quantization import TABLE_KEYS, checkpoint_of
from capacity.importers.checkpoints.stored_bytes import with_stored_bytes
from capacity.importers.huggingface.config import Config
from capacity.importers.huggingface.decoder import decoder
from capacity.importers.huggingface.facts import ModuleNames, TypeFacts, facts_of, model_types
from capacity.importers.huggingface.layer_modules import layer_modules
from capacity.importers.huggingface.wrapped import (
    LAYERS,
    OF_CHECKPOINT,
    rest_is_harmless,
    text_part,
    vision_stage,
    wrapper_types,
)
from capacity.specs.model import ModelSpec

TEXT_PARTS = ("text_config", "llm_config", "language_config")


def import_model(source: str | Path | Mapping[str, Any], name: str | None = None) -> ModelSpec:
    """The model that a configuration describes; nothing is downloaded, and of weights only headers are read.

    Parameters
    ----------
    source : path or mapping
        ``config.json``, the folder that holds it, or its content.
    name : str, optional
        Name of the model; by default that of the folder, or what the configuration calls itself.

    Raises
    ------
    SpecError
        If the file is not a configuration, its type is unknown, or a key that may change memory is not understood.
    """
    if isinstance(source, Mapping):
        return import_config(source, name or _own_name(source), where=name or "config")
    path = Path(source)
    if path.is_dir():
        path = path / "config.json"
        if not path.exists():
            raise SpecError(f"{path.parent}: the folder has no config.json")
    data = _with_own_quantization(read_object(path, constants=True), path)
    folder = path.resolve().parent.name if path.name == "config.json" else path.stem
    model = import_config(data, name or folder or _own_name(data), where=str(path))
    if path.name != "config.json":
        return model
    return with_stored_bytes(model, path.parent, other_layers=_uncounted_layers(data, model.decoder.layer_count))


def _uncounted_layers(config: Mapping[str, Any], first: int) -> range:
    """Numbers of the layers that the files hold behind those of the model, where the configuration declares them."""
    kind = config["model_type"]
    text = text_part(config, kind, "config") if kind in wrapper_types() else config
    counts = [text.get(key) for key in facts_of(text["model_type"]).uncounted]
    return range(first, first + sum(count for count in counts if type(count) is int))


def _with_own_quantization(data: dict[str, Any], path: Path) -> dict[str, Any]:
    """The configuration with what the file of ModelOpt next to it says: of all storage, or of the cache alone."""
    modelopt = path.with_name("hf_quant_config.json")
    if path.name != "config.json" or not modelopt.is_file():
        return data
    table, own = read_object(modelopt), data.get("quantization_config")
    if own is None:
        return data | {"quantization_config": table}
    quantization = table.get("quantization")
    cache = quantization.get("kv_cache_quant_algo") if isinstance(quantization, Mapping) else None
    if cache is None or not isinstance(own, Mapping):
        return data
    return data | {"quantization_config": {"kv_cache_quant_algo": cache, **own}}


def import_config(
    data: Mapping[str, Any], name: str, where: str, *, nested: bool = False, layers: str | None = None
) -> ModelSpec:
    """The model in ``data``, which came from ``where``.

    ``nested``: it is part of a larger configuration, where the library omits the class defaults of the type;
    ``layers``: what its layers are called in the files of a checkpoint, where that is not as usual for its type.
    """
    kind = _model_type(data, where)
    if kind in wrapper_types():
        return _wrapped(data, kind, name, where)
    facts = facts_of(kind)
    required = frozenset[str]() if nested or facts.nested else frozenset(row[0] for row in facts.shapes)
    config = Config(data, where, facts.defaults, kind, facts.harmless, required, facts.nullable)
    for key in TABLE_KEYS:
        config.given(key)
    try:
        stage, vocabulary, positions = decoder(config, facts)
    except ValidationError as error:
        raise rephrase(error, where) from None
    config.finish()
    checkpoint, stored = checkpoint_of(data, where, layer_modules(stage, _names(facts, layers)))
    table = {
        "name": name,
        "stages": (stage,),
        "vocabulary": vocabulary,
        "positions": positions,
        "checkpoint": checkpoint,
        "notes": (*facts.notes, *config.notes, *stored),
        "assumed": tuple(config.assumed),
    }
    return ModelSpec.parse(table, where)


def _names(facts: TypeFacts, layers: str | None) -> ModuleNames:
    return facts.modules if layers is None else facts.modules.model_copy(update={"layers": layers})


def _wrapped(data: Mapping[str, Any], kind: str, name: str, where: str) -> ModelSpec:
    """A text model with its vision tower; both are stored as the whole says."""
    text = text_part(data, kind, where)
    stored = {key: data[key] for key in OF_CHECKPOINT if data.get(key) is not None}
    model = import_config({**text, **stored}, name, where, layers=LAYERS)
    tower, notes = vision_stage(data, kind, where, model.decoder.hidden_size)
    source = {"fields": ["*"], "cite": wrapper_types()[kind]["source"]}
    table = model.model_dump() | {
        "stages": (tower, *model.stages),
        "notes": (*model.notes, *notes, *rest_is_harmless(data, kind, where)),
        "sources": (*model.sources, source),
    }
    return ModelSpec.parse(table, where)


def _model_type(data: Mapping[str, Any], where: str) -> str:
    if not isinstance(data, Mapping):
        raise SpecError(f"{where}: expected an object, got a {kind_of(data)}")
    if "model_type" not in data:
        raise SpecError(f"{where}: model_type is missing; supported: {', '.join(model_types())}")
    kind = data["model_type"]
    if not isinstance(kind, str):
        raise SpecError(f"{where}: model_type must be a string, got a {kind_of(kind)}")
    if kind not in model_types() and kind not in wrapper_types():
        raise SpecError(f"{where}: {_text_part(data, kind) or unknown_name('model_type', kind, model_types())}")
    return kind


def _text_part(data: Mapping[str, Any], kind: str) -> str | None:
    """What to do with a type whose text part is of a type that is read."""
    for key in TEXT_PARTS:
        part = data.get(key)
        text_type = part.get("model_type") if isinstance(part, Mapping) else None
        if isinstance(text_type, str) and text_type in model_types():
            return (
                f"unknown model_type {kind!r:.80}; only its text part is understood: give its {key}, of type "
                f"{text_type}, as the configuration; its vision or audio parts are left out"
            )
    return None


def _own_name(data: Mapping[str, Any]) -> str:
    name = data.get("_name_or_path") or data.get("model_type") or "model"
    return str(name).rstrip("/").rpartition("/")[2][:100] or "model"
