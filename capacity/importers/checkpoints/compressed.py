"""Storage in groups of layers, as compressed-tensors and ModelOpt describe it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from capacity.errors import SpecError, unknown_name
from capacity.importers.checkpoints.reading import Storage, check_keys, empty, flag, inner, linear, only
from capacity.importers.checkpoints.stated import group_activations, stated_cache
from capacity.units import number_formats

# Layouts of compressed-tensors: the last three give each value a byte, so they are compact at 8 bits only.
PACKED = ("pack-quantized", "nvfp4-pack-quantized", "mxfp4-pack-quantized")
BYTE_EACH = ("int-quantized", "float-quantized", "naive-quantized")
BY_ROW = {"4": "int4_row", "8": "int8"}
FLOATS = {
    "8 tensor": "fp8_e4m3",
    "8 channel": "fp8_row",
    "8 block": "fp8_block128",
    "4 tensor_group": "nvfp4",
    "4 group": "mxfp4",
}
OF_MODELOPT = {  # weights and activations of an algorithm; NVIDIA ModelOpt, hf_quant_config.json
    "FP8": ("fp8_e4m3", "fp8_e4m3"),
    "FP8_PER_CHANNEL_PER_TOKEN": ("fp8_row", "fp8_e4m3"),
    "NVFP4": ("nvfp4", "nvfp4"),
    "W8A8_SQ_PER_CHANNEL": ("int8", "int8"),
}


def compressed_tensors(table: Mapping[str, Any], where: str) -> Storage:
    """Groups of one format for all linear layers that are not ignored.

    Raises
    ------
    SpecError
        For a layout, or arguments of weights or activations, that no number format stands for.
    """
    groups = _groups(table, where)
    if not groups:
        raise SpecError(f"{where}: config_groups must be an object with at least one group")
    empty(table, "transform_config", where)
    shared = table.get("format")
    names = {_group(group, shared, f"{where}: config_groups.{key}") for key, group in groups.items()}
    if len(names) != 1:
        raise SpecError(f"{where}: groups of different formats are not supported: {', '.join(sorted(names))}")
    return Storage(linear(names.pop(), where), group_activations(groups, where), stated_cache(table, where))


def _groups(table: Mapping[str, Any], where: str) -> Mapping[str, Mapping[str, Any]]:
    groups = inner(table, "config_groups", where)
    for key, group in groups.items():
        if not isinstance(group, Mapping) or not isinstance(group.get("weights"), Mapping):
            raise SpecError(f"{where}: config_groups.{key}: weights must be an object")
        check_keys(group, f"{where}: config_groups.{key}", "group")
        check_keys(group["weights"], f"{where}: config_groups.{key}.weights", "args")
        empty(group, "output_activations", f"{where}: config_groups.{key}")
    return groups


def _group(group: Mapping[str, Any], shared_format: Any, where: str) -> str:
    weights = group["weights"]
    bits, kind, size = weights.get("num_bits"), weights.get("type"), weights.get("group_size")
    strategy = weights.get("strategy")
    layout = {"format": group.get("format") or shared_format}
    only(layout, "format", PACKED + (BYTE_EACH if bits == 8 else ()), f"{where}: weights of {bits!r:.10} bits")
    if kind == "float":
        _require_group(weights, where)
        if f"{bits} {strategy}" in FLOATS:
            return FLOATS[f"{bits} {strategy}"]
    elif kind == "int" and strategy in ("channel", None) and size is None and str(bits) in BY_ROW:
        return BY_ROW[str(bits)]
    elif kind == "int" and size is not None:
        plain = f"int{bits}_g{size}"
        symmetric = f"{plain}_symmetric"
        return symmetric if flag(weights, "symmetric", where, True) and symmetric in number_formats() else plain
    raise SpecError(
        f"{where}: weights of {bits!r:.10} bits, type {kind!r:.20}, strategy {strategy!r:.20} are not supported"
    )


def _require_group(weights: Mapping[str, Any], where: str) -> None:
    """Refuse floats whose scale is shared by a block or group that no known format has."""
    size, block, strategy = weights.get("group_size"), weights.get("block_structure"), weights.get("strategy")
    if strategy == "block" and block not in ([128, 128], "128x128"):
        raise SpecError(f"{where}: block_structure {block!r:.40} is not supported; supported: [128, 128]")
    if strategy == "tensor_group" and size != 16:
        raise SpecError(f"{where}: tensor_group with group_size {size!r:.40} is not supported; supported: 16")
    if strategy == "group" and (weights.get("num_bits"), size) == (4, 32):
        only(weights, "scale_dtype", ("torch.uint8",), where)
    elif strategy == "group":
        raise SpecError(f"{where}: float groups of {size!r:.40} values are not supported; supported: 32 at 4 bits")


def modelopt(table: Mapping[str, Any], where: str) -> Storage:
    """One algorithm for all linear layers that are not excluded; groups, where listed, must say the same.

    Raises
    ------
    SpecError
        For an algorithm that is not known, or one that its own groups contradict.
    """
    algorithm = table.get("quant_algo")
    if not isinstance(algorithm, str) or algorithm not in OF_MODELOPT:
        raise SpecError(f"{where}: {unknown_name('quant_algo', str(algorithm), OF_MODELOPT)}")
    empty(table, "quantized_layers", where)
    only(table, "moe_quant_algo", (algorithm,), where)
    size = table.get("group_size")
    if algorithm == "NVFP4" and size not in (None, 16):
        raise SpecError(f"{where}: NVFP4 with group_size {size!r:.40} is not supported; supported: 16")
    name, activations = OF_MODELOPT[algorithm]
    for key, group in _groups(table, where).items():
        place = f"{where}: config_groups.{key}"
        stated = (group["weights"].get("num_bits"), group["weights"].get("type"))
        if stated != ((4, "float") if name == "nvfp4" else (8, "int" if name == "int8" else "float")):
            raise SpecError(f"{place}: weights of {stated[0]!r:.10} bits, {stated[1]!r:.20}, contradict {algorithm}")
        activations = group_activations({key: group}, where) or ""
    return Storage(linear(name, where), activations or None, stated_cache(table, where))
