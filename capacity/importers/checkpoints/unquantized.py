"""Layers that a quantised checkpoint leaves in its unquantised format, from the lists in its configuration.

An entry is the name of a module or of what holds it (``model.layers.0.self_attn``, ``self_attn``), may hold ``*``, and
is a regular expression after ``re:``; these are the forms of transformers, ModelOpt and compressed-tensors.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from capacity.errors import SpecError
from capacity.files import package_data
from capacity.files.json_file import kind_of

UNQUANTIZED_KEYS = ("modules_to_not_convert", "ignore", "exclude_modules", "llm_int8_skip_modules", "ignored_layers")
MAX_ENTRIES = 20_000
MAX_STEPS = 20_000_000  # of the search for entries among modules, about three seconds
MAX_REPEATS = 4  # and groups, in a regular expression from outside: a search may try a name's length to this power


@dataclass(frozen=True, slots=True)
class LayerModule:
    """One matrix of one layer: the part it belongs to and its dotted name. The head counts as one of layer 0."""

    part: str
    layer: int
    name: str
    tied: bool = False


def plain_layers(
    table: Mapping[str, Any], modules: Sequence[LayerModule], where: str, skipped: Sequence[str] = ()
) -> dict[str, set[int]]:
    """Layers by part whose matrices ``table`` leaves unquantised; ``skipped`` are more entries of its lists.

    Raises
    ------
    SpecError
        For an entry that names no module, or a part of which one layer would be stored in two formats.
    """
    unquantized: set[LayerModule] = set()
    matrices = _Modules(modules)
    entries = [*_unquantized_entries(table, where), *((where, entry) for entry in skipped)]
    for place, entry in dict.fromkeys(entries):
        members = matrices.members(entry, place)
        if not members and "lm_head" in entry:  # under another root, as language_model.lm_head
            members = {module for module in modules if module.part == "lm_head"}
        if not members and not _never_quantized(entry, matrices.last_layer):
            raise SpecError(f"{place} names {entry!r:.120}, which is not a known module{_such_as(modules)}")
        unquantized |= members
    targets = dict.fromkeys(_targets(table, where))
    if targets:
        unquantized |= set(modules) - set().union(*(_target(entry, matrices, place) for place, entry in targets))
    return _layers_by_part(unquantized, modules, where)


def parts_of(entries: Sequence[str], modules: Sequence[LayerModule], where: str) -> dict[str, set[int]]:
    """Layers by part whose matrices are all named by ``entries``.

    Raises
    ------
    SpecError
        For an entry that names no module, or a part of which one layer would be stored in two formats.
    """
    table = _Modules(modules)
    members = [_target(entry, table, where) for entry in entries]
    return _layers_by_part(set().union(*members), modules, where)


def runs(layers: Iterable[int]) -> list[tuple[int, int]]:
    """Layers as ranges, each from its first layer to one past its last.

    >>> runs({0, 1, 2, 5})
    [(0, 3), (5, 6)]
    """
    ranges: list[tuple[int, int]] = []
    for layer in sorted(layers):
        if ranges and ranges[-1][1] == layer:
            ranges[-1] = (ranges[-1][0], layer + 1)
        else:
            ranges.append((layer, layer + 1))
    return ranges


def _unquantized_entries(table: Mapping[str, Any], where: str) -> Iterable[tuple[str, str]]:
    for key in UNQUANTIZED_KEYS:
        yield from ((f"{where}: {key}", entry) for entry in _strings(table.get(key), f"{where}: {key}"))
    rules = table.get("dynamic")  # of GPTQModel: "-:" leaves unquantised what the expression matches
    if not isinstance(rules, Mapping | None):
        raise SpecError(f"{where}: dynamic must be an object, got a {kind_of(rules)}")
    for rule in rules or ():
        if not rule.startswith("-:"):
            raise SpecError(f"{where}: dynamic {rule!r:.80} is not supported; only rules that begin with -: are")
        yield f"{where}: dynamic", f"re:{rule[2:]}"


def _targets(table: Mapping[str, Any], where: str) -> Iterable[tuple[str, str]]:
    """Entries of the lists that name the only quantised modules; none where every linear layer is quantised."""
    blocks = table.get("modules_in_block_to_quantize")
    place = f"{where}: modules_in_block_to_quantize"
    if isinstance(blocks, list) and all(isinstance(block, list) for block in blocks):
        blocks = [name for block in blocks for name in block]
    yield from ((place, entry) for entry in _strings(blocks, place))
    groups = table.get("config_groups")
    named_entries: list[tuple[str, str]] = []
    for key, group in groups.items() if isinstance(groups, Mapping) else ():
        place = f"{where}: config_groups.{key}.targets"
        entries = _strings(group.get("targets") if isinstance(group, Mapping) else None, place)
        named_entries += [(place, entry) for entry in entries or ["Linear"]]
    if all(entry != "Linear" for _, entry in named_entries):
        yield from named_entries


def _strings(value: Any, where: str) -> list[str]:
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise SpecError(f"{where} must be a list of module names")
    if len(value) > MAX_ENTRIES:
        raise SpecError(f"{where} has {len(value):,} entries; at most {MAX_ENTRIES:,} are read")
    return value


def _target(entry: str, table: _Modules, place: str) -> set[LayerModule]:
    members = table.members(entry, place)
    if not members:
        raise SpecError(f"{place} names {entry!r:.120}; supported: Linear, or modules{_such_as(table.modules)}")
    return members


class _Modules:
    """The modules indexed by each word of their names, and the steps left for the search for entries among them."""

    def __init__(self, modules: Sequence[LayerModule]) -> None:
        self.modules = modules
        self.last_layer = max((module.layer for module in modules), default=None)
        self._steps_left = float(MAX_STEPS)
        self._by_word: dict[str, list[LayerModule]] = {}
        for module in modules:
            for word in set(module.name.split(".")):
                self._by_word.setdefault(word, []).append(module)

    def members(self, entry: str, place: str) -> set[LayerModule]:
        """The modules that an entry names directly or as part of a longer name."""
        if entry.startswith("re:"):
            expression = _expression(entry.removeprefix("re:"), place)
            self._take(_steps(expression.pattern) * len(self.modules), entry, place)
            return {module for module in self.modules if expression.match(module.name)}
        if "*" in entry:
            body = _expression(".*".join(map(re.escape, re.split(r"\*+", entry))), place).pattern
            self._take(_steps(body) * len(self.modules), entry, place)
            around = re.compile(rf"(?:.*\.)?{body}(?:\..*)?")
            return {module for module in self.modules if around.fullmatch(module.name)}
        fewest = min((self._by_word.get(word, []) for word in entry.split(".")), key=len)
        self._take(len(fewest), entry, place)
        return {module for module in fewest if f".{entry}." in f".{module.name}."}

    def _take(self, steps: float, entry: str, place: str) -> None:
        self._steps_left -= steps
        if self._steps_left < 0:
            raise SpecError(
                f"{place}: looking for entries among {len(self.modules):,} modules takes too long at {entry!r:.80}; "
                "list fewer entries with * or re:"
            )


def _steps(expression: str) -> float:
    """About the steps of one match: a repeat tries several lengths, and groups multiply their alternatives."""
    groups = max(1, expression.count("("))
    alternatives = (expression.count("|") / groups + 1) ** groups
    return alternatives * 8.0 ** len(re.findall(r"[*+?{]", expression))


def _expression(text: str, place: str) -> re.Pattern[str]:
    """A regular expression from outside, refused where its search could take very long."""
    many = max(len(re.findall(r"[*+?{]", text)), text.count("(")) > MAX_REPEATS
    if many or len(text) > 200 or re.search(r"\)[*+?{]", text):
        raise SpecError(
            f"{place} holds {text!r:.80}; only an expression of at most 200 characters, {MAX_REPEATS} repeats and "
            f"{MAX_REPEATS} groups is read, and no group may be repeated"
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # of what a later Python will read otherwise
            return re.compile(text)
    except (re.error, RecursionError, OverflowError, Warning):
        raise SpecError(f"{place} holds {text!r:.80}, which is not an unambiguous regular expression") from None


def _never_quantized(entry: str, last_layer: int | None) -> bool:
    """Whether an entry names modules that no method quantises, or layers behind those of the model."""
    marks = package_data.toml("data/unquantized.toml")
    if any(mark in entry for mark in marks["inside"]):
        return True
    if any(re.search(rf"(?<![a-z0-9_]){word}(?![a-z0-9_])", entry) for word in marks["words"]):
        return True
    number = re.search(r"\blayers\\?\.(\d{1,6})(?!\d)", entry)
    return number is not None and last_layer is not None and int(number[1]) > last_layer


def _layers_by_part(unquantized: set[LayerModule], modules: Sequence[LayerModule], where: str) -> dict[str, set[int]]:
    matrices: dict[tuple[str, int], list[LayerModule]] = {}
    for module in modules:
        matrices.setdefault((module.part, module.layer), []).append(module)
    layers: dict[str, set[int]] = {}
    for (part, layer), members in matrices.items():
        plain = [module.name for module in members if module in unquantized]
        if not plain:
            continue
        others = [module.name for module in members if module not in unquantized]
        if others:
            raise SpecError(
                f"{where}: {plain[0]} and {others[0]} are stored in different formats, but a layer has one format for "
                f"its {part}"
            )
        layers.setdefault(part, set()).add(layer)
    return layers


def _such_as(modules: Sequence[LayerModule]) -> str:
    return f"; one would be {modules[0].name}" if modules else ""
