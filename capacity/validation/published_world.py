"""World models compared with published rows: bounds, estimates held out by source, memory, conflicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import ClassVar

from capacity.catalog.worlds import load_world_model
from capacity.engines.builder import memory_table
from capacity.errors import CapacityError
from capacity.estimate.case import prepare
from capacity.estimate.decision import decide
from capacity.estimate.ledger import ledger_lines
from capacity.results import OUTSIDE_DECISION, OUTSIDE_MEMORY, Result
from capacity.specs.world import WorldModelSpec
from capacity.validation.compare import Errors, Pair, by_group, share_within, summarise
from capacity.validation.fit_world import MODES, hold_out
from capacity.validation.published_table import positive
from capacity.validation.world_rows import PublishedCase, deployment_of, model_id, names, read_cases, read_rows

TARGET_MEDIAN, TARGET_WITHIN, WITHIN = 0.25, 0.65, 0.25
TARGET_MODES = ("graph", "tuned")
MAX_EXCEPTIONS = 0.05


@dataclass(frozen=True)
class Exceeded:
    """A row whose bound lies above the measurement; ``cause`` is empty when no condition in the data explains it."""

    case_id: str
    bound_s: float
    measured_s: float
    cause: str


@dataclass(frozen=True)
class ModeSummary:
    """One launch mode: rows, median of bound over measured, and errors of estimates held out by source."""

    mode: str
    rows: int
    median_bound_share: float
    errors: Errors | None


@dataclass(frozen=True)
class Conflict:
    """Several published values of one configuration, and the estimate to compare with their range. [s]"""

    configuration: str
    low_s: float
    high_s: float
    estimate_s: float
    case_ids: tuple[str, ...]


@dataclass(frozen=True)
class MemoryRow:
    """A published memory figure; ``cause`` says why it is outside the tolerance or cannot be compared. [B]"""

    pair: Pair
    within: bool
    fixed_bytes: float
    cause: str


@dataclass(frozen=True, repr=False, eq=False)
class WorldValidation(Result):
    """The result of `validate`. ``bound_rows`` are the times whose number format is stated, so that a bound is one."""

    DERIVED: ClassVar = ("passed",)

    rows: int
    pairs: tuple[Pair, ...]
    held_out: tuple[Pair, ...]
    unjudged: dict[str, tuple[str, ...]]
    bound_rows: int
    exceeded: tuple[Exceeded, ...]
    modes: tuple[ModeSummary, ...]
    target_rows: int
    target_median: float | None
    target_within: float | None
    conflicts: tuple[Conflict, ...]
    memory: tuple[MemoryRow, ...]
    assumed: tuple[str, ...] = ("number format of rows that state none (their bounds are not judged)",)
    notes: tuple[str, ...] = ()
    not_modelled: tuple[str, ...] = (*OUTSIDE_MEMORY, *OUTSIDE_DECISION)

    @property
    def passed(self) -> bool:
        """Bounds and memory hold but for explained exceptions, and the latency target is met where rows judge it."""
        few = len(self.exceeded) <= MAX_EXCEPTIONS * self.bound_rows
        explained = all(item.cause for item in self.exceeded) and all(row.within or row.cause for row in self.memory)
        return few and explained and self.target_met is not False

    @property
    def target_met(self) -> bool | None:
        """Whether graph and TensorRT rows are predicted as promised; None where no row judges it."""
        if self.target_median is None or self.target_within is None:
            return None
        return self.target_median <= TARGET_MEDIAN and self.target_within >= TARGET_WITHIN


def validate(file: str | Path | None = None) -> WorldValidation:
    """Compare every row that can be judged; rows of the shipped table are predicted with their source left out.

    Parameters
    ----------
    file : path or None
        Another table with the columns of the shipped one. Its rows are predicted with the shipped calibrations,
        none of which saw them.

    Raises
    ------
    CapacityError
        If the file cannot be read, lacks columns, or has no row that can be judged.
    """
    rows = read_rows(file)
    cases, unjudged = read_cases(rows)
    in_memory = _memory_rows(rows)
    if not cases and not in_memory:
        reasons = "; ".join(f"{reason}: {', '.join(ids[:5])}" for reason, ids in unjudged.items())
        raise CapacityError(f"{file or 'the shipped table'}: none of {len(rows)} rows can be judged ({reasons})")
    pairs = [_pair(case) for case in cases]
    held_out = hold_out(cases) if file is None else pairs
    target = [pair for pair in held_out if pair.note in TARGET_MODES]
    judged_bounds = [case for case in cases if case.format_stated]
    return WorldValidation(
        rows=len(rows),
        pairs=tuple(pairs),
        held_out=tuple(held_out),
        unjudged={reason: tuple(ids) for reason, ids in unjudged.items()},
        bound_rows=len(judged_bounds),
        exceeded=tuple(_exceeded(judged_bounds)),
        modes=tuple(_summaries(pairs, held_out)),
        target_rows=len(target),
        target_median=summarise(target).median if target else None,
        target_within=share_within(target, WITHIN) if target else None,
        conflicts=tuple(_conflicts(cases, pairs)),
        memory=tuple(in_memory),
    )


def _pair(case: PublishedCase) -> Pair:
    """Bound, estimate and band with the shipped calibrations, preprocessing of the row included."""
    decision = decide(prepare(case.world, case.hardware, case.deploy), case.timed)
    preprocessing_s = case.preprocessing_s
    return Pair(
        name=case.case_id,
        unit="s",
        predicted=preprocessing_s + decision.best_s,
        measured=case.measured_s,
        low=None if decision.low_s is None else preprocessing_s + decision.low_s,
        high=None if decision.high_s is None else preprocessing_s + decision.high_s,
        bound=preprocessing_s + _bound_s(case),
        group=case.source,
        note=case.mode,
    )


def _bound_s(case: PublishedCase) -> float:
    """The bound of a row, with the fewest images that it may have had. [s]"""
    return decide(prepare(case.world, case.hardware, case.deploy), case.least).bound_s


def _exceeded(cases: Sequence[PublishedCase]) -> list[Exceeded]:
    rows = []
    for case in cases:
        bound = _bound_s(case)
        if bound > case.measured_s:
            cause = cause_of({"case_id": case.case_id, "note": case.note}, names()["exceptions"])
            rows.append(Exceeded(case.case_id, bound, case.measured_s, cause))
    return rows


def cause_of(row: Mapping[str, str], exceptions: Sequence[Mapping[str, str]]) -> str:
    """The cause of the first exception whose every other entry is found in the column of that name; else empty."""
    for item in exceptions:
        if all(text in row[column] for column, text in item.items() if column != "cause"):
            return item["cause"]
    return ""


def _summaries(pairs: Sequence[Pair], held_out: Sequence[Pair]) -> list[ModeSummary]:
    groups, left_out = by_group(pairs, lambda pair: pair.note), by_group(held_out, lambda pair: pair.note)
    return [
        ModeSummary(
            mode=mode,
            rows=len(groups[mode]),
            median_bound_share=median((pair.bound or 0.0) / pair.measured for pair in groups[mode]),
            errors=summarise(left_out[mode]) if mode in left_out else None,
        )
        for mode in MODES
        if mode in groups
    ]


def _conflicts(cases: Sequence[PublishedCase], pairs: Sequence[Pair]) -> list[Conflict]:
    """Configurations with several values; the wider the range, the less a single row can prove."""
    both = list(zip(cases, pairs, strict=True))
    conflicts = []
    for configuration, group in by_group(both, lambda item: item[0].configuration).items():
        values = [pair.measured for _, pair in group]
        if len(set(values)) > 1:
            ids = tuple(pair.name for _, pair in group)
            conflicts.append(Conflict(configuration, min(values), max(values), group[0][1].predicted, ids))
    return conflicts


def _memory_rows(rows: Sequence[dict[str, str]]) -> list[MemoryRow]:
    rules = names()
    memory_rows = []
    for row in rows:
        model = model_id(row["model"])
        if model is None or row["component"] != "memory" or row["metric"] not in rules["memory"]["metrics"]:
            continue
        measured = _bytes_of(row)
        words = _format_words(row)
        if measured is None or words not in rules["precisions"]:
            continue
        predicted = _memory_of(row, load_world_model(model), words)
        pair = Pair(row["case_id"], "B", float(predicted), measured, group=row["source"])
        within = pair.error <= rules["memory"]["tolerance"]
        cause = "" if within else cause_of(row, rules["memory"]["exceptions"])
        memory_rows.append(MemoryRow(pair, within, measured - predicted, cause))
    return memory_rows


def _bytes_of(row: dict[str, str]) -> float | None:
    factor = {"GB": 1e9, "GiB": 2**30, "MiB": 2**20, "MB": 1e6}.get(row["unit"])
    value = positive(row["value"])
    return value * factor if factor and value else None


def _format_words(row: dict[str, str]) -> str:
    formats = names()["memory"]["formats"]
    return str(next((word for runtime, word in formats.items() if runtime in row["runtime"]), row["precision"]))


def _memory_of(row: dict[str, str], world: WorldModelSpec, words: str) -> int:
    rules = names()["memory"]
    deploy = deployment_of(row, world, names()["precisions"][words])
    context = world.prompt_tokens + world.answer_tokens
    lines = ledger_lines(memory_table(world, deploy), 0, sequences=1, context_tokens=context)
    moved_out: list[str] = next(
        (parts for pattern, parts in rules["offloads"].items() if pattern in row["runtime"]), []
    )
    core = {"KV cache", "activations", *(line.name for line in lines if line.name.startswith("weights"))}
    gone = set(moved_out) | (core if "core" in moved_out else set())
    return sum(line.held_bytes for line in lines if line.name not in gone)
