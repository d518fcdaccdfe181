"""How a checkpoint is stored, from ``quantization_config`` or a bare data type."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from capacity.errors import SpecError, unknown_name
from capacity.files.json_file import kind_of
from capacity.importers.checkpoints.stated import check_keys, stated_activations, stated_cache
from capacity.importers.checkpoints.unquantized import LayerModule, plain_layers
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
FP8_FORMATS = {"e4m3": "fp8_e4m3", "float8_e4m3fn": "fp8_e4m3", "e5m2": "fp8_e5m2", "float8_e5m2": "fp8_e5m2"}
# Layouts of compressed-tensors: the last three give each value a byte, so they are compact at 8 bits only.
PACKED = ("pack-quantized", "nvfp4-pack-quantized")
BYTE_EACH = ("int-quantized", "float-quantized", "naive-quantized")
IN_DEPLOYMENT = "or leave out quantization_config, and give weights and overrides in the deployment"


def checkpoint_of(
    config: Mapping[str, Any], where: str, modules: Sequence[LayerModule] = ()
) -> tuple[Checkpoint | None, tuple[str, ...]]:
    """The checkpoint that a configuration describes, and notes; None where it does not mention storage.

    Embedding, router and norms stay in the plain data type, and so do those of ``modules`` that the configuration
    excludes; the head does unless the configuration includes it.

    Raises
    ------
    SpecError
        For an unknown data type or method, a method with parameters that no number format stands for, an
        exclusion list that is not understood, or a head or router whose storage is not clear.
    """
    plain = _data_type(config, where)
    _require_dense(config, where)
    quantization, older = config.get("quantization_config"), config.get("compression_config")
    if quantization is not None and older is not None and quantization != older:
        raise SpecError(f"{where}: quantization_config and compression_config name the same fact and disagree")
    quantization = older if quantization is None else quantization
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
        raise SpecError(f"{where}: torch_dtype {old!r:.40} and dtype {new!r:.40} name the same fact and disagree")
    name = new if old is None else old
    if name is None or name == "auto":
        return None
    short = name.removeprefix("torch.") if isinstance(name, str) else name
    if not isinstance(short, str) or short not in DATA_TYPES:
        raise SpecError(f"{where}: torch_dtype {name!r:.40} is unknown; known: {', '.join(DATA_TYPES)}")
    return DATA_TYPES[short]


def _require_dense(table: Mapping[str, Any], where: str) -> None:
    """Refuse a file that leaves out zeros; one that stores all of its zeros is as large as any other."""
    sparsity = table.get("sparsity_config")
    if not isinstance(sparsity, Mapping | None):
        raise SpecError(f"{where}: sparsity_config must be an object, got a {kind_of(sparsity)}")
    _only(sparsity or {}, "format", ("dense",), f"{where}: sparsity_config")


def _only(table: Mapping[str, Any], key: str, allowed: Sequence[str], where: str) -> None:
    """Refuse a value of ``key`` that is none of ``allowed``; absent and null stand for the default of its writer."""
    value = table.get(key)
    if value is not None and value not in allowed:
        raise SpecError(f"{where}: {key} {value!r:.40} is not supported; supported: {', '.join(allowed)}")


def _flag(table: Mapping[str, Any], key: str, where: str, default: bool = False) -> bool:
    value = table.get(key)
    if value is not None and not isinstance(value, bool):
        raise SpecError(f"{where}: {key} must be true or false, got {value!r:.40}")
    return default if value is None else value


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
    _require_dense(table, where)
    parts, ignored = readers[method](table, where), check_keys(table, where)
    if method == "compressed-tensors":  # whose targets are all linear layers, not only those of the decoder
        parts |= dict.fromkeys(sorted({"lm_head", "router"} & {module.part for module in modules}), parts["attention"])
    overrides: list[StoredOverride] = []
    for part, layers in plain_layers(table, modules, where).items():
        if layers == {module.layer for module in modules if module.part == part}:
            parts.pop(part, None)
        elif part in parts:
            overrides += [StoredOverride(part=part, first=a, stop=b, format=plain) for a, b in _runs(layers)]
    _require_clear(parts, modules, where)
    stored = [f"{part} {name}" for part, name in parts.items()]
    stored += [f"{one.part} of layers {one.first} to {one.stop - 1} {plain}" for one in overrides]
    note = f"{method}: {', '.join([*stored, f'the rest {plain}'])}"
    checkpoint = Checkpoint(
        default=plain,
        parts=parts,
        overrides=tuple(overrides),
        activations=stated_activations(method, table, where),
        kv_cache=stated_cache(table, where),
        evidence="published",
    )
    return checkpoint, (note, *ignored)


def _require_clear(parts: Mapping[str, str], modules: Sequence[LayerModule], where: str) -> None:
    """Refuse a quantised head or router where libraries disagree on what is then stored."""
    head = next((module for module in modules if module.part == "lm_head"), None)
    if "lm_head" in parts and (head is None or head.tied):
        reason = "a model whose head is not known here" if head is None else "a head that is tied to the embedding"
        raise SpecError(
            f"{where}: lm_head is quantised, which is not supported for {reason}; leave it out, {IN_DEPLOYMENT}"
        )
    if "router" in parts:
        router = next(module for module in modules if module.part == "router")
        raise SpecError(
            f"{where}: {router.name} is not listed in `ignore`, and library versions disagree on whether it is then "
            f"quantised; list all routers in `ignore`, {IN_DEPLOYMENT}"
        )


def _runs(layers: Iterable[int]) -> list[tuple[int, int]]:
    """Layers as ranges, each from its first layer to one past its last.

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
    _only(table, "fmt", tuple(FP8_FORMATS), where)
    name = FP8_FORMATS[table.get("fmt") or "e4m3"]
    if block is None:
        return _linear(name, where)
    if block != [128, 128]:
        raise SpecError(f"{where}: weight_block_size {block!r:.40} is not supported; supported: [128, 128] or none")
    if name != "fp8_e4m3":
        raise SpecError(f"{where}: fmt {table['fmt']!r} with weight_block_size is not supported; supported: e4m3")
    return _linear("fp8_block128", where)


def _fp8_by_row(table: Mapping[str, Any], where: str) -> dict[str, str]:
    return _linear("fp8_row", where)


def _mxfp4(table: Mapping[str, Any], where: str) -> dict[str, str]:
    """Only experts are stored in mxfp4: a file must exclude attention from conversion."""
    kept = table.get("modules_to_not_convert")
    if kept is not None and (not isinstance(kept, list) or not any("self_attn" in str(name) for name in kept)):
        raise SpecError(f"{where}: mxfp4 is supported for experts only, but self_attn is not in modules_to_not_convert")
    return {"experts": "mxfp4"}


def _grouped(table: Mapping[str, Any], where: str) -> dict[str, str]:
    """Symmetric and asymmetric files have the same size: zero points are stored in both."""
    bits, group = table.get("bits", table.get("w_bit")), table.get("group_size", table.get("q_group_size"))
    if group is None:
        raise SpecError(f"{where}: group_size is missing; -1 is one scale per row; libraries disagree on the default")
    name = _BY_ROW.get(str(bits), "") if group == -1 else f"int{bits}_g{group}"
    if name not in number_formats():
        raise SpecError(f"{where}: {bits!r:.10} bits with group_size {group!r:.10} is not a known number format")
    return _linear(name, where) | ({"lm_head": name} if _flag(table, "lm_head", where) else {})


def _bitsandbytes(table: Mapping[str, Any], where: str) -> dict[str, str]:
    eight, four = (_flag(table, f"load_in_{bits}bit", where) for bits in (8, 4))
    if eight and four:
        raise SpecError(f"{where}: load_in_4bit and load_in_8bit are both true; allowed is one of them")
    for key in ("bnb_4bit_use_double_quant",) if four else ("llm_int8_has_fp16_weight",):
        if _flag(table, key, where):
            raise SpecError(f"{where}: {key} true is not supported; supported: false, {IN_DEPLOYMENT}")
    if eight:
        return _linear("int8", where)
    kind = table.get("bnb_4bit_quant_type", "fp4")
    if not four or kind != "nf4":
        raise SpecError(
            f"{where}: bitsandbytes is supported as load_in_8bit, or load_in_4bit with nf4, got {kind!r:.20}"
        )
    return _linear("nf4", where)


def _compressed_tensors(table: Mapping[str, Any], where: str) -> dict[str, str]:
    groups = table.get("config_groups")
    if not isinstance(groups, Mapping) or not groups:
        raise SpecError(f"{where}: config_groups must be an object with at least one group")
    shared = table.get("format")
    names = {_compressed_group(group, shared, f"{where}: config_groups.{key}") for key, group in groups.items()}
    if len(names) != 1:
        raise SpecError(f"{where}: groups of different formats are not supported: {', '.join(sorted(names))}")
    return _linear(names.pop(), where)


def _compressed_group(group: Any, shared_format: Any, where: str) -> str:
    weights = group.get("weights") if isinstance(group, Mapping) else None
    if not isinstance(weights, Mapping):
        raise SpecError(f"{where}: weights must be an object")
    bits, kind, size = weights.get("num_bits"), weights.get("type"), weights.get("group_size")
    strategy = weights.get("strategy")
    layout = {"format": group.get("format") or shared_format}
    _only(layout, "format", PACKED + (BYTE_EACH if bits == 8 else ()), f"{where}: weights of {bits!r:.10} bits")
    if kind == "float":
        _require_group(weights, where)
        known = {"8 tensor": "fp8_e4m3", "8 channel": "fp8_row", "8 block": "fp8_block128", "4 tensor_group": "nvfp4"}
        if f"{bits} {strategy}" in known:
            return known[f"{bits} {strategy}"]
    elif kind == "int" and strategy in ("channel", None) and size is None and str(bits) in _BY_ROW:
        return _BY_ROW[str(bits)]
    elif kind == "int" and size is not None:
        plain = f"int{bits}_g{size}"
        symmetric = f"{plain}_symmetric"
        return symmetric if _flag(weights, "symmetric", where, True) and symmetric in number_formats() else plain
    raise SpecError(
        f"{where}: weights of {bits!r:.10} bits, type {kind!r:.20}, strategy {strategy!r:.20} are not supported"
    )


def _require_group(weights: Mapping[str, Any], where: str) -> None:
    """Refuse floats whose scale is shared by a block or group that no known format has."""
    size, block = weights.get("group_size"), weights.get("block_structure")
    if weights.get("strategy") == "block" and block not in ([128, 128], "128x128"):
        raise SpecError(f"{where}: block_structure {block!r:.40} is not supported; supported: [128, 128]")
    if weights.get("strategy") == "tensor_group" and size != 16:
        raise SpecError(f"{where}: tensor_group with group_size {size!r:.40} is not supported; supported: 16")


def _modelopt(table: Mapping[str, Any], where: str) -> dict[str, str]:
    names = {"FP8": "fp8_e4m3", "NVFP4": "nvfp4"}
    algorithm = table.get("quant_algo")
    if not isinstance(algorithm, str) or algorithm not in names:
        raise SpecError(f"{where}: {unknown_name('quant_algo', str(algorithm), names)}")
    size = table.get("group_size")
    if algorithm == "NVFP4" and size not in (None, 16):
        raise SpecError(f"{where}: NVFP4 with group_size {size!r:.40} is not supported; supported: 16")
    return _linear(names[algorithm], where)
