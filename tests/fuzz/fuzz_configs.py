"""Mutation fuzzer for the readers and the sizing of `capacity`. Run it with the Python that has the package.

    python fuzz_configs.py --configs FOLDER [FOLDER ...] [--cases 10000] [--seed 1] [--targets models,parts]
                           [--out faults.jsonl] [--replay models:123]

Each case changes one real input (a config.json, a part or server TOML, a run record, a published table, a safetensors
header, a YAML file, the fields of a deployment), reads it as a user would and sizes what comes out. `--cases` is a
number for every target, or a list such as `models=80000,parts=5000`. The same seed gives the same cases.

A fault is one of
  crash     an exception that is not a CapacityError
  hang      more than --seconds (2) of processor time, or 30 s by the clock; other work on the machine does not count
  memory    the process grew by more than --mebibytes (512) in one case
  absurd    an accepted model of more than 1e15 parameters
  nonsense  an accepted input whose numbers cannot be (negative, zero parameters, NaN, parts that do not sum, ...)
  dropped   a key was deleted, set to null or misspelt, a number moved by more than 1 %, and no error, no note and no
            `assumed` entry names the key (a new name only under "ignored keys" counts as a note)
  typed     a key on which numbers depend holds a value of a wrong type, and it was accepted
  listed    a list whose length must fit the layers was lengthened or cut, and it was accepted with other numbers
  message   a refusal that is empty, over 1,200 characters, not printable, or names a Python class

The last line is a JSON summary: cases, refused, accepted and faults by class for each target. Exit 1 on any fault.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import csv
import io
import json
import math
import random
import resource
import signal
import sys
import tempfile
import time
import tomllib
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any, TextIO

import capacity as cap
from capacity.files.json_file import parse_object
from capacity.importers.checkpoints.safetensors import read_folder, read_header

MOVED = 0.01
MAX_WAIT_S = 30.0
MAX_PARAMETERS = 1e15  # a thousand times the largest model there is; more is a slip of a digit
PACKAGE = Path(str(files("capacity")))
PARTS = next(p for p in (PACKAGE / "hardware_specs", PACKAGE.parent / "hardware_specs") if p.is_dir())


class Hang(BaseException):
    """Raised by the alarm; no handler of the package may swallow it."""


@dataclass
class Case:
    """One input: how it was made, the key it is about, and what the reader is given."""

    base: str
    operation: str
    key: str
    given: Any


@dataclass
class Tally:
    """What happened on one target."""

    cases: int = 0
    refused: int = 0
    accepted: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    slowest_s: float = 0.0
    most_mebibytes: float = 0.0

    def summary(self) -> dict[str, Any]:
        """The fields for JSON; `asdict` of Python 3.11 counts the pairs of a Counter, not its keys."""
        return vars(self) | {"faults": dict(self.faults)}


# ---------------------------------------------------------------- values that an outsider may write

WRONG = [
    "",
    "32",
    "abc",
    "bf16",
    None,
    True,
    False,
    [],
    {},
    [1],
    [1, 2, 3],
    {"a": 1},
    0.5,
    32.0,
    1e308,
    -1,
    0,
    -0.0,
    "NaN",
    float("nan"),
    float("inf"),
    -float("inf"),
    2**31,
    2**31 + 1,
    2**53,
    2**63,
    -(2**63),
    10**40,
    "\u0000",
    "\ud800",
    "é" * 50,
    "x" * 5000,
    [[[]]],
    [None],
    ["full_attention"],
    {"": ""},
    "1e3",
    " 32 ",
    1e-300,
    10**4000,
]
LEAVES = (str, int, float, bool, type(None))


def leaves(table: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of every key, inner ones as well."""
    items = table.items() if isinstance(table, dict) else enumerate(table) if isinstance(table, list) else ()
    for name, value in items:
        yield (*path, name)
        yield from leaves(value, (*path, name))


def holder(table: Any, path: tuple[Any, ...]) -> Any:
    for name in path[:-1]:
        table = table[name]
    return table


def look(table: Any, path: tuple[Any, ...]) -> Any:
    return holder(table, path)[path[-1]]


def typo(rng: random.Random, name: str) -> str:
    """The name as people get it wrong."""
    kinds: list[Callable[[str], str]] = [
        lambda s: s + "s",
        lambda s: s[:-1],
        lambda s: s.upper(),
        lambda s: s.replace("_", "-"),
        lambda s: s.replace("_", ""),
        lambda s: s.title().replace("_", ""),
        lambda s: f" {s}",
        lambda s: f"{s} ",
        lambda s: s.replace("num_", "n_"),
        lambda s: s.replace("e", "е"),
        lambda s: f"model.{s}",
        lambda s: f"{s}_",
        lambda s: s[::-1],
        lambda s: f"_{s}",
        lambda s: s[1:] + s[:1],
        lambda s: s.replace("num_", ""),
        lambda s: f"{s}_token_id",
    ]
    return rng.choice(kinds)(name) or "x"


def nudged(rng: random.Random, value: Any) -> Any:
    """Another value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return rng.choice(
            [value + 1, value - 1, value * 2, value // 2, value * 3, value * 1000, -value, 1, 0, 7, value + 64]
        )
    if isinstance(value, float):
        return rng.choice(
            [
                value * 2,
                -value,
                0.0,
                value + 1,
                1e300,
                1e-300,
                math.nan,
                math.inf,
                int(value) if math.isfinite(value) else 0,
            ]
        )
    if isinstance(value, str):
        return rng.choice([value + "x", value[:-1], value.upper(), "", value * 100, "\u202e" + value, value + "\u0000"])
    if isinstance(value, list):
        return resized(rng, value)
    return {**value, "unknown": 1} if isinstance(value, dict) else value


def resized(rng: random.Random, value: list[Any]) -> list[Any]:
    """A list cut, lengthened, doubled, shuffled or spoilt in one place."""
    other = list(value)
    kind = rng.randrange(6)
    if kind == 0 and other:
        del other[rng.randrange(len(other))]
    elif kind == 1 and other:
        other.insert(rng.randrange(len(other) + 1), rng.choice(other))
    elif kind == 2:
        other = other + other
    elif kind == 3:
        rng.shuffle(other)
    elif kind == 4 and other:
        other[rng.randrange(len(other))] = rng.choice(WRONG)
    else:
        other = other[: len(other) // 2]
    return other


def mutate_table(rng: random.Random, base: dict[str, Any], name: str, pool: list[tuple[str, Any]]) -> Case:
    """One change of a table, sometimes two or three more on top."""
    table = copy.deepcopy(base)
    paths = list(leaves(table))
    if not paths:
        return Case(name, "empty", "", table)
    top = [path for path in paths if len(path) == 1]
    path = rng.choice(top if rng.random() < 0.6 else paths)
    owner, key = holder(table, path), path[-1]
    shown = ".".join(map(str, path))
    operation = rng.choice(
        ("delete", "null", "rename", "type", "type", "nudge", "nudge", "add", "list", "copy", "several")
    )
    if operation == "delete":
        del owner[key]
    elif operation == "null":
        owner[key] = None
    elif operation == "rename" and isinstance(owner, dict):
        owner[typo(rng, str(key))] = owner.pop(key)
    elif operation == "type":
        owner[key] = copy.deepcopy(rng.choice(WRONG))
    elif operation == "nudge":
        owner[key] = nudged(rng, owner[key])
    elif operation == "list":
        lists = [p for p in paths if isinstance(look(table, p), list)]
        if lists:
            path = rng.choice(lists)
            shown = ".".join(map(str, path))
            holder(table, path)[path[-1]] = resized(rng, look(table, path))
    elif operation == "copy":
        owner[key] = copy.deepcopy(look(table, rng.choice(paths)))
    elif operation == "several":
        for _ in range(rng.randrange(2, 5)):
            one = rng.choice([p for p in leaves(table) if len(p) == 1] or [()])
            if one:
                table[one[0]] = rng.choice([nudged(rng, table[one[0]]), copy.deepcopy(rng.choice(WRONG))])
    else:
        operation = "add"
        extra, value = rng.choice(pool) if pool else ("unknown", 1)
        shown = extra
        table.setdefault(extra, copy.deepcopy(value))
    return Case(name, operation, shown, table)


def mutate_text(rng: random.Random, text: bytes, name: str) -> Case:
    """Bytes cut off, flipped, doubled, or replaced by what upsets a parser."""
    kind = rng.choice(("cut", "flip", "insert", "line twice", "line gone", "digits", "nest"))
    other = bytearray(text)
    at = rng.randrange(len(other)) if other else 0
    if kind == "cut":
        del other[at:]
    elif kind == "flip" and other:
        for _ in range(rng.randrange(1, 4)):
            other[rng.randrange(len(other))] ^= 1 << rng.randrange(8)
    elif kind == "insert":
        other[at:at] = rng.choice(
            [b"\x00", b"\xff", b'"', b"{", b"]", b"\xef\xbb\xbf", b"NaN", b"-", b",,", "é".encode(), b"\\ud800"]
        )
    elif kind in ("line twice", "line gone"):
        lines = bytes(other).splitlines(keepends=True)
        spot = rng.randrange(len(lines)) if lines else 0
        lines[spot : spot + 1] = lines[spot : spot + 1] * (2 if kind == "line twice" else 0)
        other = bytearray(b"".join(lines))
    elif kind == "digits":
        spots = [i for i, one in enumerate(other) if 48 <= one <= 57]
        if spots:
            at = rng.choice(spots)
            other[at : at + 1] = rng.choice(
                [b"9" * 5000, b"9" * 25, b"-1", b"0", b"0x10", b"1e999", b"1_0", b"01", b"\xd9\xa3", b"1.5"]
            )
    else:
        other[at:at] = b"[" * rng.choice([50, 5000, 100000])
    return Case(name, f"bytes: {kind}", "", bytes(other))


# ---------------------------------------------------------------- what an answer must satisfy

HARDWARE = cap.load_hardware("nvidia-h100-sxm5-80gb")
PLAIN = cap.Deployment(weights="bf16")


def numbers(model: Any, deploy: Any = PLAIN) -> dict[str, float]:
    """The figures of one model that a user buys by."""
    count = cap.parameter_count(model)
    return {
        "parameters": count.total,
        "active": count.active,
        "read": count.read_per_token,
        "weights": cap.weight_bytes(model, deploy),
        "kv_4096": cap.kv_cache_bytes(model, deploy, batch=1, context_tokens=4096),
        "kv_65536": cap.kv_cache_bytes(model, deploy, batch=3, context_tokens=65536),
        "state": cap.state_bytes(model, deploy, batch=2),
        "activations": cap.activation_bytes(model, deploy, batch=1, tokens=2048),
        "max_batch": cap.max_batch(model, HARDWARE, deploy, context_tokens=2048),
        "tpot": cap.tpot(model, HARDWARE, deploy, batch=4, context_tokens=2048).bound,
        "stored": (model.checkpoint.total_bytes or cap.weight_bytes(model, cap.Deployment()))
        if model.checkpoint
        else 0,
    }


def nonsense(found: dict[str, float], model: Any = None) -> str | None:
    """Why these figures cannot be, or None."""
    for name, value in found.items():
        if isinstance(value, float) and not math.isfinite(value):
            return f"{name} is {value}"
        if value < 0:
            return f"{name} is negative: {value}"
    for name in ("parameters", "active", "weights", "tpot"):
        if name in found and not found[name] > 0:
            return f"{name} is {found[name]}"
    if found.get("active", 0) > found.get("parameters", math.inf):
        return f"active {found['active']} of {found['parameters']} parameters"
    if "weights" in found and not 1.9 < found["weights"] / found["parameters"] < 4.1:
        return f"weights are {found['weights'] / found['parameters']:.2f} bytes a parameter in bf16"
    if found.get("parameters", 0) > MAX_PARAMETERS:
        return f"absurd: {found['parameters']:.3g} parameters"
    for stage in model.stages if model is not None else ():
        for group in stage.layers:
            mixer = group.mixer
            if mixer.kind == "attention" and mixer.kv_heads > mixer.query_heads:
                return f"{mixer.kv_heads} KV heads of {mixer.query_heads}"
    return None


def sums(sizing: Any) -> str | None:
    """Whether the parts of a sizing add up and its figures are finite."""
    for ledger in sizing.ledger:
        if ledger.total_bytes != sum(line.held_bytes for line in ledger.lines if line.inside):
            return "ledger lines inside the plan do not sum"
        if any(line.held_bytes < 0 for line in ledger.lines):
            return "a ledger line is negative"
    if sizing.fits and not (sizing.max_batch >= sizing.batch and sizing.margin_bytes >= 0):
        return f"fits, but max batch {sizing.max_batch} < {sizing.batch}"
    if not sizing.fits and sizing.max_batch >= sizing.batch:
        return f"does not fit, but max batch {sizing.max_batch} >= {sizing.batch}"
    for estimate in (sizing.tpot, sizing.ttft):
        if estimate.bound is None:  # the part states no peak for the format
            continue
        if not (math.isfinite(estimate.bound) and estimate.bound > 0):
            return f"bound {estimate.bound}"
        if estimate.attainable is not None and estimate.attainable < estimate.bound * (1 - 1e-12):
            return f"attainable {estimate.attainable} < bound {estimate.bound}"
    json.dumps(sizing.to_dict(), allow_nan=False)
    return None


def message_fault(error: Exception) -> str | None:
    text = str(error)
    if not text.strip() or len(text) > 1200 or not text.isprintable():
        return "empty, long or not printable"
    if any(mark in text for mark in ("Traceback", "object at 0x", "<class", "ValidationError", "pydantic")):
        return "names a Python class"
    return None


# ---------------------------------------------------------------- targets


class Target:
    """Bases, how a case is made of one, and how it is judged: ``judge`` raises a CapacityError or returns a fault."""

    name = ""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options, self.folder = options, folder
        self.path = folder / "case"

    def case(self, rng: random.Random) -> Case:
        raise NotImplementedError

    def judge(self, case: Case) -> tuple[str, str] | None:
        raise NotImplementedError

    def write(self, name: str, content: bytes | str) -> Path:
        path = self.folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass"))
        return path


class Models(Target):
    """config.json of Hugging Face, as a table and as bytes."""

    name = "models"

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        super().__init__(options, folder)
        self.bases: dict[str, dict[str, Any]] = {}
        self.known: dict[str, dict[str, float]] = {}
        self.pool: list[tuple[str, Any]] = []
        for place in options.configs:
            for path in sorted(Path(place).glob("*.json")):
                try:
                    table = json.loads(path.read_text(encoding="utf-8"))
                except ValueError:
                    continue
                if not isinstance(table, dict):
                    continue
                table.pop("_oracle", None)
                self.pool += list(table.items())
                try:
                    self.known[path.stem] = numbers(cap.load_model(table))
                except cap.CapacityError:
                    if not options.refused_too:
                        continue
                self.bases[path.stem] = table
        self.names = sorted(self.bases)
        self.sensitive = {name: self._sensitive(name) for name in self.names}

    def _sensitive(self, name: str) -> set[str]:
        """Top keys of a base on which a number depends: another valid value of the same type moves one."""
        found = set()
        for key, value in self.bases[name].items():
            tries = {bool: [not value], int: [value * 2, value + 1, value // 2] if isinstance(value, int) else []}.get(
                type(value), []
            )
            for other in tries:
                try:
                    if moved(self.known.get(name, {}), numbers(cap.load_model({**self.bases[name], key: other})), 0.0):
                        found.add(key)
                        break
                except cap.CapacityError:
                    continue
                except Exception:  # counted when the case itself comes up
                    continue
        return found

    def case(self, rng: random.Random) -> Case:
        name = rng.choice(self.names)
        if rng.random() < 0.2:
            text = json.dumps(self.bases[name], indent=rng.choice([None, 1])).encode()
            if rng.random() < 0.2:
                key = rng.choice(list(self.bases[name]))
                twice = f"{{{json.dumps(key)}: {json.dumps(rng.choice(WRONG[:20]))}, ".encode()
                return Case(name, "duplicate", key, twice + text.lstrip()[1:])
            return mutate_text(rng, text, name)
        return mutate_table(rng, self.bases[name], name, self.pool)

    def judge(self, case: Case) -> tuple[str, str] | None:
        table = parse_object(case.given, "config.json") if isinstance(case.given, bytes) else case.given
        if case.operation == "duplicate":
            return "nonsense", "a key given twice was accepted"
        model = cap.load_model(table)
        found = numbers(model)
        fault = nonsense(found, model) or sums(cap.size(model, HARDWARE, cap.Workload(concurrency=2), PLAIN))
        if fault:
            return "absurd" if fault.startswith("absurd") else "nonsense", fault
        base = self.known.get(case.base)
        if base is None or isinstance(case.given, bytes):
            return None
        change = moved(base, found, MOVED)
        said = " ".join((*model.notes, *model.assumed))
        leaf = case.key.rpartition(".")[2]
        if (
            case.operation in ("delete", "null", "rename")
            and change
            and not mentions(said, leaf, self.bases[case.base], table)
        ):
            return "dropped", f"{change}; nothing names {case.key}"
        if case.operation == "type" and case.key in self.sensitive[case.base]:
            before, after = self.bases[case.base][case.key], table[case.key]
            if wrong_type(before, after) and after is not None:
                return "typed", f"{case.key}: {before!r:.30} -> {after!r:.30} accepted; {change or 'same numbers'}"
        if case.operation == "list" and change:
            before, after = look_dotted(self.bases[case.base], case.key), look_dotted(table, case.key)
            if isinstance(after, list) and len(before) != len(after) and len(before) == model.decoder.layer_count:
                return "listed", f"{case.key}: {len(before)} -> {len(after)} entries; {change}"
        return None


def look_dotted(table: Any, dotted: str) -> Any:
    for part in dotted.split("."):
        table = table[int(part)] if isinstance(table, list) else table[part]
    return table


def wrong_type(before: Any, after: Any) -> bool:
    if isinstance(before, bool) or isinstance(after, bool):
        return type(before) is not type(after)
    return not isinstance(after, type(before))


def moved(base: dict[str, float], found: dict[str, float], share: float) -> str:
    """The figures that differ by more than ``share``, as text; empty where none does. Bytes as stored are left out."""
    told = []
    for name, value in base.items():
        if name in ("stored",):
            continue
        if abs(found[name] - value) > share * max(abs(value), 1e-30):
            told.append(f"{name} {value:.6g} -> {found[name]:.6g}")
    return ", ".join(told[:4])


def mentions(said: str, key: str, base: Any, table: Any) -> bool:
    """Whether the notes name the key that went, or the name that it has now."""
    if key in said:
        return True
    new = {str(path[-1]) for path in leaves(table)} - {str(path[-1]) for path in leaves(base)}
    return any(name.strip() and name in said for name in new)


class Toml(Target):
    """Base of parts and servers: tables given as such and as files."""

    pattern = ""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        super().__init__(options, folder)
        self.texts = {path.stem: path.read_bytes() for path in sorted(PARTS.glob(self.pattern))}
        self.bases = {name: tomllib.loads(text.decode()) for name, text in self.texts.items()}
        self.pool = [item for table in self.bases.values() for item in table.items()]
        self.pool += [("based_on", name) for name in [*self.bases, "nothing", 3, "../../etc/passwd", ""]]
        self.names = sorted(self.bases)
        self.model = cap.load_model("llama-3.1-8b")

    def case(self, rng: random.Random) -> Case:
        name = rng.choice(self.names)
        if rng.random() < 0.25:
            return mutate_text(rng, self.texts[name], name)
        table = {"id": name, **self.bases[name]}
        if rng.random() < 0.15:
            table = {
                "based_on": rng.choice(self.names),
                **dict(rng.sample(sorted(self.bases[name].items(), key=str), 2)),
            }
        return mutate_table(rng, table, name, self.pool)

    def source(self, case: Case) -> Any:
        return str(self.write("case.toml", case.given)) if isinstance(case.given, bytes) else case.given


class Parts(Toml):
    name, pattern = "parts", "*.toml"

    def judge(self, case: Case) -> tuple[str, str] | None:
        part = cap.load_hardware(self.source(case))
        sizing = cap.size(self.model, part, cap.Workload(), cap.Deployment(weights="bf16", tensor_parallel=2))
        fault = sums(sizing)
        if fault is None and not (0 < part.usable_bytes < 1e16 and 0 < part.memory.bytes_per_s < 1e18):
            fault = f"usable {part.usable_bytes}, {part.memory.bytes_per_s} B/s"
        peak = max(part.peak_flop_per_s.values(), default=0)
        if fault is None and peak > 1e21:
            fault = f"peak {peak:.3g} FLOP/s"
        return ("nonsense", fault) if fault else None


class Servers(Toml):
    name, pattern = "servers", "servers/*.toml"

    def judge(self, case: Case) -> tuple[str, str] | None:
        server = cap.load_server(self.source(case))
        json.dumps(server.model_dump(mode="json"), allow_nan=False)
        return None if server.devices >= 1 else ("nonsense", f"{server.devices} devices")


class Deployments(Target):
    """Random fields of Deployment and Workload on shipped models and parts."""

    name = "deployments"
    formats = (
        "bf16",
        "fp16",
        "fp8_e4m3",
        "int8",
        "int4_g128",
        "mxfp4",
        "nvfp4",
        "fp32",
        "as_stored",
        "int4",
        "",
        "BF16",
        "q4_k",
        None,
        4,
    )
    odd = (0, -1, 1.5, "2", True, None, 2**31, 2**40, 65536, 65537, math.nan, math.inf, [], {}, 10**400)

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        super().__init__(options, folder)
        self.models = [cap.load_model(name) for name in cap.model_ids()]
        self.parts = [cap.load_hardware(name) for name in cap.hardware_ids()]

    def case(self, rng: random.Random) -> Case:
        degrees = [1, 1, 2, 3, 4, 5, 8, 16, 64, 128]
        pick = lambda good: rng.choice(self.odd) if rng.random() < 0.06 else rng.choice(good)  # noqa: E731
        fields = {
            "weights": lambda: rng.choice(self.formats),
            "activations": lambda: rng.choice(self.formats),
            "kv_cache": lambda: rng.choice(self.formats),
            "state": lambda: rng.choice(self.formats),
            "tensor_parallel": lambda: pick(degrees),
            "pipeline_parallel": lambda: pick(degrees),
            "data_parallel": lambda: pick(degrees),
            "expert_parallel": lambda: pick(degrees),
            "memory_fraction": lambda: pick([0.9, 1.0, 0.5, 1e-9, 1]),
            "reserved_bytes": lambda: pick([0, 10**9, 2**53]),
            "block_tokens": lambda: pick([1, 16, 256, 65536]),
            "max_sequences": lambda: pick([1, 256, 2**31]),
            "prefill_chunk_tokens": lambda: pick([1, 512, 8192, 2**31]),
            "engine": lambda: rng.choice(["reference", "vllm", "sglang", "vlm", "", 1]),
            "overrides": lambda: rng.choice(
                [
                    [],
                    {"part": "lm_head", "format": "int8"},
                    [
                        {
                            "part": "kv_cache",
                            "format": "int8",
                            "layers": rng.choice(["0:4", ":", "4:2", "a", "99999:", "-1:"]),
                        }
                    ],
                    "x",
                    [1],
                ]
            ),
            "draft": lambda: rng.choice([None, {"tokens": 4, "acceptance": 0.7}, {"tokens": 0, "acceptance": 2}, 3]),
            "unknown_field": lambda: 1,
        }
        chosen = rng.sample(sorted(fields), rng.randrange(0, 6))
        deploy = {name: fields[name]() for name in chosen}
        if rng.random() < 0.5:
            deploy.setdefault("weights", "bf16")
        work = {
            name: pick([1, 7, 128, 4096, 131072, 2**20, 2**31])
            for name in rng.sample(["prompt_tokens", "output_tokens", "concurrency"], rng.randrange(0, 4))
        }
        if rng.random() < 0.2:
            work[rng.choice(["requests_per_s", "max_ttft_s", "max_tpot_s", "percentile"])] = pick(
                [0.5, 1e-300, 1e300, 99, 100]
            )
        return Case("", "fields", ",".join(chosen), (rng.choice(self.models), rng.choice(self.parts), deploy, work))

    def judge(self, case: Case) -> tuple[str, str] | None:
        model, part, deploy, work = case.given
        chosen, asked = cap.Deployment(**deploy), cap.Workload(**work)
        sizing = cap.size(model, part, asked, chosen)
        fault = sums(sizing)
        if fault is None:
            one = cap.weight_bytes(model, chosen)
            whole = cap.weight_bytes(
                model, cap.Deployment(**{k: v for k, v in deploy.items() if not k.endswith("_parallel")})
            )
            if one > whole * 1.01 + 10**6:
                fault = f"weights of a device {one} of {chosen.devices} are more than the whole {whole}"
        if fault is None and 0 < sizing.max_batch < 2**31 and deploy.get("max_sequences") is None:
            try:
                beyond = cap.size(model, part, cap.Workload(**{**work, "concurrency": sizing.max_batch + 1}), chosen)
                at = cap.size(model, part, cap.Workload(**{**work, "concurrency": sizing.max_batch}), chosen)
                if beyond.fits or not at.fits:
                    fault = f"max batch {sizing.max_batch}: at it {at.fits}, one more {beyond.fits}"
            except cap.CapacityError:
                pass
        return ("nonsense", f"{model.name} on {part.id} {deploy} {work}: {fault}") if fault else None


class Runs(Target):
    """Lines of run records."""

    name = "runs"

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        super().__init__(options, folder)
        from capacity.catalog.runs import read_runs

        self.read = read_runs
        paths = sorted((PACKAGE / "data/runs").glob("*.jsonl"))
        self.lines = [line for path in paths for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        self.tables = [json.loads(line) for line in self.lines]

    def case(self, rng: random.Random) -> Case:
        if rng.random() < 0.3:
            return mutate_text(rng, "\n".join(rng.sample(self.lines, 3)).encode(), "runs")
        case = mutate_table(rng, rng.choice(self.tables), "runs", [("values", {"read_bytes_per_s": 1.0})])
        if rng.random() < 0.5 and isinstance(case.given, dict):  # sealed anew, as an outsider can
            case.given.pop("run_id", None)
            try:
                from capacity.specs.measured_run import MeasuredRun

                sealed = MeasuredRun.parse(case.given, "x").sealed()
                case.given = {"schema_version": 1} | sealed.model_dump(mode="json", exclude_defaults=True)
                case.operation += ", sealed"
            except cap.CapacityError:
                case.given["run_id"] = "0" * 64
        return case

    def judge(self, case: Case) -> tuple[str, str] | None:
        text = case.given if isinstance(case.given, bytes) else json.dumps(case.given)
        for run in self.read(self.write("case.jsonl", text)):
            if run.samples_s and not (
                math.isfinite(run.spread) and run.spread >= 1 and math.isfinite(run.read_bytes_per_s)
            ):
                return "nonsense", f"spread {run.spread}, {run.read_bytes_per_s} B/s"
            _ = run.reject_reason, run.p95_s if run.samples_s else 0, run.tokens_per_s if run.samples_s else 0
        return None


class Tables(Target):
    """Published tables through `capacity validate --published`."""

    name = "tables"

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        super().__init__(options, folder)
        from capacity.validation import published_speed, published_world

        data = PACKAGE / "data/published"
        self.kinds = [
            (published_speed.validate, data / "speed.csv"),
            (published_world.validate, data / "world_truth.csv"),
        ]
        self.rows = [list(csv.reader(io.StringIO(path.read_text(encoding="utf-8")))) for _, path in self.kinds]

    def case(self, rng: random.Random) -> Case:
        kind = rng.randrange(2)
        rows = [list(row) for row in self.rows[kind]]
        keep = rng.sample(range(1, len(rows)), min(len(rows) - 1, 12))
        rows = [rows[0], *(rows[i] for i in keep)]
        for _ in range(rng.randrange(1, 3)):
            at = rng.randrange(len(rows))
            column = rng.randrange(len(rows[at]))
            rows[at][column] = str(
                rng.choice([*[w for w in WRONG if w != 10**4000], "=1+1", "\r\n", '"', "1e999", "-5", "0", "9" * 30])
            )
        if rng.random() < 0.15:
            rows[rng.randrange(len(rows))].pop()
        if rng.random() < 0.1:
            rows[rng.randrange(len(rows))].append("extra")
        text = io.StringIO()
        csv.writer(text).writerows(rows)
        content = text.getvalue().encode("utf-8", "surrogatepass")
        if rng.random() < 0.2:
            content = mutate_text(rng, content, "").given
        return Case(str(kind), "cells", "", content)

    def judge(self, case: Case) -> tuple[str, str] | None:
        answer = self.kinds[int(case.base)][0](self.write("case.csv", case.given))
        str(answer)
        try:
            json.dumps(answer.to_dict(), allow_nan=False)
        except ValueError:
            return "nonsense", "a NaN or infinity in the answer"
        return None


class Headers(Target):
    """Headers of safetensors files, alone and beside a configuration."""

    name = "headers"

    def case(self, rng: random.Random) -> Case:
        table, end = {}, 0
        for index in range(rng.randrange(1, 6)):
            shape = [rng.choice([1, 2, 3, 8, 64]) for _ in range(rng.randrange(0, 3))]
            kind, bits = rng.choice([("BF16", 16), ("F32", 32), ("U8", 8), ("F4", 4), ("F6_E2M3", 6)])
            size = -(-math.prod(shape) * bits // 8)
            table[f"model.layers.{index}.w"] = {"dtype": kind, "shape": shape, "data_offsets": [end, end + size]}
            end += size
        if rng.random() < 0.5:
            table["__metadata__"] = {"format": "pt"}
        case = mutate_table(
            rng, table, "header", [("model.x", {"dtype": "BF16", "shape": [2**62, 4], "data_offsets": [0, 0]})]
        )
        header = json.dumps(case.given).encode("utf-8", "surrogatepass")
        if rng.random() < 0.25:
            header = mutate_text(rng, header, "").given
        length = (
            len(header) if rng.random() < 0.9 else rng.choice([0, 1, 2**63, 2**64 - 1, len(header) + end, 10**8 + 1])
        )
        content = length.to_bytes(8, "little") + header + b"\0" * max(0, end + rng.choice([0, 0, 0, 1, -1]))
        return Case(
            "header",
            case.operation,
            case.key,
            content[: rng.choice([len(content)] * 9 + [rng.randrange(len(content))])],
        )

    def judge(self, case: Case) -> tuple[str, str] | None:
        path = self.write("model.safetensors", case.given)
        found = read_header(path)
        read_folder(self.folder)
        total = sum(tensor.data_bytes for tensor in found.values())
        if total > len(case.given):
            return "nonsense", f"{total} bytes of tensors in a file of {len(case.given)}"
        return None


class Yaml(Target):
    """DreamerV3 files and vision, OpenVLA and policy configurations of world models."""

    name = "worlds"

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        super().__init__(options, folder)
        self.part = cap.load_hardware("nvidia-jetson-agx-orin-64gb")
        self.bases: dict[str, dict[str, Any]] = {
            path.stem: json.loads(path.read_text(encoding="utf-8"))
            for path in sorted((PACKAGE / "data/world_models").glob("*.json"))
        }
        self.bases["dreamer-12m"] = {
            "size12m": {".*\\.rssm": {"deter": 2048, "hidden": 256, "classes": 16}, ".*\\.depth": 16, ".*\\.units": 256}
        }
        self.bases["policy-pi0"] = {
            "type": "pi0",
            "chunk_size": 50,
            "n_action_steps": 50,
            "max_action_dim": 32,
            "dtype": "bfloat16",
        }
        self.bases["policy-smolvla"] = {"type": "smolvla", "chunk_size": 50, "n_action_steps": 50}
        for place in options.configs:
            for path in sorted(Path(place).glob("*.json")):
                try:
                    table = json.loads(path.read_text(encoding="utf-8"))
                    table.pop("_oracle", None)
                    cap.load_world_model(table, path.stem)
                    self.bases[f"outside {path.stem}"] = table
                except Exception:
                    continue
        self.names = sorted(self.bases)
        self.pool = [item for table in self.bases.values() for item in table.items()]

    def case(self, rng: random.Random) -> Case:
        name = rng.choice(self.names)
        if rng.random() < 0.2:
            text = json.dumps(self.bases[name], indent=1)
            if rng.random() < 0.3:
                text = (
                    rng.choice(
                        [
                            "a: &a [*a]\n",
                            "&a {b: *a}: 1\n",
                            "!!python/object/apply:os.system ['true']\n",
                            "a: !!binary x\n",
                            "<<: {x: 1}\n",
                            "? [a]\n: 1\n",
                            "a: 2001-99-99\n",
                            "x: &x 1\ny: *z\n",
                            "%YAML 9.9\n---\na: 1\n",
                            "--- a\n--- b\n",
                            "a: 0x_\n",
                            "a: 190:20:30\n",
                            "a: .nan\n",
                            "a: !!timestamp 1\n",
                            "{a: 1, a: 2}",
                        ]
                    )
                    + text
                )
            return mutate_text(rng, text.encode(), name)
        return mutate_table(rng, self.bases[name], name, self.pool)

    def judge(self, case: Case) -> tuple[str, str] | None:
        given = str(self.write("case.yaml", case.given)) if isinstance(case.given, bytes) else case.given
        world = cap.load_world_model(given, case.base)
        count = cap.parameter_count(world.model)
        if not 0 < count.total < MAX_PARAMETERS or count.active > count.total:
            return "nonsense", f"{count.total} parameters, {count.active} active"
        answer = cap.control(
            world, self.part, cap.Deployment(), period_s=0.05, sensing_s=0.0, preprocessing_s=0.0, network_s=0.0
        )
        str(answer)
        try:
            json.dumps(answer.to_dict(), allow_nan=False)
        except ValueError:
            return "nonsense", "a NaN or infinity in the answer"
        return None


TARGETS = {kind.name: kind for kind in (Models, Parts, Servers, Deployments, Runs, Tables, Headers, Yaml)}


# ---------------------------------------------------------------- the loop


def on_alarm(signum: int, frame: Any) -> None:
    raise Hang


def resident_mebibytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def attempt(target: Target, case: Case, options: argparse.Namespace) -> tuple[str, str, str]:
    """Outcome (refused, accepted or a class of fault), what there is to say, and where a crash came from."""
    signal.setitimer(signal.ITIMER_PROF, options.seconds)
    signal.setitimer(signal.ITIMER_REAL, MAX_WAIT_S)
    try:
        fault = target.judge(case)
        return ("accepted", "", "") if fault is None else (*fault, "")
    except cap.CapacityError as error:
        fault = message_fault(error)
        return ("message", f"{fault}: {error}", "") if fault else ("refused", str(error), "")
    except Hang:
        where = traceback.extract_tb(sys.exc_info()[2])
        return (
            "hang",
            f"over {options.seconds} s",
            next((f"{f.filename}:{f.lineno}" for f in reversed(where) if "capacity" in f.filename), ""),
        )
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)
        place = next((f"{Path(f.filename).name}:{f.lineno}" for f in reversed(where) if "capacity" in f.filename), "")
        return "crash", f"{type(error).__name__}: {error!s:.200}", place
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)


def shown(given: Any) -> str:
    try:
        return repr(given)[:3000]
    except ValueError:
        return "(too large to print)"


@dataclass
class Report:
    """Faults as they come: a few of each kind printed, all of them written."""

    options: argparse.Namespace
    out: TextIO | None
    seen: Counter[tuple[str, ...]] = field(default_factory=Counter)

    def add(self, target: str, index: int, case: Case, outcome: str, text: str, place: str) -> None:
        operation, key = case.operation.split(",")[0], case.key.rpartition(".")[2]
        kind = (target, outcome, place, operation, key if outcome in ("dropped", "typed", "listed") else text[:40])
        self.seen[kind] += 1
        if self.seen[kind] <= self.options.show:
            about = f"[{case.base}: {case.operation} {case.key}]"
            print(f"{target} {index} {outcome} {place} {about} {text}"[:600], flush=True)
        if self.out:
            row = {"target": target, "index": index, "seed": self.options.seed, "fault": outcome, "place": place}
            row |= {"base": case.base, "operation": case.operation, "key": case.key, "text": text[:600]}
            self.out.write(json.dumps(row | {"given": shown(case.given)}) + "\n")


def run(target: Target, indices: Iterable[int], report: Report) -> Tally:
    """All cases of one target."""
    options, tally = report.options, Tally()
    for index in indices:
        case = target.case(random.Random(f"{options.seed} {target.name} {index}"))
        if options.replay:
            print(f"{case.base}: {case.operation} {case.key}\n{shown(case.given)}")
        before, start = resident_mebibytes(), time.process_time()
        outcome, text, place = attempt(target, case, options)
        took, grew = time.process_time() - start, resident_mebibytes() - before
        tally.slowest_s, tally.most_mebibytes = max(tally.slowest_s, took), max(tally.most_mebibytes, grew)
        if grew > options.mebibytes:
            text = f"grew by {grew:.0f} MiB; {text}"
            outcome = "memory" if outcome in ("accepted", "refused") else outcome
        tally.cases += 1
        tally.refused += outcome == "refused"
        tally.accepted += outcome == "accepted"
        if outcome not in ("accepted", "refused"):
            tally.faults[outcome] += 1
            report.add(target.name, index, case, outcome, text, place)
        if tally.cases % options.every == 0:
            print(json.dumps({target.name: tally.summary()}), file=sys.stderr, flush=True)
    return tally


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--configs", nargs="+", required=True, help="folders with config.json files of real models")
    parser.add_argument("--cases", default="2000", help="of each target, or name=count,name=count")
    parser.add_argument("--targets", default=",".join(TARGETS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--mebibytes", type=float, default=512.0)
    parser.add_argument("--refused-too", action="store_true", help="also mutate configurations that are refused")
    parser.add_argument("--out", help="JSON lines with every fault, and how to make it again")
    parser.add_argument("--replay", default="", help="one case, as target:index with the --seed of its run, printed")
    parser.add_argument("--show", type=int, default=5, help="faults printed of each class and place")
    parser.add_argument("--every", type=int, default=1000, help="cases after which the tally so far goes to stderr")
    options = parser.parse_args()
    if options.replay:
        options.targets = options.replay.partition(":")[0]
    return options


def wanted(options: argparse.Namespace) -> dict[str, Iterable[int]]:
    """Indices of the cases of each target."""
    if options.replay:
        return {options.targets: [int(options.replay.partition(":")[2])]}
    counts = dict.fromkeys(options.targets.split(","), 0)
    for item in options.cases.split(","):
        name, _, count = item.rpartition("=")
        counts |= dict.fromkeys([name] if name else counts, int(count))
    return {name: range(count) for name, count in counts.items()}


def main() -> int:
    options = parsed()
    signal.signal(signal.SIGPROF, on_alarm)
    signal.signal(signal.SIGALRM, on_alarm)
    limit = 8 * 2**30
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))  # a runaway case ends in MemoryError, not with the machine
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        out = None
        if options.out:
            out = stack.enter_context(open(options.out, "w", encoding="utf-8", errors="backslashreplace"))
        report = Report(options, out)
        tallies = {name: run(TARGETS[name](options, folder), cases, report) for name, cases in wanted(options).items()}
    print(json.dumps({name: tally.summary() for name, tally in tallies.items()}))
    return int(any(tally.faults for tally in tallies.values()))


if __name__ == "__main__":
    sys.exit(main())
