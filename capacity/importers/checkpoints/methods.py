"""Storage as the single methods describe it: fp8, mxfp4, AWQ, GPTQ, AutoRound, bitsandbytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from capacity.errors import SpecError
from capacity.files.json_file import kind_of
from capacity.importers.checkpoints.compressed import BY_ROW
from capacity.importers.checkpoints.reading import Storage, empty, flag, inner, linear, only
from capacity.importers.checkpoints.stated import stated_cache
from capacity.units import number_formats

FP8_FORMATS = {"e4m3": "fp8_e4m3", "float8_e4m3fn": "fp8_e4m3", "e5m2": "fp8_e5m2", "float8_e5m2": "fp8_e5m2"}
# AutoRound writes the files of other methods (AutoRoundConfig of vLLM 0.11 reads the same list).
PACKED_AS_GPTQ = ("auto_round:auto_gptq", "auto_round:auto_awq", "auto_round:gptqmodel", "auto_gptq", "auto_awq")
WIDE = 16  # bits from which activations count as unquantised


def fp8(table: Mapping[str, Any], where: str) -> Storage:
    """Weights in fp8, by tensor or in blocks; activations too where a scheme is named.

    Raises
    ------
    SpecError
        For a block, a format or a scheme that is not known.
    """
    block = table.get("weight_block_size")
    only(table, "fmt", tuple(FP8_FORMATS), where)
    only(table, "activation_scheme", ("dynamic", "static"), where)
    only(table, "dequantize", (False,), where)
    name = FP8_FORMATS[table.get("fmt") or "e4m3"]
    if block is not None and block != [128, 128]:
        raise SpecError(f"{where}: weight_block_size {block!r:.40} is not supported; supported: [128, 128] or none")
    if block is not None and name != "fp8_e4m3":
        raise SpecError(f"{where}: fmt {table['fmt']!r} with weight_block_size is not supported; supported: e4m3")
    parts = linear(name if block is None else "fp8_block128", where)
    return Storage(parts, "fp8_e4m3" if table.get("activation_scheme") else None, stated_cache(table, where))


def fp8_by_row(table: Mapping[str, Any], where: str) -> Storage:
    """Weights in fp8 with a scale per row, activations in fp8 (FbgemmFp8Config of transformers)."""
    return Storage(linear("fp8_row", where), "fp8_e4m3", stated_cache(table, where))


def mxfp4(table: Mapping[str, Any], where: str) -> Storage:
    """Only experts are stored in mxfp4: a file must exclude attention from conversion.

    Raises
    ------
    SpecError
        If attention is not excluded, or the weights are unpacked on loading.
    """
    excluded = table.get("modules_to_not_convert")
    if excluded is not None and (
        not isinstance(excluded, list) or not any("self_attn" in str(name) for name in excluded)
    ):
        raise SpecError(f"{where}: mxfp4 is supported for experts only, but self_attn is not in modules_to_not_convert")
    only(table, "dequantize", (False,), where)
    return Storage({"experts": "mxfp4"}, cache=stated_cache(table, where))


def grouped(table: Mapping[str, Any], where: str) -> Storage:
    """Symmetric and asymmetric files of AWQ and GPTQ have the same size: zero points are stored in both.

    Raises
    ------
    SpecError
        For bits and a group that no number format stands for, or without a group.
    """
    bits, group = table.get("bits", table.get("w_bit")), table.get("group_size", table.get("q_group_size"))
    if group is None:
        raise SpecError(f"{where}: group_size is missing; -1 is one scale per row; libraries disagree on the default")
    name = BY_ROW.get(str(bits), "") if group == -1 else f"int{bits}_g{group}"
    if name not in number_formats():
        raise SpecError(f"{where}: {bits!r:.10} bits with group_size {group!r:.10} is not a known number format")
    head = {"lm_head": name} if flag(table, "lm_head", where) else {}
    return Storage(linear(name, where) | head, cache=stated_cache(table, where))


def auto_round(table: Mapping[str, Any], where: str) -> Storage:
    """Weights of AutoRound, which packs integers as GPTQ and AWQ do.

    Raises
    ------
    SpecError
        For another packing, another type, quantised activations, or layers of other bits.
    """
    only(table, "packing_format", PACKED_AS_GPTQ, where)
    only(table, "data_type", ("int",), where)
    for key in ("super_bits", "super_group_size"):
        empty(table, key, where)
    bits = table.get("act_bits")
    if bits is not None and not (type(bits) is int and bits >= WIDE):
        raise SpecError(f"{where}: act_bits {bits!r:.20} is not supported; supported: 16 or more")
    storage = grouped({**table, "lm_head": table.get("quant_lm_head")}, where)
    return Storage(storage.parts, cache=storage.cache, skipped=_wide_layers(table, where))


def _wide_layers(table: Mapping[str, Any], where: str) -> tuple[str, ...]:
    """Entries of ``extra_config`` that stay at 16 bits; any other must repeat what holds for all."""
    wide = []
    for name, entry in inner(table, "extra_config", where).items():
        place = f"{where}: extra_config.{str(name)[:80]}"
        if not isinstance(entry, Mapping):
            raise SpecError(f"{place} must be an object, got a {kind_of(entry)}")
        bits = entry.get("bits", table.get("bits"))
        if type(bits) is int and bits >= WIDE:
            wide.append(f"re:{name}" if any(mark in name for mark in "*\\[(") else str(name))
        elif bits != table.get("bits") or entry.get("group_size", table.get("group_size")) != table.get("group_size"):
            raise SpecError(f"{place} has {bits!r:.10} bits; layers of different formats are not supported")
    return tuple(wide)


def bitsandbytes(table: Mapping[str, Any], where: str) -> Storage:
    """Weights of 8 bits, or of 4 bits as nf4.

    Raises
    ------
    SpecError
        For both widths at once, another type, or scales that are quantised in turn.
    """
    eight, four = (flag(table, f"load_in_{bits}bit", where) for bits in (8, 4))
    if eight and four:
        raise SpecError(f"{where}: load_in_4bit and load_in_8bit are both true; allowed is one of them")
    for key in ("bnb_4bit_use_double_quant",) if four else ("llm_int8_has_fp16_weight",):
        if flag(table, key, where):
            near = "; near in size: nf4, 4.5 bits a value, where scales quantised in turn make it 4.13" if four else ""
            raise SpecError(f"{where}: {key} true is not supported; supported: false{near}")
    kind = table.get("bnb_4bit_quant_type", "fp4")
    if not eight and (not four or kind != "nf4"):
        raise SpecError(
            f"{where}: bitsandbytes is supported as load_in_8bit, or load_in_4bit with nf4, got {kind!r:.20}"
        )
    return Storage(linear("int8" if eight else "nf4", where), cache=stated_cache(table, where))
