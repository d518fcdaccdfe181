"""The formats of activations and of the key-value cache, in the words of compressed-tensors, ModelOpt and vLLM."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from capacity.errors import SpecError
from capacity.files.json_file import kind_of
from capacity.importers.checkpoints.reading import check_keys

CACHES = {"fp8": "fp8_e4m3", "fp8_e4m3": "fp8_e4m3", "fp8_e5m2": "fp8_e5m2", "int8": "int8", "nvfp4": "nvfp4"}
EIGHT_BITS = {"float": "fp8_e4m3", "int": "int8"}
FOUR_BIT_FLOATS = {None: "nvfp4", 16: "nvfp4", 32: "mxfp4"}  # by the values that share a scale


def stated_cache(table: Mapping[str, Any], where: str) -> str | None:
    """The format in which the checkpoint says that keys and values are kept; None where it says nothing.

    Raises
    ------
    SpecError
        If what it says is not understood, or two keys disagree.
    """
    formats = {}
    for key in ("kv_cache_scheme", "kv_cache_quant_algo", "kv_cache_quant_method"):
        if table.get(key) is not None:
            formats[key] = _scheme(table[key], f"{where}: {key}")
    if len(set(formats.values())) > 1:
        raise SpecError(f"{where}: {' and '.join(formats)} name the same fact and disagree")
    return next(iter(formats.values()), None)


def _scheme(value: Any, where: str) -> str:
    if isinstance(value, str):
        name = CACHES.get(value.lower())
    elif isinstance(value, Mapping):
        check_keys(value, where, "args")
        name = args_format(value)
    else:
        raise SpecError(f"{where} must be an object or a name, got a {kind_of(value)}")
    if name is None:
        raise SpecError(f"{where} {value!r:.60} is not understood; known: {', '.join(CACHES)}")
    return name


def args_format(value: Mapping[str, Any]) -> str | None:
    """The format of activations or of a cache that the arguments of a quantiser describe; None where it is not known.

    >>> args_format({"num_bits": 8, "type": "float"}), args_format({"num_bits": 4, "type": "float", "group_size": 32})
    ('fp8_e4m3', 'mxfp4')
    """
    bits, kind, size = value.get("num_bits"), value.get("type", "int"), value.get("group_size")
    if bits == 8 and isinstance(kind, str):
        return EIGHT_BITS.get(kind)
    is_float = bits == 4 and kind == "float" and (size is None or isinstance(size, int))
    return FOUR_BIT_FLOATS.get(size) if is_float else None


def group_activations(groups: Mapping[str, Any], where: str) -> str | None:
    """The format of the activations that all groups of layers state; None for weights alone.

    Raises
    ------
    SpecError
        If a format is not known, or groups disagree.
    """
    formats = {_input(group, f"{where}: config_groups.{key}") for key, group in groups.items()}
    if len(formats) > 1:
        raise SpecError(f"{where}: groups whose activations have different formats are not supported")
    return next(iter(formats), None)


def _input(group: Mapping[str, Any], where: str) -> str | None:
    value = group.get("input_activations")
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise SpecError(f"{where}.input_activations must be an object, got a {kind_of(value)}")
    check_keys(value, f"{where}.input_activations", "args")
    name = args_format(value)
    if name is None:
        kind = f"{value.get('type')!r:.20} of {value.get('num_bits')!r:.10} bits"
        raise SpecError(f"{where}.input_activations: {kind} is not supported")
    return name
