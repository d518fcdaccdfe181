"""Fit the constants of the latency law to decode runs of two models, the smallest and the largest of each format.

The unknowns are the share of bandwidth that matrices reach and that attention reaches, the share of the peak, and the
time of a launch. Attention on a cache is bound by memory, so its share of the peak does not show and is that of the
matrices. The law takes a maximum, so the squared relative error is lowered one constant at a time, in steps that
halve; no share exceeds 1. Each run weighs the same relative to its time.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from capacity.catalog.parts import load_hardware
from capacity.demand.phases import decode_phase
from capacity.errors import CapacityError
from capacity.formulas import latency
from capacity.specs.calibration import Calibration, HoldOutError, Scope
from capacity.specs.hardware import HardwareSpec
from capacity.specs.measured_run import MeasuredRun
from capacity.supply.ceilings import sheet_ceilings
from capacity.validation.compare import Pair, summarise
from capacity.validation.reference import deployment_of, model_of

MIN_BAND, BAND_PERCENTILE = 0.10, 95
START = {"matrix bytes": 0.8, "attention bytes": 0.5, "FLOP": 0.8, "launch": 1e-6}
MIN_MODELS = 3  # two to fit, one to judge
LAUNCHES = (1e-7, 1e-6, 1e-5)
FIRST_STEP, LAST_STEP = 0.5, 1e-3


def fit(runs: Iterable[MeasuredRun], *, weights: str, part: str, name: str) -> Calibration:
    """Constants for one weights format on one part, from its smallest and largest model; the others are held out.

    Parameters
    ----------
    runs : iterable of MeasuredRun
        Accepted decode runs; those of other formats and parts are passed over.
    weights : str
        Weights format.
    part : str
        Id of the part.
    name : str
        Name of the calibration.

    Returns
    -------
    Calibration
        Scope engine "reference", with the hold-out error over the other models.

    Raises
    ------
    CapacityError
        If fewer than three models were measured: with two nothing would be held out.
    """
    accepted = [
        r for r in runs if r.kind == "decode" and r.accepted and r.machine.part == part and _format(r) == weights
    ]
    ordered = _models_by_size(accepted)
    if len(ordered) < MIN_MODELS:
        raise CapacityError(f"{part}, {weights}: {len(ordered)} models were measured; a fit needs {MIN_MODELS}")
    fitted_models = {ordered[0], ordered[-1]}
    hardware = load_hardware(part)
    fitted = [r for r in accepted if _model(r) in fitted_models]
    held_out = [r for r in accepted if _model(r) not in fitted_models]
    constants = _constants(fitted, hardware)
    low, high = _band(fitted, constants, hardware)
    return Calibration(
        name=name,
        scope=Scope(
            model_kind="language",
            engine="reference",
            phase="decode",
            device_class=part,
            weights=weights,
            largest_batch=max(run.workload.batch for run in fitted if run.workload),
            largest_context_tokens=max(run.workload.context_tokens for run in fitted if run.workload),
        ),
        memory_efficiency={"default": constants["matrix bytes"], "attention": constants["attention bytes"]},
        flop_efficiency={"default": constants["FLOP"]},
        launch_s=constants["launch"],
        band_low=low,
        band_high=high,
        points=tuple(sorted(fitted_models)),
        hold_out=_hold_out([_pair(run, constants, hardware) for run in held_out]),
    )


def _models_by_size(runs: Iterable[MeasuredRun]) -> list[str]:
    sizes = {_model(run): run.counts.weight_bytes for run in runs if run.counts}
    return sorted(sizes, key=lambda model: sizes[model])


def _constants(runs: Sequence[MeasuredRun], hardware: HardwareSpec) -> dict[str, float]:
    return search(stacked([terms(run, hardware) for run in runs]), np.array([run.median_s for run in runs]))


def _band(runs: Sequence[MeasuredRun], constants: Mapping[str, float], hardware: HardwareSpec) -> tuple[float, float]:
    """Low and high, as factors of one another, that hold 95 % of what the two models say of each other.

    Each is predicted by the common fit and by a fit to the other alone.
    """
    pairs = [_pair(run, constants, hardware) for run in runs]
    for model in _models_by_size(runs):
        others = _constants([run for run in runs if _model(run) != model], hardware)
        pairs += [_pair(run, others, hardware) for run in runs if _model(run) == model]
    factors = [max(pair.measured / pair.predicted, pair.predicted / pair.measured) for pair in pairs]
    high = max(1 + MIN_BAND, float(np.percentile(factors, BAND_PERCENTILE)))
    return 1 / high, high


@dataclass(frozen=True)
class Terms:
    """At full ceilings, [operators] of one run or [runs, operators]: memory and compute seconds, which are attention.

    ``launches`` are those of a run.
    """

    memory_s: np.ndarray
    compute_s: np.ndarray
    attention: np.ndarray
    launches: np.ndarray

    def seconds(self, constants: Mapping[str, float]) -> np.ndarray:
        """The latency law with these constants, of each run. [s]"""
        operators = latency.operator_s(
            self.memory_s,
            self.compute_s,
            bytes_per_s=1.0,
            flop_per_s=1.0,
            memory_efficiency=np.where(self.attention, constants["attention bytes"], constants["matrix bytes"]),
            flop_efficiency=constants["FLOP"],
        )
        return latency.step_s(
            operators.sum(axis=-1),
            layers=0,
            layer_s=0.0,
            launches=self.launches,
            launch_s=constants["launch"],
            sequences=0,
            sequence_s=0.0,
            comm_s=0.0,
            host_floor_s=0.0,
            prefill_share=0.0,
        )


def stacked(runs: Sequence[Terms]) -> Terms:
    """Terms of several runs, filled up with operators that take no time."""
    width = max(len(run.memory_s) for run in runs)

    def rows(name: str) -> np.ndarray:
        columns = [getattr(run, name) for run in runs]
        return np.stack([np.pad(column, (0, width - len(column))) for column in columns])

    launches = np.array([run.launches for run in runs])
    return Terms(rows("memory_s"), rows("compute_s"), rows("attention"), launches)


def _model(run: MeasuredRun) -> str:
    return run.workload.model if run.workload else ""


def _format(run: MeasuredRun) -> str:
    return run.workload.weights if run.workload else ""


def terms(run: MeasuredRun, hardware: HardwareSpec) -> Terms:
    """The operators of one run as the estimators see them."""
    workload = run.workload
    if workload is None:
        raise CapacityError(f"run {run.run_id[:12]} has no workload")
    model, deploy = model_of(run), deployment_of(run)
    step = decode_phase(model, deploy, batch=workload.batch, context_tokens=workload.context_tokens).work
    names = [name for block in step.blocks for name in block.operators]
    sheet = sheet_ceilings(hardware, step.arithmetic)
    peaks = np.array([sheet.flop_per_s[item] for block in step.blocks for item in block.arithmetic])
    return Terms(
        memory_s=np.concatenate([block.moved_bytes for block in step.blocks]) / hardware.memory.bytes_per_s,
        compute_s=np.concatenate([block.flop for block in step.blocks]) / peaks,
        attention=np.array([name == "attention" for name in names]),
        launches=np.asarray(step.launches),
    )


def search(run_terms: Terms, seconds: np.ndarray) -> dict[str, float]:
    """Constants of the least squared relative error that lowering one at a time finds, from several first guesses."""
    starts = [START | {"launch": launch, "matrix bytes": share} for launch in LAUNCHES for share in (0.6, 0.9)]
    candidates = [_descend(run_terms, seconds, start) for start in starts]
    return min(candidates, key=lambda constants: _squared_error(run_terms, seconds, constants))


def _descend(run_terms: Terms, seconds: np.ndarray, start: Mapping[str, float]) -> dict[str, float]:
    constants, step = dict(start), FIRST_STEP
    lowest = _squared_error(run_terms, seconds, constants)
    while step > LAST_STEP:
        before = lowest
        for name in constants:
            for factor in (1 + step, 1 / (1 + step)):
                value = constants[name] * factor
                candidate = constants | {name: value if name == "launch" else min(1.0, value)}
                error = _squared_error(run_terms, seconds, candidate)
                if error < lowest:
                    constants, lowest = candidate, error
        step = step if lowest < before * (1 - 1e-6) else step / 2
    return constants


def _squared_error(run_terms: Terms, seconds: np.ndarray, constants: Mapping[str, float]) -> float:
    return float(np.sum((run_terms.seconds(constants) / seconds - 1) ** 2))


def _pair(run: MeasuredRun, constants: Mapping[str, float], hardware: HardwareSpec) -> Pair:
    predicted = float(terms(run, hardware).seconds(constants))
    return Pair(name=_model(run), unit="s", predicted=predicted, measured=run.median_s)


def _hold_out(pairs: Sequence[Pair]) -> HoldOutError | None:
    if not pairs:
        return None
    error = summarise(pairs)
    return HoldOutError(
        points=error.rows, held_out_by="model", mean_absolute=error.mean_absolute, p90=error.p90, worst=error.worst
    )


def as_toml(items: Iterable[Calibration], *, note: str) -> str:
    """Calibrations as the text of a file of ``data/calibrations``."""
    blocks = [f"# {line}" for line in note.splitlines()]
    for item in items:
        blocks += ["", "[[calibration]]", f'name = "{item.name}"']
        blocks += [f"launch_s = {item.launch_s:.4g}", f"band_low = {item.band_low:.4g}"]
        blocks += [f"band_high = {item.band_high:.4g}", f"points = {list(item.points)!r}".replace("'", '"')]
        scope = item.scope.model_dump(exclude_defaults=True)
        blocks += ["[calibration.scope]", *(f"{key} = {json.dumps(value)}" for key, value in scope.items())]
        for table in ("memory_efficiency", "flop_efficiency"):
            blocks += [f"[calibration.{table}]", *(f"{k} = {v:.4g}" for k, v in getattr(item, table).items())]
        if item.hold_out:
            blocks += ["[calibration.hold_out]", f"points = {item.hold_out.points}", 'held_out_by = "model"']
            blocks += [f"{n} = {getattr(item.hold_out, n):.4g}" for n in ("mean_absolute", "p90", "worst")]
    return "\n".join(blocks) + "\n"


def main(arguments: Sequence[str]) -> None:
    """Print the calibrations of a file of runs, one for each part and weights format that has three models."""
    from capacity.catalog.runs import read_runs

    if len(arguments) != 1:
        raise SystemExit("usage: python -m capacity.validation.fit_reference RUNS.jsonl")
    runs = [run for run in read_runs(arguments[0]) if run.kind == "decode" and run.accepted]
    cases = dict.fromkeys((run.machine.part, _format(run)) for run in runs if run.machine.part)
    items = []
    for part, weights in cases:
        try:
            items.append(fit(runs, weights=weights, part=str(part), name=f"reference {part} {weights}"))
        except CapacityError as error:
            print(error, file=sys.stderr)
    kernel = ", ".join(sorted({run.kernel_sha256[:12] for run in runs}))
    note = (
        "Constants of the latency law for the reference decoder: python -m capacity.validation.fit_reference\n"
        f"Fitted to accepted decode runs of kernel {kernel}; the models not listed under points were held out."
    )
    print(as_toml(items, note=note), end="")


if __name__ == "__main__":
    main(sys.argv[1:])
