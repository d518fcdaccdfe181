"""How a checkpoint is stored, from ``quantization_config`` or a bare data type."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from capacity.errors import SpecError, unknown_name
from capacity.importers.hf.layer_modules import LayerModule
from capacity.importers.json_file import kind_of
from capacity.importers.unquantized import plain_layers
from capacity.specs.checkpoint import Checkpoint, StoredOverride
from capacity.units import number_formats

DATA_TYPES = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "float32": "fp32",
    "float": "fp32",
    "float8_e4m3fn": "fp8_e4m3",
    "float8_e5m2": "fp8_e5m2",
}
_BY_ROW = {"4": "int4_row", "8": "int8"}
LINEAR_PARTS = ("attention", "mlp", "experts")


def checkpoint_of(
    config: Mapping[str, Any], where: str, modules: Sequence[LayerModule] = ()
) -> tuple[Checkpoint | None, tuple[str, ...]]:
    """The checkpoint that a configuration describes, and notes; None where it says nothing of storage.

    Embedding, head, router and norms stay in the plain data type, and so do those of ``modules`` that the
    configuration leaves alone.

    Raises
    ------
    SpecError
        For an unknown data type or method, a method with parameters that no number format stands for, or a list of
        modules left alone that is not understood.
    """
    plain = _data_type(config, where)
    quantization = config.get("quantization_config")
    if quantization is None:
        quantization = config.get("compression_config")
    if quantization is None:
        if plain is None:
            return None, ()
        note = f"stored format assumed {plain} from the data type of the configuration"
        return Checkpoint(default=plain, evidence="assumed"), (note,)
    if not isinstance(quantization, Mapping):
        raise SpecError(f"{where}: quantization_config must be an object, got a {kind_of(quantization)}")
    return _quantized(quantization, plain or "bf16", modules, f"{where}: quantization_config")


def _data_type(config: Mapping[str, Any], where: str) -> str | None:
    old, new = config.get("torch_dtype"), config.get("dtype")
    if old is not None and new is not None and old != new:
        raise SpecError(f"{where}: torch_dtype {old!r:.40} and dtype {new!r:.40} name one fact and disagree")
    name = new if old is None else old
    if name is None or name == "auto":
        return None
    short = name.removeprefix("torch.") if isinstance(name, str) else name
    if not isinstance(short, str) or short not in DATA_TYPES:
        raise SpecError(f"{where}: torch_dtype {name!r:.40} is unknown; known: {', '.join(DATA_TYPES)}")
    return DATA_TYPES[short]


def _quantized(
    table: Mapping[str, Any], plain: str, modules: Sequence[LayerModule], where: str
) -> tuple[Checkpoint, tuple[str, ...]]:
    if isinstance(table.get("quantization"), Mapping):  # the form of ModelOpt's hf_quant_config.json
        table = {**table, **table["quantization"]}
    method = table.get("quant_method") or _method_without_name(table)
    readers = {
        "fp8": _fp8,
        "fbgemm_fp8": _fp8_by_row,
        "mxfp4": _mxfp4,
        "awq": _grouped,
        "gptq": _grouped,
        "bitsandbytes": _bitsandbytes,
        "compressed-tensors": _compressed_tensors,
        "modelopt": _modelopt,
    }
    if not isinstance(method, str) or method not in readers:
        raise SpecError(f"{where}: {unknown_name('quant_method', str(method), readers)}")
    parts = readers[method](table, where)
    overrides: list[StoredOverride] = []
    for part, layers in plain_layers(table, modules, where).items():
        if layers == {module.layer for module in modules if module.part == part}:
            parts.pop(part, None)
        elif part in parts:
            overrides += [StoredOverride(part=part, first=a, stop=b, format=plain) for a, b in _runs(layers)]
    stored = [f"{part} {name}" for part, name in parts.items()]
    stored += [f"{one.part} of layers {one.first} to {one.stop - 1} {plain}" for one in overrides]
    note = f"{method}: {', '.join([*stored, f'the rest {plain}'])}"
    return Checkpoint(default=plain, parts=parts, overrides=tuple(overrides), evidence="published"), (note,)


def _runs(layers: Iterable[int]) -> list[tuple[int, int]]:
    """Layers in runs, each from its first to before its last.

    >>> _runs({0, 1, 2, 5})
    [(0, 3), (5, 6)]
    """
    found: list[tuple[int, int]] = []
    for layer in sorted(layers):
        if found and found[-1][1] == layer:
            found[-1] = (found[-1][0], layer + 1)
        else:
            found.append((layer, layer + 1))
    return found


def _method_without_name(table: Mapping[str, Any]) -> str | None:
    if table.get("load_in_4bit") or table.get("load_in_8bit"):
        return "bitsandbytes"
    return "modelopt" if "quant_algo" in table else None


def _linear(name: str, where: str) -> dict[str, str]:
    if name not in number_formats():
        raise SpecError(f"{where}: {unknown_name('number format', name, number_formats())}")
    return dict.fromkeys(LINEAR_PARTS, name)


def _fp8(table: Mapping[str, Any], where: str) -> dict[str, str]:
    block = table.get("weight_block_size")
    if block is None:
        return _linear("fp8_e5m2" if table.get("fmt") == "e5m2" else "fp8_e4m3", where)
    if block != [128, 128]:
        raise SpecError(f"{where}: weight_block_size {block!r:.40} is not supported; supported: [128, 128] or none")
    return _linear("fp8_block128", where)


def _fp8_by_row(table: Mapping[str, Any], where: str) -> dict[str, str]:
    return _linear("fp8_row", where)


def _mxfp4(table: Mapping[str, Any], where: str) -> dict[str, str]:
    """Only experts are stored in mxfp4; a file must say that attention is left alone, or it is not this method."""
    kept = table.get("modules_to_not_convert")
    if kept is not None and (not isinstance(kept, list) or not any("self_attn" in str(name) for name in kept)):
        raise SpecError(f"{where}: mxfp4 is supported for experts only, but self_attn is not in modules_to_not_convert")
    return {"experts": "mxfp4"}


def _grouped(table: Mapping[str, Any], where: str) -> dict[str, str]:
    """A symmetric file stores its zeros all the same, so both kinds have one size."""
    bits, group = table.get("bits", table.get("w_bit")), table.get("group_size", table.get("q_group_size"))
    if group is None:
        raise SpecError(f"{where}: group_size is missing; -1 is one scale a row, and writers disagree on the default")
    name = _BY_ROW.get(str(bits), "") if group == -1 else f"int{bits}_g{group}"
    if name not in number_formats():
        raise SpecError(f"{where}: {bits!r:.10} bits with group_size {group!r:.10} is not a known number format")
    return _linear(name, where)


def _bitsandbytes(table: Mapping[str, Any], where: str) -> dict[str, str]:
    if table.get("load_in_8bit"):
        return _linear("int8", where)
    kind = table.get("bnb_4bit_quant_type", "fp4")
    if not table.get("load_in_4bit") or kind != "nf4":
        raise SpecError(
            f"{where}: bitsandbytes is supported as load_in_8bit, or load_in_4bit with nf4, got {kind!r:.20}"
        )
    return _linear("nf4", where)


def _compressed_tensors(table: Mapping[str, Any], where: str) -> dict[str, str]:
    groups = table.get("config_groups")
    if not isinstance(groups, Mapping) or not groups:
        raise SpecError(f"{where}: config_groups must be an object with at least one group")
    names = {_compressed_group(group, f"{where}: config_groups.{key}") for key, group in groups.items()}
    if len(names) != 1:
        raise SpecError(f"{where}: groups of different formats are not supported: {', '.join(sorted(names))}")
    return _linear(names.pop(), where)


def _compressed_group(group: Any, where: str) -> str:
    weights = group.get("weights") if isinstance(group, Mapping) else None
    if not isinstance(weights, Mapping):
        raise SpecError(f"{where}: weights must be an object")
    bits, kind, size = weights.get("num_bits"), weights.get("type"), weights.get("group_size")
    strategy = weights.get("strategy")
    if kind == "float":
        known: dict[Any, str] = {(8, "tensor"): "fp8_e4m3", (8, "channel"): "fp8_row", (8, "block"): "fp8_block128"}
        known |= {(4, "tensor_group"): "nvfp4"}
        if (bits, strategy) in known:
            return known[bits, strategy]
    elif kind == "int" and strategy in ("channel", None) and size is None and str(bits) in _BY_ROW:
        return _BY_ROW[str(bits)]
    elif kind == "int" and size is not None:
        plain = f"int{bits}_g{size}"
        symmetric = f"{plain}_symmetric"
        return symmetric if weights.get("symmetric", True) and symmetric in number_formats() else plain
    raise SpecError(
        f"{where}: weights of {bits!r:.10} bits, type {kind!r:.20}, strategy {strategy!r:.20} are not supported"
    )


def _modelopt(table: Mapping[str, Any], where: str) -> dict[str, str]:
    names = {"FP8": "fp8_e4m3", "NVFP4": "nvfp4"}
    algorithm = table.get("quant_algo")
    if algorithm not in names:
        raise SpecError(f"{where}: {unknown_name('quant_algo', str(algorithm), names)}")
    return _linear(names[algorithm], where)
