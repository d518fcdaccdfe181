"""Storage as MLX describes it: ``quantization``: bits, group, mode, modules that differ.

mlx-lm quantises every linear layer and every table whose rows divide into groups (mlx.nn.quantize: Linear, Embedding
and the experts in SwitchLinear), and writes the modules that differ under their names, false for those left alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from capacity.errors import SpecError
from capacity.files.json_file import kind_of
from capacity.importers.checkpoints.reading import Storage, linear
from capacity.importers.checkpoints.unquantized import LayerModule, parts_of, runs
from capacity.specs.checkpoint import StoredOverride
from capacity.units import number_formats

FIELDS = ("group_size", "bits", "mode", "quant_method")
DEFAULTS = {"affine": (64, 4), "mxfp4": (32, 4), "nvfp4": (16, 4), "mxfp8": (32, 8)}  # group and bits of a mode
TABLES = ("embed_tokens", "wte", "word_embeddings", "embed_in", "wpe", "embed_positions")
ROUTERS = ("gate", "router")


def mlx(table: Mapping[str, Any], where: str, modules: Sequence[LayerModule], plain: str) -> Storage:
    """One format for all matrices and tables, and others for the modules named; ``plain`` for those left alone.

    Raises
    ------
    SpecError
        For bits, a group or a mode that no number format stands for, or a part of which a layer has two formats.
    """
    base = _format(table, where)
    modules_by_format: dict[str, list[str]] = {}
    for name, entry in table.items():
        if name not in FIELDS:
            modules_by_format.setdefault(_entry(name, entry, base, plain, where), []).append(str(name))
    parts = linear(base, where) | {"embedding": base}
    parts |= {module.part: base for module in modules if module.part == "lm_head" and not module.tied}
    if any(module.part == "experts" for module in modules):
        parts["router"] = base
    overrides: list[StoredOverride] = []
    modules_by_format.pop(base, None)
    for stored, names in modules_by_format.items():
        overrides += _differ(stored, names, parts, modules, where)
    return Storage(parts, overrides=tuple(overrides))


def _format(table: Mapping[str, Any], where: str) -> str:
    mode = table.get("mode") or "affine"
    if not isinstance(mode, str) or mode not in DEFAULTS:
        raise SpecError(f"{where}: mode {mode!r:.40} is not supported; supported: {', '.join(DEFAULTS)}")
    group, bits = (
        table.get(key) or default for key, default in zip(("group_size", "bits"), DEFAULTS[mode], strict=True)
    )
    name = f"int{bits}_g{group}_affine" if mode == "affine" else mode
    if name not in number_formats() or (mode != "affine" and (group, bits) != DEFAULTS[mode]):
        raise SpecError(
            f"{where}: {bits!r:.10} bits with group_size {group!r:.10} and mode {mode} is not a known format"
        )
    return name


def _entry(name: Any, entry: Any, base: str, plain: str, where: str) -> str:
    """The format of a module that is named."""
    place = f"{where}: {str(name)[:80]}"
    if isinstance(entry, bool):
        return base if entry else plain
    if not isinstance(entry, Mapping):
        raise SpecError(f"{place} must be an object, true or false, got a {kind_of(entry)}")
    if other := [key for key in entry if key not in FIELDS]:
        raise SpecError(f"{place}: {str(other[0])[:60]} is not understood; known: {', '.join(FIELDS[:3])}")
    return _format(entry, place)


def _differ(
    stored: str, names: list[str], parts: dict[str, str], modules: Sequence[LayerModule], where: str
) -> Iterable[StoredOverride]:
    """Change ``parts`` that are wholly in another format; the layers of others, of which only some are."""
    inside = [name.replace("switch_mlp.", "experts.*.") for name in names if _leaf(name) not in TABLES + ROUTERS]
    for part, last in (("embedding", TABLES), ("router", ROUTERS)):
        members = [name for name in names if _leaf(name) in last]
        if members and part == "router" and len(members) != _expert_layers(modules):
            raise SpecError(f"{where}: routers of different formats are not supported")
        if members:
            parts[part] = stored
    for part, layers in parts_of(inside, modules, where).items():
        if layers == {module.layer for module in modules if module.part == part}:
            parts[part] = stored
        else:
            yield from (
                StoredOverride.parse({"part": part, "first": first, "stop": stop, "format": stored}, where)
                for first, stop in runs(layers)
            )


def _leaf(name: str) -> str:
    return name.rpartition(".")[2]


def _expert_layers(modules: Sequence[LayerModule]) -> int:
    return len({module.layer for module in modules if module.part == "experts"})
