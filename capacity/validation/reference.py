"""Estimates beside the measured runs of the reference decoder: memory to the byte, bounds, times in their band."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import numpy as np

from capacity import evaluate
from capacity.calibrations import calibration_for, calibrations
from capacity.catalog import load_hardware
from capacity.errors import CapacityError
from capacity.estimators import memory
from capacity.measure.records import read_runs
from capacity.results import Result
from capacity.specs.deployment import Deployment
from capacity.specs.hardware import HardwareSpec
from capacity.specs.measured_run import MeasuredRun, RunWorkload
from capacity.specs.model import Attention, Dense, LayerGroup, ModelSpec, Stage, Tensor
from capacity.validation.compare import Errors, Pair, summarise
from capacity.validation.published_speed import published_rows

DEVICES = {"cpu": "CPU", "gpu": "CUDA"}
MEMORY = ("weights", "kv cache", "kv cache in blocks", "activation peak")
QUANTITIES = (*MEMORY, "max batch", "TPOT bound", "TPOT estimate", "TTFT bound")
LEAST_MEDIAN_BOUND = 0.7  # of the measured time at batch 1
TARGETS = {"cpu": (0.10, 0.20), "gpu": (0.07, 0.15)}  # mean absolute and worst error of TPOT, held out by model
MAX_BATCH_BELOW = 0.02


@dataclass(frozen=True)
class Target:
    """One promise, and whether the runs keep it; None where there are no runs."""

    name: str
    kept: bool | None
    shown: str


@dataclass(frozen=True, repr=False)
class ReferenceCheck(Result):
    """All comparisons, the matrix of runs by quantity and device, error summaries and targets."""

    pairs: tuple[Pair, ...]
    rejected: tuple[str, ...]
    matrix: dict[str, dict[str, str]]
    errors: dict[str, Errors]
    targets: tuple[Target, ...]

    @property
    def passed(self) -> bool:
        """Whether no target is missed; one without runs is neither kept nor missed."""
        return all(target.kept is not False for target in self.targets)

    def table(self) -> list[tuple[str, str]]:
        rows = [
            (name, "; ".join(f"{device}: {text}" for device, text in row.items())) for name, row in self.matrix.items()
        ]
        for name, error in self.errors.items():
            shown = f"mean absolute {error.mean_absolute:.2%}, p90 {error.p90:.2%}, worst {error.worst:.2%}"
            rows.append((f"error of {name}", f"{error.rows} runs: {shown}"))
        rows += [(f"target: {target.name}", f"{_word(target.kept)} ({target.shown})") for target in self.targets]
        return rows + [("rejected run", reason) for reason in self.rejected]


def _word(kept: bool | None) -> str:
    return {True: "kept", False: "MISSED", None: "no run yet"}[kept]


def shipped_runs() -> tuple[MeasuredRun, ...]:
    """The committed runs of all devices."""
    folder = files("capacity").joinpath("data/runs")
    if not folder.is_dir():
        return ()
    paths = sorted(item.name for item in folder.iterdir() if item.name.endswith(".jsonl"))
    return tuple(run for name in paths for run in read_runs(str(folder.joinpath(name))))


def validate(file: str | Path | None = None) -> ReferenceCheck:
    """Check every estimate against the committed runs, or against those of one file.

    Raises
    ------
    CapacityError
        If a file of runs cannot be read, or there are no runs at all.
    """
    runs = read_runs(file) if file else shipped_runs()
    if not runs:
        raise CapacityError("no measured runs to validate against; make some with `capacity measure`")
    accepted = [run for run in runs if run.accepted]
    pairs: list[Pair] = []
    rejected = [f"{run.run_id[:12]} {run.kind}: {run.reject_reason}" for run in runs if not run.accepted]
    for run in accepted:
        try:
            pairs.extend(compare(run))
        except CapacityError as error:
            rejected.append(f"{run.run_id[:12]} {run.kind}: {error}")
    errors = {name: summarise(found) for name in QUANTITIES if (found := _named(pairs, name))}
    return ReferenceCheck(tuple(pairs), tuple(rejected), _matrix(pairs), errors, tuple(_targets(pairs)))


def compare(run: MeasuredRun) -> Iterable[Pair]:
    """What this run says about the estimates; nothing for a micro-benchmark."""
    if run.kind == "memory":
        yield from _memory_pairs(run)
    elif run.kind in ("decode", "prefill"):
        yield from _time_pairs(run)


def model_of(run: MeasuredRun) -> ModelSpec:
    """The decoder of a run as the estimators see it, from the sizes in the record."""
    size = dict(run.workload.shape) if run.workload else {}
    count = {name: int(value) for name, value in size.items() if isinstance(value, int)}
    window = count.get("window", 0)
    attention = Attention(
        query_heads=count["query_heads"],
        kv_heads=count["kv_heads"],
        head_size=count["head_size"],
        span="sliding" if window else "full",
        window=window or None,
    )
    table, width = count["vocabulary"], count["hidden_size"]
    group = LayerGroup(
        indices=tuple(range(count["layers"])),
        mixer=attention,
        feed_forward=Dense(intermediate_size=count["intermediate_size"]),
    )
    stage = Stage(
        name="decoder",
        role="decoder",
        hidden_size=width,
        layers=(group,),
        before=(Tensor(name="embedding", shape=(table, width), part="embedding", read="rows"),),
        after=(
            Tensor(name="final_norm", shape=(width,), part="norm"),
            Tensor(name="lm_head", shape=(table, width), part="lm_head", tied=bool(size.get("tied"))),
        ),
    )
    return ModelSpec(name=str(size["name"]), stages=(stage,), vocabulary=table)


def deployment_of(run: MeasuredRun) -> Deployment:
    """The formats of a run; all of the memory is the decoder's."""
    w = _workload(run)
    return Deployment(
        weights=w.weights,
        activations=w.activations,
        kv_cache=w.kv_cache,
        block_tokens=int(w.shape["block_tokens"]),
        memory_fraction=1.0,
        prefill_chunk_tokens=2**30,
    )


def part_of(run: MeasuredRun) -> HardwareSpec:
    """The hardware file of the device of a run.

    Raises
    ------
    CapacityError
        If the run names no part or the part is not shipped.
    """
    if run.machine.part is None:
        raise CapacityError(f"run {run.run_id[:12]} names no part of the catalogue for {run.machine.device_name}")
    return load_hardware(run.machine.part)


def _workload(run: MeasuredRun) -> RunWorkload:
    if run.workload is None:
        raise CapacityError(f"run {run.run_id[:12]} of kind {run.kind} has no workload")
    return run.workload


def _memory_pairs(run: MeasuredRun) -> Iterable[Pair]:
    model, deploy, w, held = model_of(run), deployment_of(run), _workload(run), run.memory
    if held is None:
        return
    if held.max_batch is not None and held.arena_bytes is not None:
        arena = part_of(run).replace(**{"memory.capacity_bytes": held.arena_bytes, "memory.reserve_bytes": None})
        found = int(evaluate.max_batch(model, arena, deploy, context_tokens=w.context_tokens))
        yield _pair(run, "max batch", "sequence", found, held.max_batch)
        return
    content = memory.sequence_cache_bytes(model, deploy, context_tokens=w.context_tokens, rank=0)
    blocks = memory.sequence_cache_bytes(
        model, deploy, context_tokens=w.context_tokens, rank=0, block_tokens=deploy.block_tokens
    )
    peak = memory.activation_bytes(model, deploy, rank_batch=w.batch, tokens=w.prompt_tokens)
    weights = sum(memory.weight_bytes_by_rank(model, deploy)[0].values())
    predicted = (weights, w.batch * int(content), w.batch * int(blocks), int(peak))
    measured = (held.weight_bytes, held.kv_bytes, held.kv_allocated_bytes, held.activation_peak_bytes)
    for name, ours, theirs in zip(MEMORY, predicted, measured, strict=True):
        if theirs is not None:
            yield _pair(run, name, "B", ours, theirs)


def _time_pairs(run: MeasuredRun) -> Iterable[Pair]:
    model, deploy, w, part = model_of(run), deployment_of(run), _workload(run), part_of(run)
    if run.kind == "prefill":
        estimate = evaluate.ttft(model, part, deploy, batch=w.batch, prompt_tokens=w.prompt_tokens)
        yield _pair(run, "TTFT bound", "s", estimate.bound, run.min_s, bound=estimate.bound)
        return
    estimate = evaluate.tpot(model, part, deploy, batch=w.batch, context_tokens=w.context_tokens)
    yield _pair(run, "TPOT bound", "s", estimate.bound, run.min_s, bound=estimate.bound)
    if estimate.value is not None and not _calibrates(run):
        yield _pair(run, "TPOT estimate", "s", estimate.value, run.median_s, low=estimate.low, high=estimate.high)


def _calibrates(run: MeasuredRun) -> bool:
    """Whether the model of this run took part in the fit: then it says nothing about it."""
    used = calibration_for(deployment_of(run), part_of(run), "decode")
    return used is not None and _workload(run).model in used.points


def _pair(
    run: MeasuredRun,
    name: str,
    unit: str,
    predicted: float,
    measured: float,
    *,
    bound: float | None = None,
    low: float | None = None,
    high: float | None = None,
) -> Pair:
    w = _workload(run)
    context = w.context_tokens or w.prompt_tokens
    label = f"{w.model}, batch {w.batch}, {context} tokens, {DEVICES[run.source]}"
    group = f"{name}|{run.source}|{w.batch}"
    return Pair(
        label, unit, float(predicted), float(measured), low=low, high=high, bound=bound, group=group, note=run.run_id
    )


def _named(pairs: Iterable[Pair], quantity: str, source: str | None = None) -> list[Pair]:
    prefix = f"{quantity}|{source}|" if source else f"{quantity}|"
    return [pair for pair in pairs if pair.group.startswith(prefix)]


def _matrix(pairs: list[Pair]) -> dict[str, dict[str, str]]:
    """What each estimate rests on, by evidence; a blank is shown as one."""
    rows: dict[str, dict[str, str]] = {}
    fits = sum(item.scope.engine == "reference" and item.scope.phase == "decode" for item in calibrations())
    for name in QUANTITIES:
        estimate = name == "TPOT estimate"
        rows[name] = {"computed": "-" if estimate else "yes"}
        for source, device in DEVICES.items():
            count = len(_named(pairs, name, source))
            rows[name][f"measured, {device}"] = f"{count} runs" if count else "no run yet"
        published = published_rows() if name == "TPOT bound" else 0
        rows[name]["published"] = f"{published} rows" if published else "-"
        rows[name]["calibrated"] = f"{fits} fits" if estimate and fits else "-"
    return rows


def _targets(pairs: list[Pair]) -> Iterable[Target]:
    for source, device in DEVICES.items():
        yield _exact(pairs, source, device)
        yield _batches(pairs, source, device)
        bounds = [*_named(pairs, "TPOT bound", source), *_named(pairs, "TTFT bound", source)]
        above = [pair.name for pair in bounds if not pair.bound_holds]
        shown = f"{len(bounds)} bounds" + (f"; above: {', '.join(above[:3])}" if above else ", none above")
        yield Target(f"{device}: no bound above a measured time", not above if bounds else None, shown)
        single = [pair.ratio for pair in _named(pairs, "TPOT bound", source) if pair.group.endswith("|1")]
        median = float(np.median(single)) if single else 0.0
        kept = median >= LEAST_MEDIAN_BOUND if single else None
        yield Target(f"{device}: median bound / measured at batch 1 >= {LEAST_MEDIAN_BOUND}", kept, f"{median:.2f}")
        yield _estimates(pairs, source, device)


def _exact(pairs: list[Pair], source: str, device: str) -> Target:
    found = [pair for name in MEMORY for pair in _named(pairs, name, source)]
    off = [pair for pair in found if pair.predicted != pair.measured]
    shown = f"{len(found)} figures, {len(off)} differ"
    return Target(f"{device}: memory to the byte", not off if found else None, shown)


def _batches(pairs: list[Pair], source: str, device: str) -> Target:
    found = _named(pairs, "max batch", source)
    fine = [
        p
        for p in found
        if p.predicted <= p.measured and p.measured - p.predicted <= max(1, MAX_BATCH_BELOW * p.measured)
    ]
    shown = ", ".join(f"{p.predicted:.0f} of {p.measured:.0f}" for p in found) or "none"
    return Target(
        f"{device}: largest batch within 2 % and never above", len(fine) == len(found) if found else None, shown
    )


def _estimates(pairs: list[Pair], source: str, device: str) -> Target:
    found, (mean, worst) = _named(pairs, "TPOT estimate", source), TARGETS[source]
    name = f"{device}: TPOT estimate, held out by model, mean {mean:.0%}, worst {worst:.0%}"
    if not found:
        return Target(name, None, "none")
    error = summarise(found)
    shown = (
        f"{error.rows} runs: mean {error.mean_absolute:.1%}, worst {error.worst:.1%}, in band {error.in_band or 0:.0%}"
    )
    return Target(name, error.mean_absolute <= mean and error.worst <= worst, shown)
