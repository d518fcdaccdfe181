"""Command lines of serving engines as deployments, and back. A line is only read: nothing of it is executed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from capacity.errors import CapacityError
from capacity.files import package_data
from capacity.specs.deployment import Deployment

FOLDER = "data/launch"
MAX_LETTERS, MAX_WORDS = 20_000, 500
CLOSE = 0.8  # of two flags, so that one is offered for the other
_COUNT = re.compile(r"(\d{1,12})(?:(\.\d{1,3})?([kKmM]))?")
_SCALES = {"k": 1000, "K": 1024, "m": 1000**2, "M": 1024**2}


@dataclass(frozen=True)
class Launch:
    """What a command line says. ``context_tokens`` is the longest sequence admitted, None where it is not stated.

    ``read`` are the flags that decide something and what they were read as; the others have no effect on sizes and
    times, are not modelled, or are not known.
    """

    engine: str
    model: str
    deployment: Deployment
    context_tokens: int | None
    read: tuple[tuple[str, str], ...]
    without_effect: tuple[str, ...]
    not_modelled: tuple[str, ...]
    unknown: tuple[str, ...]


def launchers() -> tuple[str, ...]:
    """Engines whose command line is read, sorted."""
    return package_data.names(FOLDER, ".toml")


def read_launch(line: str) -> Launch:
    """What a command line such as ``vllm serve MODEL --tensor-parallel-size 2`` states.

    Parameters
    ----------
    line : str
        One command, with environment assignments before it and line continuations, as a shell would take it.

    Returns
    -------
    Launch
        Engine, model, deployment, and every flag by what became of it.

    Raises
    ------
    CapacityError
        If it is no command of an engine that is known, names no model, or a flag lacks its value or has a wrong one.

    Examples
    --------
    >>> read_launch("vllm serve Qwen/Qwen3-32B -tp 2 --max-model-len 32k").deployment.tensor_parallel
    2
    """
    words = _words(line)
    table, rest = _engine(words)
    reading = _Reading(table)
    while rest:
        rest = reading.take(rest)
    return reading.launch()


def _words(line: str) -> list[str]:
    if len(line) > MAX_LETTERS:
        raise CapacityError(f"command: {len(line):,} characters are more than the {MAX_LETTERS:,} that are read")
    try:
        words = shlex.split(line.replace("\\\n", " "))
    except ValueError as error:
        raise CapacityError(f"command: cannot be split into words ({str(error).lower()})") from None
    if len(words) > MAX_WORDS:
        raise CapacityError(f"command: {len(words):,} words are more than the {MAX_WORDS} that are read")
    return words


def _engine(words: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """The table of the engine that a command starts, and the words behind its name.

    Environment, containers and the like before it are passed over.
    """
    for begin in range(len(words)):
        for name in launchers():
            table = package_data.toml(f"{FOLDER}/{name}.toml")
            for start in table["starts"]:
                if _same_start(words[begin : begin + len(start)], start):
                    return table, list(words[begin + len(start) :])
    first = " ".join(words[:3])[:60]
    known = "; ".join(" ".join(package_data.toml(f"{FOLDER}/{name}.toml")["starts"][0]) for name in launchers())
    raise CapacityError(f"command: {first!r} starts no engine that is known; known: {known}")


def _same_start(words: Sequence[str], start: Sequence[str]) -> bool:
    """Whether a command begins so, wherever its program lies."""
    return bool(words) and [words[0].rpartition("/")[2], *words[1:]] == list(start)


class _Reading:
    """Words of a command taken one flag after the other."""

    def __init__(self, table: Mapping[str, Any]) -> None:
        self.table = table
        self.fields: dict[str, Any] = {}
        self.all_ranks = False
        self.model = ""
        self.read: list[tuple[str, str]] = []
        self.others: dict[str, list[str]] = {"without_effect": [], "not_modelled": [], "unknown": []}

    def take(self, words: list[str]) -> list[str]:
        """Read the first flag or the model; what is left of the words."""
        word, rest = words[0], words[1:]
        if not _is_flag(word):
            if not self.model:
                self.model = word
            else:
                self.others["unknown"].append(word)
            return rest
        flag, joined, value = word.partition("=")
        flag = _spelling(flag)
        values = [value] if joined else rest[:1]
        behind = rest if joined else rest[1:]
        if flag in map(_spelling, self.table["model"]):
            self.model = _value(word, values)
            return behind
        for name, field in self.table["fields"].items():
            if flag in map(_spelling, field["flags"]):
                return self._field(name, field, word, values, rest, behind)
        return self._other(flag, values, rest, behind, joined=bool(joined))

    def _field(
        self,
        name: str,
        field: Mapping[str, Any],
        word: str,
        values: list[str],
        rest: list[str],
        behind: list[str],
    ) -> list[str]:
        if field["kind"] in ("switch", "all ranks"):
            self.all_ranks |= field["kind"] == "all ranks"
            if field["kind"] == "switch":
                self.fields[name] = field["value"]
            self.read.append((word, f"{name} = {field.get('value', 'all ranks of a stage')}"))
            return rest
        value = _parsed(word, field, _value(word, values))
        if value is not None:
            self.fields[name] = value
        self.read.append((f"{word} {values[0]}" if "=" not in word else word, f"{name} = {_meaning(value)}"))
        return behind

    def _other(self, flag: str, values: list[str], rest: list[str], behind: list[str], *, joined: bool) -> list[str]:
        for kind in ("without_effect", "not_modelled"):
            if flag in map(_spelling, self.table[kind]["switches"]):
                self.others[kind].append(flag)
                return rest[1:] if rest[:1] in (["true"], ["false"], ["True"], ["False"]) else rest
            if flag in map(_spelling, self.table[kind]["values"]):
                self.others[kind].append(f"{flag} {values[0]}" if values else flag)
                return behind
        near = get_close_matches(flag, [_spelling(known) for known in _known(self.table)], n=1, cutoff=CLOSE)
        self.others["unknown"].append(f"{flag} (nearest: {near[0]})" if near else flag)
        takes_value = bool(values) and not joined and not _is_flag(values[0])
        return behind if takes_value or joined else rest

    def launch(self) -> Launch:
        """What was read."""
        if not self.model:
            raise CapacityError("command: it names no model")
        context_tokens = self.fields.pop("context_tokens", None)
        if context_tokens and self.table.get("context_is_total"):
            context_tokens = max(1, context_tokens // self.fields.get("max_sequences", 1))
        if self.all_ranks:
            self.fields["expert_parallel"] = self.fields.get("tensor_parallel", 1) * self.fields.get("data_parallel", 1)
        deployment = Deployment.parse({"engine": self.table["engine"], **self.fields}, "command")
        others = {kind: tuple(flags) for kind, flags in self.others.items()}
        return Launch(self.table["engine"], self.model, deployment, context_tokens, tuple(self.read), **others)


def _is_flag(word: str) -> bool:
    return bool(re.match(r"--?[A-Za-z]", word))


def _spelling(flag: str) -> str:
    """Dashes and underscores of a long flag are the same."""
    return flag.replace("_", "-") if flag.startswith("--") else flag


def _known(table: Mapping[str, Any]) -> Iterator[str]:
    for field in table["fields"].values():
        yield from field["flags"]
    for kind in ("without_effect", "not_modelled"):
        yield from (*table[kind]["values"], *table[kind]["switches"])


def _value(flag: str, values: Sequence[str]) -> str:
    if not values or (_is_flag(values[0]) and not values[0].lstrip("-")[:1].isdigit()):
        raise CapacityError(f"command: {flag[:60]} needs a value")
    return values[0]


def _meaning(value: Any) -> str:
    return "as the model is stored" if value is None else str(value)


def _parsed(flag: str, field: Mapping[str, Any], text: str) -> Any:
    """The value of a flag; None for a word that leaves the choice to the engine or the files of the model."""
    if field["kind"] == "word":
        if text not in field["words"]:
            allowed = ", ".join(field["words"])
            raise CapacityError(f"command: {flag[:60]} {text[:40]!r} is not known; known: {allowed}")
        return field["words"][text] or None
    if field["kind"] == "share":
        try:
            return float(text)
        except ValueError:
            raise CapacityError(f"command: {flag[:60]} must be a share from 0 to 1, got {text[:40]!r}") from None
    match = _COUNT.fullmatch(text)
    if match is None:
        raise CapacityError(f"command: {flag[:60]} must be a whole number, got {text[:40]!r}")
    whole, fraction, scale = match.groups()
    return round(float(whole + (fraction or "")) * _SCALES[scale]) if scale else int(whole)


def launch_line(model: str, deploy: Deployment, *, context_tokens: int | None = None) -> str:
    """The command that starts an engine with a deployment: of what was stated, all that its flags can say.

    Parameters
    ----------
    model : str
        Name or path as the engine takes it.
    deploy : Deployment
        Names the engine.
    context_tokens : int, optional
        Longest sequence to admit. [token]

    Raises
    ------
    CapacityError
        If the engine has no command line that is known, or a choice has no flag there.

    Examples
    --------
    >>> launch_line("Qwen/Qwen3-32B", Deployment(engine="vllm", tensor_parallel=2), context_tokens=32768)
    'vllm serve Qwen/Qwen3-32B --tensor-parallel-size 2 --max-model-len 32768'
    """
    if deploy.engine not in launchers():
        raise CapacityError(
            f"engine {deploy.engine!r} has no command line that is known; known: {', '.join(launchers())}"
        )
    table = package_data.toml(f"{FOLDER}/{deploy.engine}.toml")
    words = [*table["starts"][0], *([table["model"][0]] if deploy.engine != "vllm" and table["model"] else []), model]
    stated = {name: getattr(deploy, name) for name in deploy.model_fields_set - {"engine", "engine_version", "read_as"}}
    if context_tokens is not None:
        total = (deploy.max_sequences or 1) if table.get("context_is_total") else 1
        stated["context_tokens"] = context_tokens * total
    for name in table["fields"]:
        if name in stated:
            words += _flag(table, name, stated.pop(name), deploy)
    defaults = {name: field.default for name, field in Deployment.model_fields.items()}
    if left := [name for name, value in stated.items() if value != defaults.get(name)]:
        raise CapacityError(f"{deploy.engine} has no flag for {', '.join(sorted(left))}")
    return shlex.join(words)


def _flag(table: Mapping[str, Any], name: str, value: Any, deploy: Deployment) -> list[str]:
    field = table["fields"][name]
    flag, kind = field["flags"][0], field["kind"]
    if value is None or (name == "weights" and value == "as_stored"):
        return []
    if kind == "switch" and value == field["value"]:
        return [flag]
    if kind == "all ranks" and value == deploy.tensor_parallel * deploy.data_parallel:
        return [flag]
    if kind == "word" and value in field["words"].values():
        return [flag, next(word for word, meaning in field["words"].items() if meaning == value)]
    if kind in ("count", "share"):
        return [flag, str(value)]
    raise CapacityError(f"{table['engine']} has no flag for {name} = {value}")
