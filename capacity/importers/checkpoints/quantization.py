"""How a checkpoint is stored, from ``quantization_config`` or a bare data type."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from capacity.errors import SpecError, unknown_name
from capacity.files.json_file import kind_of
from capacity.importers.checkpoints.compressed import compressed_tensors, modelopt
from capacity.importers.checkpoints.methods import auto_round, bitsandbytes, fp8, fp8_by_row, grouped, mxfp4
from capacity.importers.checkpoints.mlx import mlx
from capacity.importers.checkpoints.quark import quark
from capacity.importers.checkpoints.reading import Storage, check_keys, inner, only, unread_method
from capacity.importers.checkpoints.unquantized import LayerModule, plain_layers, runs
from capacity.specs.checkpoint import Checkpoint, StoredOverride

TABLE_KEYS = ("quantization_config", "compression_config", "quantization")
DATA_TYPES = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "float32": "fp32",
    "float": "fp32",
    "float8_e4m3fn": "fp8_e4m3",
    "float8_e5m2": "fp8_e5m2",
}
ADVICE = "leave {} out and give --weights, with --activations, --kv-cache and --override where they differ"
Reader = Callable[[Mapping[str, Any], str], Storage]
READERS: dict[str, Reader] = {
    "fp8": fp8,
    "fbgemm_fp8": fp8_by_row,
    "mxfp4": mxfp4,
    "awq": grouped,
    "gptq": grouped,
    "auto-round": auto_round,
    "bitsandbytes": bitsandbytes,
    "compressed-tensors": compressed_tensors,
    "modelopt": modelopt,
    "quark": quark,
}
OTHER_NAMES = {"modelopt_fp4": "modelopt", "intel/auto-round": "auto-round", "auto_round": "auto-round"}


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
    require_dense(config, where)
    key, table = _quantization_table(config, where)
    if table is None:
        if plain is None:
            return None, ()
        note = f"stored format assumed {plain} from the data type of the configuration"
        return Checkpoint(default=plain, evidence="assumed"), (note,)
    place = f"{where}: {key}"
    try:
        if not isinstance(table, Mapping):
            raise SpecError(f"{place} must be an object, got a {kind_of(table)}")
        return _quantized(table, plain or "bf16", modules, place)
    except SpecError as error:
        raise SpecError(f"{error}; {ADVICE.format(key)}") from None


def _quantization_table(config: Mapping[str, Any], where: str) -> tuple[str, Any]:
    """The key and the value that describe quantised storage; the names of one fact must agree."""
    tables = {key: config[key] for key in TABLE_KEYS if config.get(key) is not None}
    if any(value != next(iter(tables.values())) for value in tables.values()):
        raise SpecError(f"{where}: {' and '.join(tables)} name the same fact and disagree")
    return next(iter(tables.items()), ("quantization_config", None))


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


def require_dense(table: Mapping[str, Any], where: str) -> None:
    """Refuse a file that leaves out zeros; one that stores all of its zeros is as large as any other.

    Raises
    ------
    SpecError
        For a sparse layout.
    """
    sparsity = inner(table, "sparsity_config", where)
    check_keys(sparsity, f"{where}: sparsity_config", "sparsity")
    only(sparsity, "format", ("dense",), f"{where}: sparsity_config")


def _quantized(
    table: Mapping[str, Any], plain: str, modules: Sequence[LayerModule], where: str
) -> tuple[Checkpoint, tuple[str, ...]]:
    if isinstance(table.get("quantization"), Mapping):  # the form of ModelOpt's hf_quant_config.json
        table = {**table, **table["quantization"]}
    method = _method(table, where)
    if method == "mlx":
        storage = mlx(table, where, modules, plain)
    else:
        require_dense(table, where)
        storage = READERS[method](table, where)
        storage = replace(storage, notes=check_keys(table, where, "any", method))
    parts, overrides = dict(storage.parts), list(storage.overrides)
    if method == "compressed-tensors":  # whose targets are all linear layers, not only those of the decoder
        parts |= dict.fromkeys(sorted({"lm_head", "router"} & {module.part for module in modules}), parts["attention"])
    for part, layers in plain_layers(table, modules, where, storage.skipped).items():
        if layers == {module.layer for module in modules if module.part == part}:
            parts.pop(part, None)
        elif part in parts:
            overrides += [StoredOverride(part=part, first=a, stop=b, format=plain) for a, b in runs(layers)]
    if method != "mlx":
        _require_clear(parts, modules, where)
    if modules and all(module.part != "experts" for module in modules):  # a method names all that it would quantise
        parts.pop("experts", None)
    checkpoint = Checkpoint(
        default=plain,
        parts=parts,
        overrides=tuple(overrides),
        activations=storage.activations,
        kv_cache=storage.cache,
        evidence="published",
    )
    return checkpoint, (_described(method, checkpoint), *storage.notes)


def _method(table: Mapping[str, Any], where: str) -> str:
    """The method, under one name; files of bitsandbytes, ModelOpt and MLX may leave it out."""
    method = table.get("quant_method")
    if method is None and (table.get("load_in_4bit") or table.get("load_in_8bit")):
        return "bitsandbytes"
    if method is None and "quant_algo" in table:
        return "modelopt"
    if method is None and "bits" in table and "group_size" in table:
        return "mlx"
    name = OTHER_NAMES.get(method, method) if isinstance(method, str) else method
    if not isinstance(name, str) or name not in READERS:
        hint = unread_method(str(method))
        raise SpecError(f"{where}: {hint or unknown_name('quant_method', str(method), READERS)}")
    return name


def _described(method: str, checkpoint: Checkpoint) -> str:
    stored = [f"{part} {name}" for part, name in checkpoint.parts.items()]
    stored += [f"{one.part} of layers {one.first} to {one.stop - 1} {one.format}" for one in checkpoint.overrides]
    other_formats = {"activations": checkpoint.activations, "KV cache": checkpoint.kv_cache}
    stored += [f"{what} {name}" for what, name in other_formats.items() if name]
    return f"{method}: {', '.join([*stored, f'the rest {checkpoint.default}'])}"


def _require_clear(parts: Mapping[str, str], modules: Sequence[LayerModule], where: str) -> None:
    """Refuse a quantised head or router where libraries disagree on what is then stored."""
    head = next((module for module in modules if module.part == "lm_head"), None)
    if "lm_head" in parts and (head is None or head.tied):
        reason = "a model whose head is not known here" if head is None else "a head that is tied to the embedding"
        raise SpecError(
            f"{where}: lm_head is quantised, which is not supported for {reason}; list it among the ignored modules"
        )
    if "router" in parts:
        router = next(module for module in modules if module.part == "router")
        raise SpecError(
            f"{where}: {router.name} is not listed in `ignore`, and library versions disagree on whether it is then "
            f"quantised; list all routers in `ignore`"
        )
