"""Fit the constants of the latency law to decode runs of two models, the smallest and the largest of each format.

On a processor memory and arithmetic of the decoder take turns (overlap 1), so the law is linear in its unknowns:
seconds per byte and per FLOP of matrices and of attention, and seconds per launch. Each run weighs the same
relative to its time. No rate may be better than its ceiling; the subset of those that are worse with the least error
wins.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from itertools import combinations

import numpy as np

from capacity.catalog import load_hardware
from capacity.errors import CapacityError
from capacity.estimators import work
from capacity.specs.calibration import Calibration, HoldOutError, Scope
from capacity.specs.hardware import HardwareSpec
from capacity.specs.measured_run import MeasuredRun
from capacity.validation.compare import Pair, summarise
from capacity.validation.reference import deployment_of, model_of

NARROWEST_BAND = 0.10
TERMS = ("matrix bytes", "matrix FLOP", "attention bytes", "attention FLOP", "launches")


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
    """
    mine = [r for r in runs if r.kind == "decode" and r.accepted and r.machine.part == part and _format(r) == weights]
    sizes = {_model(run): run.counts.weight_bytes for run in mine if run.counts}
    ordered = sorted(sizes, key=lambda model: sizes[model])
    chosen = {ordered[0], ordered[-1]}
    hardware = load_hardware(part)
    fitted, held = [r for r in mine if _model(r) in chosen], [r for r in mine if _model(r) not in chosen]
    quantities, seconds = np.array([terms(r) for r in fitted]), np.array([r.median_s for r in fitted])
    rates = least_squares(quantities, seconds, least=_ceilings(hardware))
    pairs = [_pair(r, rates) for r in held]
    within = summarise([_pair(r, rates) for r in fitted]).worst
    band = max(NARROWEST_BAND, within)
    return Calibration(
        name=name,
        scope=Scope(engine="reference", device_class=part, weights=weights),
        memory_efficiency=_efficiencies(rates[0], rates[2], hardware.memory.bytes_per_s),
        flop_efficiency=_efficiencies(rates[1], rates[3], _peak(hardware)),
        overlap=1.0,
        launch_s=float(rates[4]),
        band_low=1 - band,
        band_high=1 + band,
        points=tuple(sorted(chosen)),
        hold_out=_hold_out(pairs),
    )


def _model(run: MeasuredRun) -> str:
    return run.workload.model if run.workload else ""


def _format(run: MeasuredRun) -> str:
    return run.workload.weights if run.workload else ""


def _peak(hardware: HardwareSpec) -> float:
    peak = hardware.peak("fp32")
    if peak is None:
        raise CapacityError(f"{hardware.name} has no fp32 path, in which this decoder computes")
    return peak


def _ceilings(hardware: HardwareSpec) -> list[float]:
    """Least seconds of a byte, a FLOP and a launch, in the order of `TERMS`."""
    byte_s, flop_s = 1.0 / hardware.memory.bytes_per_s, 1.0 / _peak(hardware)
    return [byte_s, flop_s, byte_s, flop_s, 0.0]


def terms(run: MeasuredRun) -> list[float]:
    """The quantities of the law for one run, in the order of `TERMS`."""
    if run.workload is None:
        return [0.0] * len(TERMS)
    model, deploy = model_of(run), deployment_of(run)
    found = [0.0] * len(TERMS)
    for item in work.decode_work(model, deploy, batch=run.workload.batch, context_tokens=run.workload.context_tokens):
        first = 2 if item.term.operator == "attention" else 0
        found[first] += float(item.moved_bytes)
        found[first + 1] += float(item.flop)
        found[4] += item.term.launches
    return found


def least_squares(quantities: np.ndarray, seconds: np.ndarray, *, least: Sequence[float]) -> np.ndarray:
    """Rates of at least ``least`` with the least relative squared error: every subset that is above is tried.

    >>> rows, times = np.array([[1.0, 0.0], [0.0, 2.0], [1.0, 2.0]]), np.array([3.0, 8.0, 11.0])
    >>> least_squares(rows, times, least=[0.0, 1.0]).round(6).tolist()
    [3.0, 4.0]
    """
    relative, floor = quantities / seconds[:, None], np.array(least)
    rest = 1.0 - relative @ floor
    best, extra = float(rest @ rest), np.zeros(len(floor))
    for size in range(1, len(floor) + 1):
        for columns in combinations(range(len(floor)), size):
            solved, *_ = np.linalg.lstsq(relative[:, columns], rest, rcond=None)
            error = float(np.sum((relative[:, columns] @ solved - rest) ** 2))
            if np.all(solved > 0) and error < best * (1 - 1e-9):
                best, extra = error, np.zeros(len(floor))
                extra[list(columns)] = solved
    return floor + extra


def _efficiencies(matrix: float, attention: float, ceiling: float) -> dict[str, float]:
    """Shares of a ceiling for matrices and for attention."""
    return {"default": min(1.0, 1.0 / (matrix * ceiling)), "attention": min(1.0, 1.0 / (attention * ceiling))}


def _pair(run: MeasuredRun, rates: np.ndarray) -> Pair:
    predicted = float(np.dot(terms(run), rates))
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
        blocks += ["", "[[calibration]]", f'name = "{item.name}"', f"overlap = {item.overlap}"]
        blocks += [f"launch_s = {item.launch_s:.4g}", f"band_low = {item.band_low:.4g}"]
        blocks += [f"band_high = {item.band_high:.4g}", f"points = {list(item.points)!r}".replace("'", '"')]
        scope = {"engine": item.scope.engine, "device_class": item.scope.device_class, "weights": item.scope.weights}
        blocks += ["[calibration.scope]", *(f'{key} = "{value}"' for key, value in scope.items() if value)]
        for table in ("memory_efficiency", "flop_efficiency"):
            blocks += [f"[calibration.{table}]", *(f"{k} = {v:.4g}" for k, v in getattr(item, table).items())]
        if item.hold_out:
            blocks += ["[calibration.hold_out]", f"points = {item.hold_out.points}", 'held_out_by = "model"']
            blocks += [f"{n} = {getattr(item.hold_out, n):.4g}" for n in ("mean_absolute", "p90", "worst")]
    return "\n".join(blocks) + "\n"


def main(arguments: Sequence[str]) -> None:
    """Print the calibrations of a file of runs, one for each part and weights format that has three models."""
    from capacity.measure.records import read_runs

    if len(arguments) != 1:
        raise SystemExit("usage: python -m capacity.validation.fit_reference RUNS.jsonl")
    runs = [run for run in read_runs(arguments[0]) if run.kind == "decode" and run.accepted]
    cases = dict.fromkeys((run.machine.part, _format(run)) for run in runs if run.machine.part)
    items = [
        fit(runs, weights=weights, part=part, name=f"reference {part} {weights}") for part, weights in cases if part
    ]
    kernel = ", ".join(sorted({run.kernel_sha256[:12] for run in runs}))
    note = (
        "Constants of the latency law for the reference decoder: python -m capacity.validation.fit_reference\n"
        f"Fitted to accepted decode runs of kernel {kernel}; the models not listed under points were held out."
    )
    print(as_toml(items, note=note), end="")


if __name__ == "__main__":
    main(sys.argv[1:])
