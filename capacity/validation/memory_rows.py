"""Rows of published memory figures as cases: model, engine and deployment, read from the inputs of a row alone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from capacity.catalog.engines import load_engine
from capacity.catalog.models import load_model
from capacity.errors import CapacityError
from capacity.files import package_data
from capacity.files.json_file import read_object
from capacity.importers.huggingface.model import import_config
from capacity.importers.huggingface.wrapped import TEXT, wrapper_types
from capacity.specs.deployment import AS_STORED, Deployment
from capacity.specs.engine import EngineSpec
from capacity.specs.model import ModelSpec
from capacity.validation.published_names import LeftOut
from capacity.validation.published_table import count, positive

_DEPLOYED = ("engine", "engine_version", "tensor_parallel", "block_tokens", "max_model_len", "max_batched_tokens")
_LIMITS = ("max_sequences", "memory_fraction", "prefix_caching", "draft", "parallel_slots", "ubatch", "kv_policy")
_INPUTS = tuple(
    f"input_{name}_bytes" for name in ("kv", "total", "budget", "free", "weight", "non_torch", "activation", "graph")
)
_OBSERVED = ("observed_value", "observed_unit", "observed_digits", "tolerance_rel", "source")
COLUMNS = (
    *("id", "use", "kind", "component", "model_config", "weight_format", "kv_format", "state_format"),
    *(*_DEPLOYED, *_LIMITS, *_INPUTS, "input_context_tokens", "input_tol_rel", *_OBSERVED),
)
GEOMETRY = "data/published/geometry"
BUDGETS = ("budget_bytes", "available_kv_bytes", "suggested_kv_bytes")
STAND_IN = "llama-3.1-8b"  # for figures that no model enters
_UNKNOWN_TYPE = re.compile(r"unknown model_type '([\w.-]{1,60})'")
_VERSION = re.compile(r"\d+(?:\.\d+){0,2}")

Row = Mapping[str, str]


@dataclass(frozen=True)
class MemoryCase:
    """A row that can be predicted: what was run, and how far a prediction may be off. [1]"""

    row: Row
    model: ModelSpec
    engine: EngineSpec
    deploy: Deployment
    measured: float
    tolerance: float

    def number(self, column: str) -> float:
        """A number of the row.

        Raises
        ------
        LeftOut
            If the row does not state it.
        """
        value = positive(self.row[column])
        if value is None:
            raise LeftOut(f"{column} not stated")
        return value

    def words(self, column: str) -> tuple[str, ...]:
        """The parts of a cell that holds several."""
        return tuple(word.strip() for word in self.row[column].split(";") if word.strip())


def memory_case(row: Row, folder: Path | None) -> MemoryCase:
    """The case of one row; models that are not shipped are looked for in ``folder``.

    Raises
    ------
    LeftOut
        If model, engine or a format is not known, or no figure was measured.
    """
    engine = _engine(row)
    model = (
        load_model(STAND_IN)
        if row["kind"] in BUDGETS
        else _model(row["model_config"], folder, whole=row["kind"] == "weights_bytes")
    )
    measured = positive(row["observed_value"])
    if measured is None:
        raise LeftOut("no figure measured")
    digits = count(row["observed_digits"])
    half_digit = 0.5 * 10.0**-digits / measured if digits is not None and digits > 0 else 0.0
    stated = (positive(row[column]) or 0.0 for column in ("tolerance_rel", "input_tol_rel"))
    return MemoryCase(row, model, engine, _deployment(row, engine, model), measured, max(half_digit, *stated))


def unit_size(row: Row) -> int:
    """Bytes, tokens or requests of one unit of what was measured.

    Raises
    ------
    LeftOut
        If the unit is not known.
    """
    return int(word_of("units", row["observed_unit"], "unit"))


def word_of(table: str, word: str, what: str) -> Any:
    """What a word of a table of published figures means.

    Raises
    ------
    LeftOut
        If the word is not known.
    """
    known = package_data.toml("data/published/memory_words.toml")[table]
    if word not in known:
        raise LeftOut(f"{what} {word[:30]!r} not known")
    return known[word]


def _engine(row: Row) -> EngineSpec:
    name = word_of("engines", row["engine"], "engine")
    version = _VERSION.search(row["engine_version"])
    engine = load_engine(name, version[0] if version else None)
    drafted = sum(int(number) for number in re.findall(r"^(?:mtp|eagle):(\d+)$", row["draft"]))
    pages = (2 if row["prefix_caching"] == "align" else 1) + drafted
    rules = engine.cache_rules.model_copy(update={"state_pages": pages})
    return engine.model_copy(update={"cache_rules": rules})


def _deployment(row: Row, engine: EngineSpec, model: ModelSpec) -> Deployment:
    weights = _weights(row) if row["kind"] == "weights_bytes" else {"weights": "bf16"}
    if weights["weights"] == AS_STORED and model.checkpoint is None:
        weights = {"weights": "bf16"}
    stated: dict[str, Any] = {
        "engine": engine.name,
        **weights,
        "kv_cache": word_of("caches", row["kv_format"].partition("+")[0], "cache format"),
        "state": word_of("states", row["state_format"], "state format"),
        "tensor_parallel": count(row["tensor_parallel"]) or 1,
        "prefill_chunk_tokens": count(row["max_batched_tokens"]) or count(row["ubatch"]),
        "max_sequences": count(row["parallel_slots"]) or count(row["max_sequences"]),
        "block_tokens": count(row["block_tokens"]),
        "memory_fraction": positive(row["memory_fraction"]),
    }
    return Deployment(**{name: value for name, value in stated.items() if value is not None})


def _weights(row: Row) -> dict[str, Any]:
    """The weight format of a row, with what its files hold in another."""
    word = word_of("weights", row["weight_format"], "weight format")
    return dict(word) if isinstance(word, Mapping) else {"weights": word}


def _model(name: str, folder: Path | None, *, whole: bool) -> ModelSpec:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,120}", name):
        raise LeftOut("model not stated")
    try:
        return _read_model(name, folder, whole=whole)
    except CapacityError as error:
        unknown = _UNKNOWN_TYPE.search(str(error))
        reason = f"type {unknown[1]!r} not read" if unknown else "its configuration is not read"
        raise LeftOut(f"model not shipped, and {reason}") from None


@lru_cache(maxsize=256)
def _read_model(name: str, folder: Path | None, *, whole: bool) -> ModelSpec:
    """A shipped model of this Hub id (``__`` for ``/``), or the configuration of this name in a folder.

    Unless weights are asked for, a configuration may leave out what no cache depends on, for which the type has
    defaults.
    """
    try:
        return load_model(name.replace("__", "/", 1))
    except CapacityError:
        path = (folder or package_data.folder(GEOMETRY)) / f"{name}.json"
    return load_model(path) if whole else import_config(_text_of(read_object(path)), name, str(path), nested=True)


def _text_of(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """The text part of a configuration of text and vision, which tables may hold flat: caches depend on no other."""
    facts = wrapper_types().get(str(data.get("model_type")))
    if facts is None:
        return data
    part = data.get(TEXT)
    return {**(part if isinstance(part, Mapping) else data), "model_type": facts["text_types"][0]}
