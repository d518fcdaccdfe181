"""Storage as AMD Quark describes it in ``quantization_config``.

The keys are those of its export (quark/torch/quantization/config/config.py, read through vLLM 0.11
model_executor/layers/quantization/quark/quark.py, which also says where the format of the cache stands).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from capacity.errors import SpecError
from capacity.importers.checkpoints.reading import Storage, check_keys, empty, inner, linear, only
from capacity.importers.checkpoints.stated import stated_cache

WEIGHTS = {
    ("fp8_e4m3", "per_tensor"): "fp8_e4m3",
    ("fp8_e4m3", "per_channel"): "fp8_row",
    ("int8", "per_channel"): "int8",
    ("fp4", "per_group"): "mxfp4",
    ("int4", "per_channel"): "int4_row",
}
ACTIVATIONS = {"fp8_e4m3": "fp8_e4m3", "int8": "int8", "fp4": "mxfp4"}


def quark(table: Mapping[str, Any], where: str) -> Storage:
    """One configuration for all linear layers that are not excluded.

    Raises
    ------
    SpecError
        For layers with a configuration of their own, or a type or scheme that no number format stands for.
    """
    shared = inner(table, "global_quant_config", where)
    place = f"{where}: global_quant_config"
    check_keys(shared, place, "quark_config")
    for key in ("output_tensors", "bias"):
        empty(shared, key, place)
    cached = _cached_layers(table, where)
    own = [name for name in inner(table, "layer_quant_config", where) if name not in cached]
    if own or table.get("layer_type_quant_config"):
        raise SpecError(f"{where}: layers with a configuration of their own are not supported: {', '.join(own)[:80]}")
    weight, activations = _args(shared, "weight", place), _args(shared, "input_tensors", place)
    scheme = weight.get("dtype"), weight.get("qscheme")
    if scheme not in WEIGHTS or (scheme[1] == "per_group" and weight.get("group_size") != 32):
        raise SpecError(f"{place}.weight: dtype {scheme[0]!r:.20}, qscheme {scheme[1]!r:.20} is not supported")
    only(activations, "dtype", tuple(ACTIVATIONS), f"{place}.input_tensors")
    return Storage(
        linear(WEIGHTS[scheme], where),
        ACTIVATIONS[activations["dtype"]] if activations.get("dtype") else None,
        _cache(table, cached, where) or stated_cache(table, where),
        skipped=tuple(_names(table, "exclude", where)),
    )


def _args(table: Mapping[str, Any], key: str, where: str) -> Mapping[str, Any]:
    if isinstance(table.get(key), list):
        raise SpecError(f"{where}.{key}: several steps are not supported")
    arguments = inner(table, key, where)
    check_keys(arguments, f"{where}.{key}", "quark_args")
    return arguments


def _names(table: Mapping[str, Any], key: str, where: str) -> list[str]:
    value = table.get(key) or []
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise SpecError(f"{where}: {key} must be a list of module names")
    return value


def _cached_layers(table: Mapping[str, Any], where: str) -> tuple[str, ...]:
    """Layers whose outputs go into the cache."""
    export = inner(table, "export", where)
    check_keys(export, f"{where}: export", "quark_export")
    only(export, "weight_format", ("real_quantized",), f"{where}: export")
    return (*_names(export, "kv_cache_group", f"{where}: export"), *inner(table, "kv_cache_quant_config", where))


def _cache(table: Mapping[str, Any], cached: tuple[str, ...], where: str) -> str | None:
    """The format of the outputs of those layers, which must be one."""
    own, other = inner(table, "layer_quant_config", where), inner(table, "kv_cache_quant_config", where)
    formats = {_output(own.get(name) or other.get(name), f"{where}: {name[:60]}") for name in cached}
    if len(formats) > 1:
        raise SpecError(f"{where}: keys and values in different formats are not supported")
    return next(iter(formats), None)


def _output(config: Any, where: str) -> str:
    outputs = config.get("output_tensors") if isinstance(config, Mapping) else None
    name = ACTIVATIONS.get(str(outputs.get("dtype"))) if isinstance(outputs, Mapping) else None
    if name is None:
        raise SpecError(f"{where}: the format of the cache is not understood; known: {', '.join(ACTIVATIONS)}")
    return name
