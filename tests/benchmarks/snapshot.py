"""Proof that a change of the code moved no number: a wide grid of answers, written by one version and by another.

For a change of the code that must not change answers: those of the old code, from a worktree, against those of the new.
It is run by hand and is no test; what it writes is not committed. The whole grid takes a minute or two per version.

    git worktree add ../old COMMIT
    python tests/benchmarks/snapshot.py write old.jsonl.gz --code ../old
    python tests/benchmarks/snapshot.py write new.jsonl.gz --code .
    python tests/benchmarks/snapshot.py compare old.jsonl.gz new.jsonl.gz [--causes causes.toml]

One line of a file is one call: ``["call|model|part|deployment|at", {figure: value}]``, or ``{"refused": class}`` where
it raised. Words are left out (verdicts, notes, what was assumed); figures have names of their own, fixed here, and the
section "adapters" is the only one that knows what either version calls them. A figure that a version does not have is
written as `GONE`.

``compare`` wants integers, strings and truth values equal and floats within 1e-12; it exits with 1 where something
differs. A file of causes names differences that are meant, and only others then count:

    [[cause]]
    name = "launch time of a decode step was counted twice"
    quantity = "tpot.attainable"  # a glob on call and figure; * by default
    key = "nvidia-.*tp8"          # a regular expression searched in the key; all by default
    max_relative = 0.02           # numbers only, and none that moved further
    kind = "number"               # a glob on the kind of change; "number" with a max_relative, else *
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import re
import subprocess
import sys
import textwrap
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache, partial
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import IO, Any

import numpy as np

RELATIVE = 1e-12
WIDTH = 100
GONE = "!no such attribute"
CASE = "@"  # begins the name of an operator, rank, phase or change, which belongs to the key and not to the quantity
Record = tuple[str, dict[str, Any]]

# ---------------------------------------------------------------------------------------------------------------- grid

BATCHES, CONTEXTS = (1, 3, 64), (1, 17, 4096, 131_072)
H100, ORIN = "nvidia-h100-sxm5-80gb", "nvidia-jetson-agx-orin-64gb"
ONE_THREAD = "amd-epyc-family-25-model-1-1-thread"  # the part with calibrated times
V100 = "nvidia-v100-sxm2-32gb"
COMPUTES = {ONE_THREAD: "fp32", V100: "fp16"}  # where a deployment names no activations: parts without bf16
PARTS = (
    H100, "nvidia-a100-sxm4-80gb", "nvidia-h200-sxm5-141gb", "nvidia-b200-sxm-180gb", "nvidia-l40s-pcie-48gb",
    "nvidia-rtx-4090-24gb", V100, ORIN, "amd-mi300x-oam-192gb", "intel-gaudi-3-oam-128gb",
    "apple-m3-ultra-512gb", ONE_THREAD,
)  # fmt: skip
SIZED_PARTS = (H100, "nvidia-rtx-4090-24gb", "amd-mi300x-oam-192gb", ONE_THREAD)
WORLD_PARTS = (
    ORIN, "nvidia-jetson-agx-thor-128gb", H100, "nvidia-a100-sxm4-80gb", "nvidia-rtx-4090-24gb",
    "nvidia-l40s-pcie-48gb",
)  # fmt: skip

DEPLOYMENTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "bf16": {"weights": "bf16"},
    "fp32": {"weights": "fp32", "activations": "fp32"},
    "fp16 computed": {"activations": "fp16"},
    "fp8": {"weights": "fp8_e4m3", "kv_cache": "fp8_e4m3"},
    "fp8 computed": {"weights": "fp8_e4m3", "activations": "fp8_e4m3"},
    "int4": {"weights": "int4_g128", "kv_cache": "fp8_e4m3"},
    "int8, fp32 computed": {"weights": "int8", "activations": "fp32"},
    "int8": {"weights": "int8", "kv_cache": "fp8_e4m3", "state": "fp32"},
    "tp2": {"tensor_parallel": 2},
    "tp8": {"tensor_parallel": 8},
    "pp2": {"pipeline_parallel": 2},
    "pp3": {"pipeline_parallel": 3},
    "pp4 tp2": {"pipeline_parallel": 4, "tensor_parallel": 2},
    "dp2 tp2 ep2": {"data_parallel": 2, "tensor_parallel": 2, "expert_parallel": 2},
    "dp2 pp2 ep2": {"data_parallel": 2, "pipeline_parallel": 2, "expert_parallel": 2},
    "overrides": {
        "overrides": (
            {"part": "kv_cache", "format": "fp8_e4m3", "layers": "8:16"},
            {"part": "lm_head", "format": "int8"},
            {"part": "experts", "format": "mxfp4"},
        )
    },
    "overrides tp2 pp2": {
        "tensor_parallel": 2,
        "pipeline_parallel": 2,
        "overrides": ({"part": "kv_cache", "format": "int8", "layers": ":5"}, {"part": "attention", "format": "fp16"}),
    },
    "reserved": {"reserved_bytes": 3 * 2**30, "memory_fraction": 0.5},
    "block 1": {"block_tokens": 1},
    "block 256, chunk 512": {"block_tokens": 256, "prefill_chunk_tokens": 512},
    "sequences 16, chunk 4096": {"max_sequences": 16, "prefill_chunk_tokens": 4096},
}
SIZED = ("plain", "fp8", "tp8", "pp3", "dp2 tp2 ep2", "sequences 16, chunk 4096")
WORKLOADS: dict[str, dict[str, Any]] = {
    "default": {},
    "short": {"prompt_tokens": 500, "output_tokens": 40, "concurrency": 4},  # within the range of calibrations
    "objectives": {
        "prompt_tokens": 1000, "output_tokens": 101, "concurrency": 24, "max_ttft_s": 0.2, "max_tpot_s": 0.02,
    },
}  # fmt: skip
ALL_PARTS = {"llama-3.1-8b": ("plain", "fp8"), "gpt-oss-120b": ("plain", "int4"), "llama-3.3-70b": ("fp8", "pp2")}

FORMATS = ("bf16", "fp16", "fp8_e4m3", "int8", "nvfp4")  # of ridge points

HELD = ("plain", "fp8", "fp16 computed", "int4")  # deployments that whose memory of world models is compared
ROBOT = {"period_s": 0.1, "sensing_s": 0.01, "preprocessing_s": 0.005, "network_s": 0.002}
CONTROLS: dict[str, tuple[str | None, str, dict[str, Any]]] = {  # launch mode, deployment, other options
    "None": (None, "plain", {}),
    "None, 3 robots": (None, "plain", {"robots": 3, "formats": ()}),
    "eager, chunked": ("eager", "plain", {"schedule": "chunked", "period_s": 0.5, "formats": ()}),
    "compiled, synchronous": ("compiled", "plain", {"schedule": "synchronous", "formats": ()}),
    "graph": ("graph", "plain", {}),
    "graph, 3 robots": ("graph", "plain", {"robots": 3, "formats": ()}),
    "graph, asynchronous": ("graph", "plain", {"schedule": "asynchronous", "executed_actions": 2, "formats": ()}),
    "graph, fp8": ("graph", "fp8", {"percentile": 90.0, "p99_over_p50": 1.4, "taken_bytes": 2**30, "formats": ()}),
    "tuned, fp8 computed": ("tuned", "fp8 computed", {"formats": ()}),
    "graph, chunks": ("graph", "plain", {"chunks": (2, 16), "formats": ("nvfp4",)}),
    "graph, power": ("graph", "plain", {"power_mode": "30W", "formats": ()}),
}
FRAMES: dict[str, tuple[str | None, dict[str, Any]]] = {
    "None": (None, {"frames_per_s": 10.0, "sessions": 1, "elapsed_s": 0.0, "window_tokens": None}),
    "graph": ("graph", {"frames_per_s": 4.0, "sessions": 8, "elapsed_s": 60.0, "window_tokens": None}),
    "graph, window": ("graph", {"frames_per_s": 20.0, "sessions": 3, "elapsed_s": 600.0, "window_tokens": 16_384}),
    "tuned, taken": (
        "tuned", {"frames_per_s": 1.0, "sessions": 1, "elapsed_s": 10.0, "window_tokens": None, "taken_bytes": 2**32},
    ),
}  # fmt: skip

# ------------------------------------------------------------------------------------------------------------ adapters


def cap() -> Any:
    """The package under test."""
    return import_module("capacity")


def read(thing: Any, *names: str) -> Any:
    """The first attribute that ``thing`` has of its old and new names, or `GONE`."""
    for name in names:
        try:
            return getattr(thing, name)
        except AttributeError:
            continue
    return GONE


def rows_of(thing: Any, *names: str) -> tuple[Any, ...]:
    """The same for what holds several; nothing where it is gone."""
    rows = read(thing, *names)
    return () if rows is GONE else tuple(rows.values() if isinstance(rows, Mapping) else rows)


def figures(thing: Any, names: str) -> dict[str, Any]:
    """Figures of a result by name; "old/new" is one that a later version calls new, under its old name."""
    return {name.split("/")[0]: read(thing, *name.split("/")) for name in names.split()}


def each(rows: Iterable[tuple[Any, dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Figures of several of a kind, as operators or ranks; the mark keeps their names apart from those of figures."""
    return {f"{CASE}{name}": label for name, label in rows}


@cache
def deployment(setup: str, **more: str) -> Any:
    """A deployment of `DEPLOYMENTS`; what it says itself stands."""
    return cap().Deployment(**more | DEPLOYMENTS[setup])


def on_part(part: str) -> dict[str, str]:
    """What a deployment says beside its name on some part."""
    return {"activations": COMPUTES[part]} if part in COMPUTES else {}


def control_of(world: Any, part: Any, setup: str, launch_mode: str | None, **options: Any) -> Any:
    """A control plan; without a launch mode the bound is judged."""
    return cap().control(
        world, part, deployment(setup, launch_mode=launch_mode), bound_only=launch_mode is None, **options
    )


def frames_of(world: Any, part: Any, setup: str, launch_mode: str | None, **options: Any) -> Any:
    """A frame plan; without a launch mode the bound is judged."""
    return cap().frames(
        world, part, deployment(setup, launch_mode=launch_mode), bound_only=launch_mode is None, **options
    )


def on_all_parts(model: Any, parts: Iterable[Any], setup: str, workload: Any) -> tuple[Any, ...]:
    """Rows of one question to all parts."""
    at = import_module("capacity.studies.size").OperatingPoint.of(workload)
    ask = import_module("capacity.studies.parts").size_on_all_parts
    return rows_of(ask(model, tuple(parts), deployment(setup), at, workload=workload), "rows")


def held_of(world: Any, setup: str, batch: int) -> dict[str, Any]:
    """Memory of a world model by what holds it. [B]"""
    table = import_module("capacity.engines.builder").memory_table(world, deployment(setup))
    lines = import_module("capacity.estimate.ledger").ledger_lines
    context = world.prompt_tokens + world.answer_tokens
    return by_use((x.name, x.held_bytes) for x in lines(table, 0, sequences=batch, context_tokens=context))


def by_use(lines: Iterable[tuple[str, int]]) -> dict[str, Any]:
    """Lines of a ledger by fixed names, whatever either version calls them. [B]"""
    sums: Counter[str] = Counter({"weights": 0, "kv": 0, "kv_rest": 0, "state": 0, "activations": 0})
    weights, others = [], {}
    for name, size in lines:
        use = _use(name)
        if use is None:
            others[f"{CASE}{name}"] = size
            continue
        sums[use] += int(size)
        if use == "weights":
            weights.append(int(size))
    return {f"{use}_bytes": size for use, size in sums.items()} | {"weights_parts": sorted(weights), "others": others}


def _use(name: str) -> str | None:
    low = name.lower()
    if low.startswith("weights"):
        return "weights"
    if low.startswith(("kv", "key-value", "cache")):
        return "kv_rest" if "unused" in low or "fragmentation" in low else "kv"
    return "state" if low.startswith("state") else "activations" if low.startswith("activation") else None


def estimate_figures(estimate: Any) -> dict[str, Any]:
    """An estimate: times, verdicts, and what binds by name."""
    rows = rows_of(estimate, "rows")
    return {
        **figures(estimate, "quantity bound roofline attainable value low high fits evidence largest_operator"),
        "bound_by": binding_names(read(estimate, "bound_by"), read(estimate, "operators")),
        "rows": each((read(row, "operator"), figures(row, "moved_bytes flop roofline_s bound_by")) for row in rows),
    }


def binding_names(bound_by: Any, operators: Any) -> Any:
    """What binds, in words; in arrays of the old code it is a code into ``operators``."""
    if isinstance(bound_by, str) or np.asarray(bound_by).dtype.kind not in "iu":
        return bound_by
    return np.asarray(operators, dtype=object)[np.asarray(bound_by)]


def sizing_figures(sizing: Any) -> dict[str, Any]:
    """A sizing: its numbers, verdicts and kinds of evidence, none of its sentences."""
    numbers = """
        devices batch memory_tokens tpot_context_tokens prompt_tokens fits margin_bytes max_batch max_context_tokens
        max_context_bound_by ridge_flop_per_byte intensity_flop_per_byte request_bound_s tokens_per_s_bound parameters
        active_parameters missed evidence
    """
    objectives = rows_of(sizing, "objectives")
    return {
        **figures(sizing, numbers),
        "ledger": each((f"rank {read(row, 'rank')}", ledger_figures(row)) for row in rows_of(sizing, "ledger")),
        "objectives": each((read(row, "name"), figures(row, "limit_s bound_s missed")) for row in objectives),
        "tpot": estimate_figures(read(sizing, "tpot")),
        "ttft": estimate_figures(read(sizing, "ttft")),
    }


def ledger_figures(ledger: Any) -> dict[str, Any]:
    """The memory of one device by use. [B]"""
    lines = [(read(line, "name"), read(line, "held_bytes")) for line in rows_of(ledger, "lines")]
    return by_use(lines) | figures(ledger, "devices total_bytes usable_bytes capacity_bytes margin_bytes")


def control_figures(plan: Any) -> dict[str, Any]:
    """A control plan: phases by name, what was judged, robots, and changes by kind and their order in it."""
    numbers = """
        missed_at_bound shares replan_per_s action_throughput_per_s control_per_s stall_share overlapped_interval_s
        delay_steps reaction_s needed_bytes usable_bytes met
    """
    timing = "period_s schedule chunk_actions executed_actions percentile p99_over_p50"
    change = "what time_s saved_s margin_s met needed_bytes cost_rank"
    cheapest = read(plan, "cheapest")
    return {
        **figures(plan, numbers),
        "timing": figures(read(plan, "timing"), timing),
        "decision": decision_figures(read(plan, "decision")),
        "judged": figures(read(plan, "judged", "verdict"), "latency_s late_s limit_s margin_s met miss_rate fits"),
        "robots": figures(read(plan, "robots"), "in_turns batched_at_any_time batched_together"),
        "changes": each((name, figures(row, change)) for name, row in by_kind(rows_of(plan, "changes"))),
        "unanswered": each(
            (name, figures(row, "what")) for name, row in by_kind(rows_of(plan, "refused", "not_evaluated"))
        ),
        "cheapest": None if cheapest is None else figures(cheapest, "kind time_s"),
    }


def by_kind(rows: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    """Each change with a name that has none of its wording: its kind and its place among those of its kind."""
    seen: Counter[str] = Counter()
    for row in rows:
        kind = read(row, "kind")
        yield f"{kind} {seen[kind]}", row
        seen[kind] += 1


def decision_figures(decision: Any) -> dict[str, Any]:
    """A decision and each of its phases."""
    phase = "passes flop moved_bytes launches bound_s bound_by memory_s compute_s launch_mode value_s"
    rows = rows_of(decision, "phases")
    return {
        **figures(decision, "bound_s value_s low_s high_s best_s evidence"),
        "phases": each((read(row, "name"), figures(row, phase)) for row in rows),
        "order": [read(row, "name") for row in rows],
    }


def frame_figures(plan: Any) -> dict[str, Any]:
    """A frame plan."""
    numbers = """
        sessions frame_s frame_bound_s budget_s met frames_per_s start_s sessions_in_time sessions_in_memory
        sessions_at_most cache_tokens session_bytes growth_bytes_per_s seconds_until_full
    """
    return {**figures(plan, numbers), "decision": decision_figures(read(plan, "decision"))}


def part_figures(row: Any) -> dict[str, Any]:
    """One part among all."""
    numbers = """
        fits devices margin_bytes max_batch max_context_tokens ttft_bound_s tpot_bound_s bound_by tokens_per_s_bound
        missed holds
    """
    return figures(row, numbers)


def count_figures(count: Any) -> dict[str, Any]:
    """Parameters."""
    return figures(count, "total active read_per_token embedding lm_head by_module")


# ------------------------------------------------------------------------------------------------------------- writing


def call(key: tuple[str, str, str, str, str], ask: Callable[[], Any], take: Callable[[Any], dict[str, Any]]) -> Record:
    """One record: the figures that are taken from an answer, or the class of the exception."""
    try:
        answer = ask()
    except Exception as error:  # any at all: a new TypeError is a finding
        return "|".join(key), {"refused": type(error).__name__}
    return "|".join(key), take(answer)


def value(answer: Any) -> dict[str, Any]:
    """The figures of an answer that is one number or array."""
    return {"value": answer}


def language_records(models: str) -> Iterator[Record]:
    """All shipped language models on `PARTS` under `DEPLOYMENTS`, batch and context as arrays."""
    parts = {name: cap().load_hardware(name) for name in PARTS}
    for name in matching(cap().model_ids(), models):
        model = cap().load_model(name)
        yield call(("parameter_count", name, "", "", ""), partial(cap().parameter_count, model), count_figures)
        for setup in DEPLOYMENTS:
            yield from model_records(name, model, setup)
            for part_name, part in parts.items():
                yield from part_records((name, part_name, setup), model, part)
        yield from sizing_records(name, model, parts)


def model_records(name: str, model: Any, setup: str) -> Iterator[Record]:
    """What depends on no part."""
    batch, context = np.array(BATCHES)[:, None], np.array(CONTEXTS)
    for figure, options in {
        "weight_bytes": {},
        "kv_cache_bytes": {"batch": batch, "context_tokens": context},
        "state_bytes": {"batch": batch},
        "activation_bytes": {"batch": batch, "tokens": context},
    }.items():
        ask = partial(asking, figure, (model,), deployment(setup), options)
        yield call((figure, name, "", setup, at(**options)), ask, value)


def part_records(key: tuple[str, str, str], model: Any, part: Any) -> Iterator[Record]:
    """Limits and times on one part."""
    batch, context = np.array(BATCHES), np.array(CONTEXTS)
    for figure, options, take in (
        ("max_batch", {"context_tokens": context}, value),
        ("max_context", {"batch": batch}, value),
        ("tpot", {"batch": batch[:, None], "context_tokens": context}, estimate_figures),
        ("ttft", {"batch": batch[:, None], "prompt_tokens": context}, estimate_figures),
    ):
        ask = partial(asking, figure, (model, part), deployment(key[2], **on_part(key[1])), options)
        yield call((figure, *key, at(**options)), ask, take)


def asking(figure: str, specs: tuple[Any, ...], deploy: Any, options: Mapping[str, Any]) -> Any:
    """One of the promised functions."""
    return getattr(cap(), figure)(*specs, deploy, **options)


def at(**numbers: np.ndarray) -> str:
    """The points of a call as text, in the order of the axes of its arrays."""
    return " x ".join(f"{name} {','.join(str(n) for n in array.flat)}" for name, array in numbers.items())


def sizing_records(name: str, model: Any, parts: Mapping[str, Any]) -> Iterator[Record]:
    """Sizings of one model, with ledgers and rows by operator."""
    for part, setup, (label, work) in product(SIZED_PARTS, SIZED, WORKLOADS.items()):
        ask = partial(sizing_of, model, parts[part], work, deployment(setup, **on_part(part)))
        yield call(("size", name, part, setup, label), ask, sizing_figures)


def sizing_of(model: Any, part: Any, work: Mapping[str, Any], deploy: Any) -> Any:
    """One sizing."""
    return cap().size(model, part, cap().Workload(**work), deploy)


def catalogue_records(models: str) -> Iterator[Record]:
    """What every part of the catalogue answers: ridge points, and one question to all of them."""
    parts = {name: cap().load_hardware(name) for name in cap().hardware_ids()}
    for name, number_format, measured in product(parts, FORMATS, (False, True)):
        key = ("ridge_point", "", name, "", f"{number_format} {'attainable' if measured else 'datasheet'}")
        yield call(key, partial(cap().ridge_point, parts[name], number_format, attainable=measured), value)
    for name in matching(ALL_PARTS, models):
        for setup, label in product(ALL_PARTS[name], WORKLOADS):
            yield from all_parts_records(name, parts, setup, label)


def all_parts_records(name: str, parts: Mapping[str, Any], setup: str, label: str) -> Iterator[Record]:
    """One question to all parts: a record a part, and one for their order."""
    rows: list[Any] = []

    def ask() -> list[str]:
        workload = cap().Workload(**WORKLOADS[label])
        rows.extend(on_all_parts(cap().load_model(name), parts.values(), setup, workload))
        return [read(row, "part") for row in rows]

    yield call(("all_parts", name, "", setup, label), ask, lambda names: {"order": names})
    for row in rows:
        yield f"all_parts|{name}|{read(row, 'part')}|{setup}|{label}", part_figures(row)


def world_records(models: str) -> Iterator[Record]:
    """All shipped world models on `WORLD_PARTS`."""
    parts = {name: cap().load_hardware(name) for name in WORLD_PARTS}
    for name in matching(cap().world_model_ids(), models):
        world = cap().load_world_model(name)
        for setup, batch in product(HELD, BATCHES):
            yield call(("held", name, "", setup, f"batch {batch}"), partial(held_of, world, setup, batch), dict)
        for part_name, part in parts.items():
            yield from robot_records((name, part_name), world, part)


def robot_records(key: tuple[str, str], world: Any, part: Any) -> Iterator[Record]:
    """Control plans and frame plans of one world model on one part."""
    for label, (mode, setup, options) in CONTROLS.items():
        if "power_mode" not in options or key[1] == ORIN:
            ask = partial(control_of, world, part, setup, mode, **ROBOT | options)
            yield call(("control", *key, setup, label), ask, control_figures)
    for label, (mode, options) in FRAMES.items():
        ask = partial(frames_of, world, part, "plain", mode, **options)
        yield call(("frames", *key, "plain", label), ask, frame_figures)


def matching(names: Iterable[str], glob: str) -> list[str]:
    """Those names that a glob takes."""
    return [name for name in names if fnmatchcase(name, glob)]


def write(path: Path, models: str) -> None:
    """Write the whole grid, one call a line."""
    began, count = time.process_time(), Counter[str]()
    unfinished = path.with_name(f"unfinished-{path.name}")
    with opened(unfinished, "w") as file:
        for records in (language_records, catalogue_records, world_records):
            for key, answer in records(models):
                file.write(json.dumps([key, answer], default=as_plain, separators=(",", ":")) + "\n")
                count["refused" if "refused" in answer else "answered"] += 1
            print(f"{records.__name__} done, {time.process_time() - began:.0f} s of one core", file=sys.stderr)
    unfinished.replace(path)
    took = time.process_time() - began
    print_wrapped(f"{path}: {path.stat().st_size / 1e6:.1f} MB, {took:.0f} s of one core, code {code_version()}")
    print_wrapped(f"{count['answered']:,} calls answered, {count['refused']:,} refused")


def as_plain(thing: Any) -> Any:
    """For JSON: arrays as lists, mappings as dictionaries, numpy scalars as Python's."""
    if isinstance(thing, np.ndarray | np.generic):
        return thing.tolist()
    if isinstance(thing, Mapping):
        return dict(thing)
    raise TypeError(f"snapshot.py: a {type(thing).__name__} among the figures; teach the adapters what it is")


def opened(path: Path, mode: str) -> IO[str]:
    """A text file, compressed where its name says so."""
    if path.suffix == ".gz":
        return gzip.open(path, mode + "t", encoding="utf-8", compresslevel=4)
    return path.open(mode, encoding="utf-8")


def code_version() -> str:
    """Where the package under test lies, and its commit."""
    home = Path(cap().__file__).resolve().parent.parent
    described = subprocess.run(["git", "-C", home, "describe", "--always", "--dirty"], capture_output=True, text=True)
    return f"{home} {described.stdout.strip()}".strip()


# ----------------------------------------------------------------------------------------------------------- comparing


@dataclass(frozen=True)
class Difference:
    """One leaf that differs. ``relative`` is the change of a number over its old value."""

    key: str
    quantity: str
    kind: str
    old: Any
    new: Any
    relative: float | None = None


@dataclass(frozen=True)
class Cause:
    """A difference that is meant."""

    name: str
    quantity: str = "*"
    key: str = ""
    max_relative: float | None = None
    kind: str = ""

    def explains(self, difference: Difference) -> bool:
        """Whether this is why ``difference`` is meant."""
        kind = self.kind or ("*" if self.max_relative is None else "number")
        if not fnmatchcase(difference.quantity, self.quantity) or not fnmatchcase(difference.kind, kind):
            return False
        if self.max_relative is not None and not (
            difference.relative is None or abs(difference.relative) <= self.max_relative
        ):
            return False
        return re.search(self.key, difference.key) is not None


@dataclass
class Comparison:
    """All differences, and how many leaves were equal."""

    equal: int = 0
    calls: int = 0
    differences: list[Difference] = field(default_factory=list)


def compare_files(old: Path, new: Path, models: str) -> Comparison:
    """Compare two files call by call; lines that are the same text are equal without being parsed."""
    before, after, result = lines_of(old, models), lines_of(new, models), Comparison()
    for key in dict.fromkeys((*before, *after)):
        result.calls += 1
        name = key.split("|")[0]
        if key not in before or key not in after:
            kind = "call is new" if key in after else "call is gone"
            result.differences.append(Difference(key, name, kind, before.get(key), after.get(key)))
            continue
        was, now = json.loads(before[key]), json.loads(after[key])
        if before[key] == after[key]:
            result.equal += leaves(was)
            continue
        for item in call_differences(key, name, was, now):
            if item is None:
                result.equal += 1
            else:
                result.differences.append(item)
    return result


def lines_of(path: Path, models: str) -> dict[str, str]:
    """Answers of a file by call, as JSON."""
    answers = {}
    with opened(path, "r") as file:
        for line in file:
            key, _, answer = line.rstrip("\n")[2:-1].partition('",')
            if not (model := key.split("|")[1]) or fnmatchcase(model, models):
                answers[key] = answer
    return answers


def leaves(answer: Any) -> int:
    """How many values an answer holds."""
    if isinstance(answer, dict):
        return sum(map(leaves, answer.values()))
    return sum(map(leaves, answer)) if isinstance(answer, list) else 1


def call_differences(key: str, name: str, old: dict[str, Any], new: dict[str, Any]) -> Iterator[Difference | None]:
    """Differences of two answers to one call, None for each leaf that is equal."""
    was, now = "refused" in old, "refused" in new
    if was and now:
        equal = old["refused"] == new["refused"]
        yield None if equal else Difference(key, name, "refused otherwise", old["refused"], new["refused"])
    elif was:
        yield Difference(key, name, "refused before, answered now", old["refused"], "an answer")
    elif now:
        yield Difference(key, name, "answered before, refused now", "an answer", new["refused"])
    else:
        yield from differences(key, name, old, new)


def differences(key: str, quantity: str, old: Any, new: Any) -> Iterator[Difference | None]:
    """Walk two values; names of figures go on in the quantity, those of cases (a rank, an operator) in the key."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name in dict.fromkeys((*old, *new)):
            case = name.startswith(CASE)
            deeper, place = (quantity, f"{key}|{name[1:]}") if case else (f"{quantity}.{name}", key)
            if name in old and name in new:
                yield from differences(place, deeper, old[name], new[name])
            else:
                kind = "figure is new" if name in new else "figure is gone"
                yield Difference(place, deeper, kind, old.get(name, ""), new.get(name, ""))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (was, now) in enumerate(zip(old, new, strict=True)):
            yield from differences(f"{key}[{index}]", quantity, was, now)
    else:
        yield leaf_difference(key, quantity, old, new)


def leaf_difference(key: str, quantity: str, old: Any, new: Any) -> Difference | None:
    """How two single values differ; None where they do not."""
    missing = [item is None or (isinstance(item, float) and math.isnan(item)) for item in (old, new)]
    if all(missing) or (type(old) is type(new) and old == new):
        return None
    if GONE in (old, new):
        return Difference(key, quantity, "attribute is gone" if new == GONE else "attribute is new", old, new)
    if any(missing):
        return Difference(key, quantity, "number appears" if missing[0] else "number vanishes", old, new)
    if is_number(old) and is_number(new):
        if old == new:
            return Difference(key, quantity, f"{type(old).__name__} becomes {type(new).__name__}", old, new, 0.0)
        change = (new - old) / abs(old) if old else math.copysign(math.inf, new)
        exact = isinstance(old, int) or isinstance(new, int)
        return Difference(key, quantity, "number", old, new, change) if exact or not abs(change) <= RELATIVE else None
    if isinstance(old, bool) and isinstance(new, bool):
        return Difference(key, quantity, f"{old} becomes {new}", old, new)
    if isinstance(old, list) and isinstance(new, list):
        return Difference(key, quantity, "other length", old, new)
    same = type(old) is type(new)
    kind = "text" if same else f"{type(old).__name__} becomes {type(new).__name__}"
    return Difference(key, quantity, kind, old, new)


def is_number(item: Any) -> bool:
    """Whether a value is a number and no truth value."""
    return isinstance(item, int | float) and not isinstance(item, bool)


# ----------------------------------------------------------------------------------------------------------- reporting


def causes_in(path: Path | None) -> list[Cause]:
    """The causes of a file, or none."""
    if path is None:
        return []
    return [Cause(**item) for item in tomllib.loads(path.read_text(encoding="utf-8")).get("cause", [])]


def report(result: Comparison, causes: list[Cause]) -> int:
    """Print what differs, by cause or unexplained; 1 where something is unexplained."""
    explained: dict[str, list[Difference]] = {cause.name: [] for cause in causes}
    left: list[Difference] = []
    for item in result.differences:
        cause = next((cause.name for cause in causes if cause.explains(item)), None)
        (left if cause is None else explained[cause]).append(item)
    differ = len(result.differences)
    print_wrapped(
        f"{result.calls:,} calls; {result.equal:,} values equal, {differ:,} differ, {len(left):,} unexplained"
    )
    for cause, members in explained.items():
        print_wrapped(
            f"\nCAUSE {cause}: {len(members):,} differences" if members else f"\nCAUSE {cause}: explains nothing"
        )
        for group in grouped(members):
            print_wrapped(headline(group), 2)
    if left:
        print_wrapped("\nUNEXPLAINED" if causes else "\nDIFFERENCES")
        for group in grouped(left):
            print_group(group)
    return 1 if left else 0


def grouped(differing: Iterable[Difference]) -> list[list[Difference]]:
    """Differences by quantity and kind of change, largest group first."""
    groups: dict[tuple[str, str], list[Difference]] = defaultdict(list)
    for item in differing:
        groups[item.quantity, item.kind].append(item)
    return sorted(groups.values(), key=lambda group: -len(group))


def headline(group: list[Difference]) -> str:
    """Quantity, kind, count and range of change of a group."""
    changes = [item.relative for item in group if item.relative is not None]
    span = f", relative change {min(changes):+.2e} to {max(changes):+.2e}" if changes else ""
    return f"{group[0].quantity}: {group[0].kind}, {len(group):,} x{span}"


def print_group(group: list[Difference]) -> None:
    """One group in a few lines: where it is, and examples from its beginning, middle and largest change."""
    print_wrapped("\n" + headline(group), 2)
    for place, name in enumerate(("models", "parts", "deployments", "options"), start=1):
        counts = Counter(text for item in group if (text := item.key.split("|")[place].split("[")[0]))
        if counts:
            frequent = "; ".join(f"{key} ({count:,})" for key, count in counts.most_common(6))
            print_wrapped(f"{name} ({len(counts)}): {frequent}{'; ...' if len(counts) > 6 else ''}", 6)
    largest = max(group, key=lambda item: abs(item.relative or 0.0))
    for item in dict.fromkeys((group[0].key, group[len(group) // 2].key, largest.key)):
        example = next(one for one in group if one.key == item)
        print_wrapped(f"e.g. {item}", 6)
        print_wrapped(f"{short(example.old)}  ->  {short(example.new)}", 11)


def short(thing: Any) -> str:
    """A value on one line."""
    text = repr(thing)
    return text if len(text) <= 150 else text[:147] + "..."


def print_wrapped(text: str, indent: int = 0) -> None:
    """Print within the width."""
    if text.startswith("\n"):
        print()
    margin = " " * indent
    print(textwrap.fill(text.strip(), WIDTH, initial_indent=margin, subsequent_indent=margin + "    "))


def main() -> int:
    """Parse the command line and run one of the two commands."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    writing = commands.add_parser("write", help="write the answers of one version")
    writing.add_argument("out", type=Path, help="FILE.jsonl or FILE.jsonl.gz")
    writing.add_argument("--code", type=Path, help="folder that holds the package; else the one Python finds")
    comparing = commands.add_parser("compare", help="compare two files; exit 1 where they differ")
    comparing.add_argument("old", type=Path)
    comparing.add_argument("new", type=Path)
    comparing.add_argument("--causes", type=Path, help="TOML file of differences that are meant")
    for command in (writing, comparing):
        command.add_argument("--models", default="*", help="only models whose name this glob takes")
    arguments = parser.parse_args()
    if arguments.command == "compare":
        return report(compare_files(arguments.old, arguments.new, arguments.models), causes_in(arguments.causes))
    if arguments.code is not None:
        sys.path.insert(0, str(arguments.code.resolve()))
    write(arguments.out, arguments.models)
    return 0


if __name__ == "__main__":
    sys.exit(main())
