"""What the estimates of the reference decoder must reach, judged on compared runs of each device."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median

from capacity.measure.decoder.cpu import library
from capacity.measure.decoder.cuda import source
from capacity.specs.measured_run import MeasuredRun
from capacity.validation.compare import Pair, by_group, summarise

DEVICES = {"cpu": "CPU", "gpu": "CUDA"}
MEMORY = ("weights", "kv cache", "kv cache in blocks", "activation peak")
KINDS = {  # the kind of run that each quantity is measured by
    **dict.fromkeys(MEMORY, "memory"),
    "max batch": "memory",
    "TPOT bound": "decode",
    "TPOT estimate": "decode",
    "TTFT bound": "prefill",
}
MIN_MEDIAN_BOUND = 0.7  # of the measured time at batch 1
TPOT_ERRORS = {"cpu": (0.10, 0.20), "gpu": (0.07, 0.15)}  # mean absolute and worst, held out by model
MAX_BATCH_BELOW = 0.02
MIN_IN_BAND = 0.80
MAX_BAND_RATIO = 1.6  # median of high over low, where engine and device are known
NO_RUN = "no run yet"
READ_SHARES = ((15e9, 0.85), (8e9, 0.80))  # bytes per step, and the least share of the read bandwidth at batch 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPair(Pair):
    """A comparison of one quantity (``group``) of one run, with what was run. [sequence], [token]"""

    run_id: str
    source: str
    model: str
    batch: int
    tokens: int
    calibration: str | None = None


@dataclass(frozen=True)
class Figure:
    """One number that a target was judged on; ``unit`` is "1" for a share, "ratio" or empty for a count."""

    name: str
    value: float
    unit: str = ""


@dataclass(frozen=True)
class Target:
    """One promise, whether the runs keep it (None where no run judges it), and what it was judged on.

    ``device`` and ``name`` say which; ``figures`` are what was judged, ``cases`` the first that broke the promise.
    ``reason`` says why no run judges it.
    """

    name: str
    kept: bool | None
    figures: tuple[Figure, ...] = ()
    cases: tuple[str, ...] = ()
    reason: str = ""
    device: str = ""


def judge(
    runs: Sequence[MeasuredRun], pairs: Sequence[RunPair], not_compared: Sequence[MeasuredRun]
) -> Iterator[Target]:
    """Every target of every device.

    Parameters
    ----------
    runs : sequence of MeasuredRun
        All runs, rejected ones too.
    pairs : sequence of RunPair
        What the accepted ones say about the estimates.
    not_compared : sequence of MeasuredRun
        Accepted runs to which no estimate could be set.
    """
    for source_name, device in DEVICES.items():
        here = [run for run in runs if run.source == source_name]
        of_device = [pair for pair in pairs if pair.source == source_name]
        targets: tuple[Target, ...] = (
            _agreement(here),
            _all_compared(here, source_name, sum(run.source == source_name for run in not_compared)),
            _exact(of_device, here, source_name),
            _batches(of_device, here, source_name),
            _bounds(of_device, here, source_name),
            _median_bound(of_device, here, source_name),
            _estimates(of_device, here, source_name),
            _in_band(of_device, here, source_name),
            _width(of_device, here, source_name),
        )
        if source_name == "gpu":
            targets = (*targets, _read_share(here))
        yield from (replace(target, name=f"{device}: {target.name}", device=device) for target in targets)


def pairs_of(pairs: Iterable[RunPair], quantity: str, source_name: str) -> list[RunPair]:
    """The comparisons of one quantity on one device."""
    return [pair for pair in pairs if pair.group == quantity and pair.source == source_name]


def _counts(judged: str, of: Sequence[object], failed: str, which: Sequence[object]) -> tuple[Figure, Figure]:
    return Figure(judged, len(of)), Figure(failed, len(which))


def absent(runs: Iterable[MeasuredRun], source_name: str, *kinds: str) -> str:
    """Why no run of these kinds on this device judges anything."""
    of_kind = [run for run in runs if run.source == source_name and run.kind in kinds]
    if not of_kind:
        return NO_RUN
    if not any(run.accepted for run in of_kind):
        return f"{len(of_kind)} runs, all rejected"
    return f"none of {len(of_kind)} runs judges it"


def other_kernels(runs: Iterable[MeasuredRun]) -> Iterator[str]:
    """One sentence per device for runs that were made by another kernel than the present one."""
    present = {"cpu": library.source_sha256(), "gpu": source.kernel_sha256()}
    of_kernel = [run for run in runs if run.software.backend != "torch"]
    for source_name, device in DEVICES.items():
        of_device = [run for run in of_kernel if run.source == source_name]
        others = [run for run in of_device if run.kernel_sha256 != present[source_name]]
        if others:
            hashes = ", ".join(sorted({run.kernel_sha256[:12] for run in others}))
            yield (
                f"{device}: {len(others)} of {len(of_device)} runs are of kernel {hashes}, "
                f"not of the present one ({present[source_name][:12]}): measure again"
            )


def _agreement(runs: Sequence[MeasuredRun]) -> Target:
    name = "every result agrees with the oracle"
    checked = [run for run in runs if run.quality is not None]
    wrong = [run for run in checked if run.disagreement]
    if not checked:
        return Target(name, None, reason=NO_RUN)
    cases = tuple(f"{run.run_id[:12]}: {run.disagreement}" for run in wrong[:1])
    return Target(name, not wrong, _counts("checked", checked, "differ", wrong), cases)


def _all_compared(runs: Sequence[MeasuredRun], source_name: str, failed: int) -> Target:
    name = "every accepted run is compared with an estimate"
    accepted = sum(run.accepted and run.kind != "ceiling" for run in runs)
    if not accepted:
        return Target(name, None, reason=absent(runs, source_name, "decode", "prefill", "memory"))
    return Target(name, not failed, (Figure("runs", accepted), Figure("without an estimate", failed)))


def _exact(pairs: Sequence[RunPair], runs: Sequence[MeasuredRun], source_name: str) -> Target:
    name, compared = "memory to the byte", [pair for pair in pairs if pair.group in MEMORY]
    if not compared:
        return Target(name, None, reason=absent(runs, source_name, "memory"))
    off = [pair for pair in compared if pair.predicted != pair.measured]
    cases = tuple(f"{pair.group} of {pair.name}" for pair in off[:1])
    return Target(name, not off, _counts("figures", compared, "differ", off), cases)


def _batches(pairs: Sequence[RunPair], runs: Sequence[MeasuredRun], source_name: str) -> Target:
    name, compared = "largest batch within 2 % and never above", pairs_of(pairs, "max batch", source_name)
    if not compared:
        return Target(name, None, reason=absent(runs, source_name, "memory"))
    off = [
        pair for pair in compared if not 0 <= pair.measured - pair.predicted <= max(1, MAX_BATCH_BELOW * pair.measured)
    ]
    cases = tuple(f"{pair.name}: {pair.predicted:.0f} of {pair.measured:.0f}" for pair in off[:3])
    return Target(name, not off, _counts("arenas", compared, "differ", off), cases)


def _bounds(pairs: Sequence[RunPair], runs: Sequence[MeasuredRun], source_name: str) -> Target:
    name, compared = "no bound above a measured time", [pair for pair in pairs if pair.bound is not None]
    if not compared:
        return Target(name, None, reason=absent(runs, source_name, "decode", "prefill"))
    above = [pair.name for pair in compared if not pair.bound_holds]
    return Target(name, not above, _counts("bounds", compared, "above", above), tuple(above[:3]))


def _median_bound(pairs: Sequence[RunPair], runs: Sequence[MeasuredRun], source_name: str) -> Target:
    name = f"median bound / measured at batch 1 at least {MIN_MEDIAN_BOUND}"
    ratios = [pair.ratio for pair in pairs_of(pairs, "TPOT bound", source_name) if pair.batch == 1]
    if not ratios:
        return Target(name, None, reason=absent(runs, source_name, "decode"))
    return Target(
        name,
        median(ratios) >= MIN_MEDIAN_BOUND,
        (Figure("runs", len(ratios)), Figure("median", median(ratios), "ratio")),
    )


def _estimates(pairs: Sequence[RunPair], runs: Sequence[MeasuredRun], source_name: str) -> Target:
    mean, worst = TPOT_ERRORS[source_name]
    name = f"TPOT estimate, held out by model, mean {mean:.0%}, worst {worst:.0%}"
    compared = pairs_of(pairs, "TPOT estimate", source_name)
    if not compared:
        return Target(name, None, reason=absent(runs, source_name, "decode"))
    error = summarise(compared)
    errors = (Figure("mean", error.mean_absolute, "1"), Figure("worst", error.worst, "1"))
    met = error.mean_absolute <= mean and error.worst <= worst
    return Target(name, met, (Figure("runs", error.rows), *errors))


def _in_band(pairs: Sequence[RunPair], runs: Sequence[MeasuredRun], source_name: str) -> Target:
    name = f"at least {MIN_IN_BAND:.0%} of held-out runs inside the band of each calibration"
    by_calibration = by_group(pairs_of(pairs, "TPOT estimate", source_name), lambda pair: str(pair.calibration))
    if not by_calibration:
        return Target(name, None, reason=absent(runs, source_name, "decode"))
    shares = {calibration: summarise(rows).in_band or 0.0 for calibration, rows in by_calibration.items()}
    figures = [
        (Figure(f"runs of {calibration}", len(by_calibration[calibration])), Figure("inside", share, "1"))
        for calibration, share in shares.items()
    ]
    return Target(name, min(shares.values()) >= MIN_IN_BAND, tuple(item for pair in figures for item in pair))


def _width(pairs: Sequence[RunPair], runs: Sequence[MeasuredRun], source_name: str) -> Target:
    name = f"median high / low of the bands at most {MAX_BAND_RATIO}"
    ratios = [pair.high / pair.low for pair in pairs if pair.high is not None and pair.low]
    if not ratios:
        return Target(name, None, reason=absent(runs, source_name, "decode"))
    return Target(
        name, median(ratios) <= MAX_BAND_RATIO, (Figure("runs", len(ratios)), Figure("median", median(ratios), "ratio"))
    )


def _read_share(runs: Sequence[MeasuredRun]) -> Target:
    """Weights and cache read over the median time of each step at batch 1, against the best read of the same device."""
    large, small = READ_SHARES
    name = (
        f"share of the read bandwidth at batch 1, {small[1]:.0%} from {small[0] / 1e9:.0f} GB per step, "
        f"{large[1]:.0%} from {large[0] / 1e9:.0f} GB"
    )
    shares = list(_shares(runs))
    if not shares:
        return Target(name, None, reason=absent(runs, "gpu", "decode"))
    short = [(share, least) for share, least in shares if share < least]
    lowest = Figure("lowest", min(share for share, _ in shares), "1")
    return Target(name, not short, (*_counts("runs", shares, "below", short), lowest))


def _shares(runs: Sequence[MeasuredRun]) -> Iterator[tuple[float, float]]:
    """Reached and least share of the read bandwidth of each large step at batch 1. [1]"""
    for run in runs:
        if run.kind != "decode" or not run.accepted or run.counts is None or run.workload is None:
            continue
        step_bytes = run.counts.weight_bytes + run.counts.kv_read_bytes
        required = next((share for size, share in READ_SHARES if step_bytes >= size), None)
        ceiling = _read_bytes_per_s(runs, run.machine.device_name)
        if run.workload.batch == 1 and required is not None and ceiling:
            yield run.read_bytes_per_s / ceiling, required


def _read_bytes_per_s(runs: Sequence[MeasuredRun], device_name: str) -> float:
    """The best read of the device over all ceiling runs; 0 when there is none. [B/s]"""
    ceilings = [run for run in runs if run.kind == "ceiling" and run.machine.device_name == device_name]
    return max((run.values.get("read_bytes_per_s", 0.0) for run in ceilings), default=0.0)
