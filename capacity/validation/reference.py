"""Estimates compared with measured runs of the reference decoder: memory to the byte, bounds, times in their band."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from capacity.catalog.calibrations import calibrations
from capacity.catalog.parts import load_hardware
from capacity.catalog.runs import read_runs, shipped_runs
from capacity.engines.builder import memory_table
from capacity.errors import CapacityError, SpecError
from capacity.estimate import memory, request
from capacity.estimate.calibrated import calibration_for
from capacity.estimate.case import prepare
from capacity.estimate.ledger import ledger_lines
from capacity.measure.shape import SIZES
from capacity.results import OUTSIDE_MEMORY, OUTSIDE_TIME, Result
from capacity.specs.deployment import Deployment
from capacity.specs.hardware import HardwareSpec
from capacity.specs.measured_run import MeasuredRun, RunWorkload
from capacity.specs.model import MAX_LAYERS, ModelSpec
from capacity.validation.compare import Errors, summarise
from capacity.validation.published_speed import published_rows
from capacity.validation.targets import (
    DEVICES,
    KINDS,
    MEMORY,
    RunPair,
    Target,
    absent,
    judge,
    other_kernels,
    pairs_of,
)


@dataclass(frozen=True, repr=False, eq=False)
class ReferenceCheck(Result):
    """All comparisons, the matrix of runs by quantity and device, error summaries and targets.

    ``errors`` are by quantity and device. ``rejected`` are runs that were noisy or wrong, ``not_compared`` accepted
    ones to which no estimate could be set, ``other_kernels`` what was run by another kernel than the present one.
    """

    DERIVED: ClassVar = ("passed",)

    pairs: tuple[RunPair, ...]
    rejected: tuple[str, ...]
    not_compared: tuple[str, ...]
    other_kernels: tuple[str, ...]
    matrix: dict[str, dict[str, int | bool | str]]
    errors: dict[str, Errors]
    targets: tuple[Target, ...]
    assumed: tuple[str, ...] = ("all memory of the device belongs to the decoder (memory_fraction = 1)",)
    notes: tuple[str, ...] = ()
    not_modelled: tuple[str, ...] = (*OUTSIDE_MEMORY, *OUTSIDE_TIME)

    @property
    def passed(self) -> bool:
        """Whether no target is missed; one without runs is neither kept nor missed."""
        return all(target.kept is not False for target in self.targets)


def validate(file: str | Path | None = None) -> ReferenceCheck:
    """Check every estimate against the committed runs, or against those of one file.

    Raises
    ------
    CapacityError
        If a file of runs cannot be read, or holds no run that says anything about an estimate.
    """
    runs = shipped_runs() if file is None else read_runs(file)
    if not runs:
        raise CapacityError("no measured runs to validate against; make some with `capacity measure`")
    pairs, not_compared = _compared([run for run in runs if run.accepted])
    check = ReferenceCheck(
        pairs=tuple(pairs),
        rejected=tuple(f"{_title(run)}: {run.reject_reason}" for run in runs if not run.accepted),
        not_compared=tuple(f"{_title(run)}: {reason}" for run, reason in not_compared),
        other_kernels=tuple(other_kernels(runs)),
        matrix=_matrix(pairs, runs),
        errors={
            f"{name}, {DEVICES[source]}": summarise(of_name)
            for source in DEVICES
            for name in KINDS
            if (of_name := pairs_of(pairs, name, source))
        },
        targets=tuple(judge(runs, pairs, [run for run, _ in not_compared])),
    )
    if not pairs and check.passed:
        raise CapacityError(_nothing_compared(file or "the committed runs", runs, check.rejected))
    return check


def _compared(runs: Sequence[MeasuredRun]) -> tuple[list[RunPair], list[tuple[MeasuredRun, str]]]:
    """What the runs say about the estimates, and runs that could not be compared with the reason."""
    pairs: list[RunPair] = []
    failed: list[tuple[MeasuredRun, str]] = []
    for run in runs:
        try:
            pairs.extend(compare(run))
        except CapacityError as error:
            failed.append((run, str(error)))
    return pairs, failed


def _title(run: MeasuredRun) -> str:
    w = run.workload
    workload = f" {w.model}, batch {w.batch}, {w.context_tokens or w.prompt_tokens} tokens" if w else ""
    return f"{run.run_id[:12]} {DEVICES[run.source]} {run.kind}{workload}"


def _nothing_compared(where: object, runs: Sequence[MeasuredRun], rejected: Sequence[str]) -> str:
    kinds = ", ".join(sorted({run.kind for run in runs}))
    why = f"; rejected: {'; '.join(rejected[:3])}" if rejected else ""
    return f"{where}: none of {len(runs)} runs ({kinds}) can be compared with an estimate{why}"


def compare(run: MeasuredRun) -> Iterable[RunPair]:
    """What this run says about the estimates; nothing for a micro-benchmark."""
    if run.kind == "memory":
        yield from _memory_pairs(run)
    elif run.kind in ("decode", "prefill"):
        yield from _time_pairs(run)


def model_of(run: MeasuredRun) -> ModelSpec:
    """The decoder of a run as the estimators see it, from the sizes in the record.

    Raises
    ------
    SpecError
        If the record lacks a size, or the sizes make no decoder.
    """
    size, shape = _sizes(run), _workload(run).shape
    window = shape.get("window") or None
    mixer = {"kind": "attention", **{name: size[name] for name in ("query_heads", "kv_heads", "head_size")}}
    mixer |= {"span": "sliding", "window": window} if window else {}
    inner = {"kind": "dense", "intermediate_size": size["intermediate_size"]}
    table, width = size["vocabulary"], size["hidden_size"]
    stage = {
        "name": "decoder",
        "role": "decoder",
        "hidden_size": width,
        "layers": ({"indices": tuple(range(size["layers"])), "mixer": mixer, "feed_forward": inner},),
        "before": ({"name": "embedding", "shape": (table, width), "part": "embedding", "read": "rows"},),
        "after": (
            {"name": "final_norm", "shape": (width,), "part": "norm"},
            {"name": "lm_head", "shape": (table, width), "part": "lm_head", "tied": bool(shape.get("tied"))},
        ),
    }
    facts = {"name": _workload(run).model, "stages": (stage,), "vocabulary": table}
    return ModelSpec.parse(facts, where=f"run {run.run_id[:12]}, workload.shape")


def _sizes(run: MeasuredRun) -> dict[str, int]:
    """The sizes of the decoder that a record must have."""
    shape = _workload(run).shape
    size = {name: value for name in SIZES if isinstance(value := shape.get(name), int)}
    where = f"run {run.run_id[:12]}: workload.shape"
    if missing := [name for name in SIZES if name not in size]:
        raise SpecError(f"{where} lacks {', '.join(missing)}; it must give {', '.join(SIZES)} as whole numbers")
    if not 1 <= size["layers"] <= MAX_LAYERS:
        raise SpecError(f"{where}: layers must be 1 to {MAX_LAYERS:,}, got {size['layers']}")
    return size


def deployment_of(run: MeasuredRun) -> Deployment:
    """The formats of a run; all of the memory is the decoder's."""
    w = _workload(run)
    fields = {
        "weights": w.weights,
        "activations": w.activations,
        "kv_cache": w.kv_cache,
        "block_tokens": _sizes(run)["block_tokens"],
        "memory_fraction": 1.0,
        "prefill_chunk_tokens": 2**30,
    }
    return Deployment.parse(fields, where=f"run {run.run_id[:12]}, workload")


def part_of(run: MeasuredRun) -> HardwareSpec:
    """The hardware file of the device of a run.

    Raises
    ------
    CapacityError
        If the run names no part or the part is not shipped.
    """
    if run.machine.part is None:
        raise CapacityError(f"names no part of the catalogue for {run.machine.device_name}")
    return load_hardware(run.machine.part)


def _workload(run: MeasuredRun) -> RunWorkload:
    if run.workload is None:
        raise SpecError(f"run {run.run_id[:12]} of kind {run.kind} has no workload")
    return run.workload


def _memory_pairs(run: MeasuredRun) -> Iterator[RunPair]:
    """Bytes that ``batch`` sequences held, and the largest batch of an arena, where the record has one."""
    model, deploy, w, record = model_of(run), deployment_of(run), _workload(run), run.memory
    if record is None:
        return
    table = memory_table(model, deploy)
    memory.refuse_overflow(table, batch=w.batch, context_tokens=max(w.context_tokens, w.prompt_tokens))
    if record.max_batch is not None and record.arena_bytes is not None:
        outside = ("reserve_bytes", "l2_bytes", "last_level_cache_bytes")  # of which an arena has none
        changes = {"capacity_bytes": record.arena_bytes, **dict.fromkeys(outside)}
        arena = part_of(run).replace(**{f"memory.{name}": value for name, value in changes.items()})
        budget = prepare(model, arena, deploy).budget
        largest = int(memory.max_batch(table, budget, deploy, context_tokens=w.context_tokens))
        yield _pair(run, "max batch", "sequence", largest, record.max_batch)
    decode, prefill = (
        {line.name: line.held_bytes for line in ledger_lines(table, 0, sequences=w.batch, context_tokens=tokens)}
        for tokens in (w.context_tokens, w.prompt_tokens)
    )
    content, partly_filled = decode["KV cache"], decode.get("KV cache, internal fragmentation", 0)
    predicted = (table.kinds[0].totals.fixed_bytes, content, content + partly_filled, prefill["activations"])
    measured = (record.weight_bytes, record.kv_bytes, record.kv_allocated_bytes, record.activation_peak_bytes)
    for name, ours, theirs in zip(MEMORY, predicted, measured, strict=True):
        if theirs is not None:
            yield _pair(run, name, "B", ours, theirs)


def _time_pairs(run: MeasuredRun) -> Iterator[RunPair]:
    w = _workload(run)
    case = prepare(model_of(run), part_of(run), deployment_of(run))
    if run.kind == "prefill":
        estimate = request.ttft(case, batch=w.batch, prompt_tokens=w.prompt_tokens)
        yield _pair(run, "TTFT bound", "s", estimate.bound, run.min_s, bound=estimate.bound)
        return
    estimate = request.tpot(case, batch=w.batch, context_tokens=w.context_tokens)
    yield _pair(run, "TPOT bound", "s", estimate.bound, run.min_s, bound=estimate.bound)
    used = calibration_for(case, "decode")
    if used is None or estimate.value is None or w.model in used.points:  # a model of the fit says nothing about it
        return
    low, high = float(estimate.low), float(estimate.high)
    yield _pair(run, "TPOT estimate", "s", estimate.value, run.median_s, low=low, high=high, calibration=used.name)


def _pair(
    run: MeasuredRun,
    quantity: str,
    unit: str,
    predicted: float,
    measured: float,
    *,
    bound: float | None = None,
    low: float | None = None,
    high: float | None = None,
    calibration: str | None = None,
) -> RunPair:
    if measured <= 0:
        raise CapacityError(f"{quantity}: 0 was measured, with which nothing can be compared")
    w = _workload(run)
    tokens = w.context_tokens or w.prompt_tokens
    return RunPair(
        name=f"{w.model}, batch {w.batch}, {tokens} tokens, {DEVICES[run.source]}",
        unit=unit,
        predicted=float(predicted),
        measured=float(measured),
        low=low,
        high=high,
        bound=bound,
        group=quantity,
        run_id=run.run_id,
        source=run.source,
        model=w.model,
        batch=w.batch,
        tokens=tokens,
        calibration=calibration,
    )


def _matrix(pairs: Sequence[RunPair], runs: Sequence[MeasuredRun]) -> dict[str, dict[str, int | bool | str]]:
    """What each estimate rests on, by kind of evidence: whether, how many runs, rows or fits, or why no run."""
    rows: dict[str, dict[str, int | bool | str]] = {}
    fits = sum(item.scope.engine == "reference" and item.scope.phase == "decode" for item in calibrations())
    for name, kind in KINDS.items():
        estimate = name == "TPOT estimate"
        rows[name] = {"computed": not estimate}
        for source, device in DEVICES.items():
            rows[name][f"measured, {device}"] = len(pairs_of(pairs, name, source)) or absent(runs, source, kind)
        rows[name]["published"] = published_rows() if name == "TPOT bound" else 0
        rows[name]["calibrated"] = fits if estimate else 0
    return rows
