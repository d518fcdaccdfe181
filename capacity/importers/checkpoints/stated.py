"""What a ``quantization_config`` states of activations and of the key-value cache, and the keys that it may hold.

A storage type states no activations. Weight-only methods (AWQ, GPTQ, bitsandbytes, mxfp4) have none to state.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from capacity.errors import SpecError
from capacity.files import package_data
from capacity.files.json_file import kind_of

CACHES = {"fp8": "fp8_e4m3", "fp8_e4m3": "fp8_e4m3", "fp8_e5m2": "fp8_e5m2", "int8": "int8", "nvfp4": "nvfp4"}
BY_BITS = {("float", 8): "fp8_e4m3", ("int", 8): "int8", ("float", 4): "nvfp4"}
OF_MODELOPT = {"FP8": "fp8_e4m3", "NVFP4": "nvfp4"}
LEAVE_OUT = "leave it out and give --kv-cache"


def stated_cache(table: Mapping[str, Any], where: str) -> str | None:
    """The format in which the checkpoint says that keys and values are kept; None where it says nothing.

    Raises
    ------
    SpecError
        If what it says is not understood, or two keys disagree.
    """
    found = {}
    for key in ("kv_cache_scheme", "kv_cache_quant_algo", "kv_cache_quant_method"):
        value = table.get(key)
        if value is not None:
            found[key] = _scheme(value, f"{where}: {key}")
    if len(set(found.values())) > 1:
        raise SpecError(f"{where}: {' and '.join(found)} name the same fact and disagree")
    return next(iter(found.values()), None)


def _scheme(value: Any, where: str) -> str:
    if isinstance(value, str):
        name = CACHES.get(value.lower())
    elif isinstance(value, Mapping):
        bits = value.get("num_bits")
        name = BY_BITS.get((str(value.get("type")), bits)) if type(bits) is int else None
    else:
        raise SpecError(f"{where} must be an object or a name, got a {kind_of(value)}")
    if name is None:
        raise SpecError(f"{where} {value!r:.60} is not understood; known: {', '.join(CACHES)}; {LEAVE_OUT}")
    return name


def stated_activations(method: str, table: Mapping[str, Any], where: str) -> str | None:
    """The format in which the checkpoint says that activations are multiplied; None for weights alone.

    Raises
    ------
    SpecError
        If what it says is not understood, or groups of layers disagree.
    """
    if method == "fp8" and table.get("activation_scheme") is not None:
        scheme = table["activation_scheme"]
        if scheme not in ("dynamic", "static"):
            raise SpecError(f"{where}: activation_scheme {scheme!r:.40} is not supported; supported: dynamic, static")
        return "fp8_e4m3"
    if method == "fbgemm_fp8":
        return "fp8_e4m3"
    if method == "modelopt" and isinstance(table.get("quant_algo"), str):
        return OF_MODELOPT.get(table["quant_algo"])
    return _of_groups(table, where) if method == "compressed-tensors" else None


def _of_groups(table: Mapping[str, Any], where: str) -> str | None:
    groups = table.get("config_groups")
    stated = {
        _of_group(group.get("input_activations"), f"{where}: config_groups.{key}.input_activations")
        for key, group in (groups.items() if isinstance(groups, Mapping) else ())
        if isinstance(group, Mapping)
    }
    if len(stated) > 1:
        raise SpecError(f"{where}: groups whose activations have different formats are not supported")
    return next(iter(stated), None)


def _of_group(value: Any, where: str) -> str | None:
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise SpecError(f"{where} must be an object, got a {kind_of(value)}")
    bits = value.get("num_bits")
    name = BY_BITS.get((str(value.get("type")), bits)) if type(bits) is int else None
    if name is None:
        kind = f"{value.get('type')!r:.20} of {bits!r:.10} bits"
        raise SpecError(f"{where}: {kind} is not supported; leave quantization_config out and give --weights")
    return name


@cache
def _keys() -> dict[str, tuple[str, ...]]:
    return {name: tuple(keys) for name, keys in package_data.toml("data/quantization_keys.toml").items()}


def check_keys(table: Mapping[str, Any], where: str) -> tuple[str, ...]:
    """Notes on keys that carry no size.

    Raises
    ------
    SpecError
        For an unknown key whose name suggests that it says how something is stored.
    """
    known = _keys()
    unknown = [key for key in table if key not in known["read"] and key not in known["no_size"]]
    for key in unknown:
        if table[key] is not None and any(stem in str(key).lower() for stem in known["stems"]):
            raise SpecError(
                f"{where}: {str(key)[:60]} = {table[key]!r:.40} is not understood and may say how something is stored; "
                "leave quantization_config out and give --weights and --kv-cache"
            )
    return (f"ignored keys of quantization_config: {', '.join(map(str, sorted(unknown)[:20]))}",) if unknown else ()
