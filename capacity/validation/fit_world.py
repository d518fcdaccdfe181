"""Fit of the launch-mode constants on published rows, held out by source; prints the calibration file.

Three constants a mode: share of the measured bandwidth, share of the measured matrix rate, and a fixed time a
layer. They minimise the mean absolute log error, in which each source weighs as the root of its rows, so that one
long table does not decide. Run ``python -m capacity.validation.fit_world`` to print the file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from capacity.catalog import calibrations
from capacity.catalog.parts import hardware_ids, load_hardware
from capacity.demand.stage_phase import Phase
from capacity.estimate.law import peaks_of
from capacity.estimate.time import arithmetic_of
from capacity.supply.ceilings import achieved_flop_per_s, measured_ceilings
from capacity.validation.compare import Errors, Pair, summarise
from capacity.validation.world_rows import PublishedCase, read_cases, read_rows

MODES = ("tuned", "graph", "compiled", "eager")
SHARES = np.arange(0.30, 1.001, 0.05)
# A graph launches what a compiler would launch one by one, so its layer takes no longer than the least that compiled
# code was seen to take on a discrete GPU, 0.09 ms; few rows of few models would else trade layers for bandwidth.
LAYER_S = {mode: np.arange(0, top, top / 60) for mode, top in zip(MODES, (1.2e-4, 9e-5, 6e-4, 3e-3), strict=True)}


@dataclass(frozen=True)
class Constants:
    """Shares of the measured ceilings and the time of a layer. [1], [s]"""

    memory: float
    flop: float
    layer_s: float


@dataclass(frozen=True)
class Point:
    """Phases of a case that were timed together. [s]"""

    case: PublishedCase
    timed: tuple[Phase, ...]
    measured_s: float


@dataclass(frozen=True)
class Fitted:
    """Constants of one mode, the points they came from, and their errors on sources that were left out."""

    mode: str
    constants: Constants
    cases: tuple[PublishedCase, ...]
    held_out: tuple[Pair, ...]
    errors: Errors | None
    band: tuple[float, float]


def fit_mode(cases: Sequence[PublishedCase], mode: str) -> Fitted:
    """Fit one launch mode on all its points; errors are those of rows of that mode with their source left out."""
    of_mode = [case for case in cases if _points([case], mode)]
    held_out = [pair for pair in hold_out(cases) if pair.note == mode]
    ratios = [pair.measured / pair.predicted for pair in held_out]
    band = (min(1.0, _quantile(ratios, 10)), max(1.0, _quantile(ratios, 90))) if ratios else (0.5, 2.0)
    errors = summarise(held_out) if held_out else None
    return Fitted(mode, _fit(_points(of_mode, mode), mode), tuple(of_mode), tuple(held_out), errors, band)


def _points(cases: Sequence[PublishedCase], mode: str) -> list[Point]:
    """Groups of phases that were timed apart and ran in ``mode`` throughout."""
    return [
        Point(case, timed, measured_s)
        for case in cases
        for timed, measured_s in case.split()
        if {case.mode_of(phase.name) for phase in timed} == {mode} and measured_s > 0
    ]


def hold_out(cases: Sequence[PublishedCase]) -> list[Pair]:
    """Each case predicted with constants fitted on other sources only; cases whose mode has no other are left out."""
    held_out = []
    for source in sorted({case.source for case in cases}):
        others = [case for case in cases if case.source != source]
        constants: dict[str, Constants] = {}
        for case in (case for case in cases if case.source == source):
            used = {case.mode_of(phase.name) for phase in case.timed}
            for mode in used - set(constants):
                if training := _points(others, mode):
                    constants[mode] = _fit(training, mode)
            if used <= set(constants):
                held_out.append(_pair(case, constants))
    return held_out


def _quantile(values: Sequence[float], percent: float) -> float:
    return float(np.percentile(values, percent))


def _fit(points: Sequence[Point], mode: str) -> Constants:
    counts = Counter(point.case.source for point in points)
    weights = np.array([counts[point.case.source] ** -0.5 for point in points])
    measured = np.array([point.measured_s for point in points])
    layers = np.array([sum(phase.passes * phase.layers for phase in point.timed) for point in points])
    terms = [_terms_of(point.case, point.timed) for point in points]
    best, constants = np.inf, Constants(1.0, 1.0, 0.0)
    for memory in SHARES:
        for flop in SHARES:
            fixed = np.array([np.sum(n * np.maximum(m / memory, f / flop)) for n, m, f in terms])
            times = fixed[:, None] + layers[:, None] * LAYER_S[mode][None, :]
            loss = weights @ np.abs(np.log(times / measured[:, None]))
            index = int(np.argmin(loss))
            if loss[index] < best - 1e-12:
                best, constants = loss[index], Constants(float(memory), float(flop), float(LAYER_S[mode][index]))
    return constants


def _terms_of(case: PublishedCase, timed: Sequence[Phase]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Passes, and memory and compute time on measured ceilings, of every term. [1], [s], [s]"""
    passes, memory, flop = [], [], []
    for phase in timed:
        ceilings = measured_ceilings(case.hardware, arithmetic_of([phase]), calibrations.typical_share())
        for block in phase.work.blocks:
            passes.append(np.full(len(block.operators), float(phase.passes)))
            memory.append(block.moved_bytes / ceilings.bytes_per_s)
            flop.append(block.flop / peaks_of(block.arithmetic, ceilings, block.flop.ndim))
    return np.concatenate(passes), np.concatenate(memory), np.concatenate(flop)


def predict_s(case: PublishedCase, constants: Mapping[str, Constants]) -> float:
    """The latency law with constants by launch mode, preprocessing of the row included. [s]"""
    total = case.preprocessing_s
    for phase in case.timed:
        mode = constants[case.mode_of(phase.name)]
        passes, memory, flop = _terms_of(case, [phase])
        total += float(np.sum(passes * np.maximum(memory / mode.memory, flop / mode.flop)))
        total += phase.passes * phase.layers * mode.layer_s
    return total


def _pair(case: PublishedCase, constants: Mapping[str, Constants]) -> Pair:
    predicted = predict_s(case, constants)
    return Pair(case.case_id, "s", predicted, case.measured_s, group=case.source, note=case.mode)


def typical_share() -> tuple[float, float, int, int]:
    """Median share of datasheet bandwidth and bf16 peak over parts on which both were measured, and how many.

    A part without a datasheet, whose bandwidth is itself the measured one, says nothing about the share.
    """
    memory, flop = [], []
    for name in hardware_ids():
        part = load_hardware(name)
        read = part.measured.read_bytes_per_s
        rate, peak = achieved_flop_per_s(part, "bf16"), part.peak_flop_per_s.get("bf16")
        if read and read != part.memory.bytes_per_s:
            memory.append(read / part.memory.bytes_per_s)
        if rate and peak:
            flop.append(rate / peak)
    return float(np.median(memory)), float(np.median(flop)), len(memory), len(flop)


def toml() -> str:
    """The text of ``data/calibrations/world.toml``."""
    cases, _ = read_cases(read_rows(None))
    memory, flop, memory_parts, flop_parts = typical_share()
    comment = (
        "# Printed by `python -m capacity.validation.fit_world`; not edited by hand.\n"
        "# Efficiencies are shares of the ceilings measured on a part; where none was measured, typical_share of the\n"
        f"# datasheet stands in: medians over {memory_parts} (memory) and {flop_parts} (bf16) measured parts."
    )
    parts = [comment, f"[typical_share]\nmemory = {memory:.3f}\nflop = {flop:.3f}"]
    parts += [_toml_of(fit_mode(cases, mode)) for mode in MODES]
    return "\n\n".join(parts) + "\n"


def _toml_of(fitted: Fitted) -> str:
    constants, errors = fitted.constants, fitted.errors
    points = ", ".join(f'"{case.case_id}"' for case in fitted.cases)
    lines = [
        "[[calibration]]",
        f'name = "world-{fitted.mode}"',
        f'scope = {{ model_kind = "world", launch_mode = "{fitted.mode}" }}',
        f"memory_efficiency = {{ default = {constants.memory:.2f} }}",
        f"flop_efficiency = {{ default = {constants.flop:.2f} }}",
        f"layer_s = {constants.layer_s:.3e}",
        f"band_low = {fitted.band[0]:.3f}",
        f"band_high = {fitted.band[1]:.3f}",
        f"points = [{points}]",
    ]
    if errors is not None:
        lines.append(
            f'hold_out = {{ points = {errors.rows}, held_out_by = "source", mean_absolute = '
            f"{errors.mean_absolute:.3f}, p90 = {errors.p90:.3f}, worst = {errors.worst:.3f} }}"
        )
    sources = sorted({case.source for case in fitted.cases})
    cite = "published rows of world_truth.csv: " + "; ".join(sources)
    return "\n".join([*lines, "[[calibration.sources]]", 'fields = ["*"]', f'cite = "{cite}"'])


if __name__ == "__main__":
    print(toml(), end="")
