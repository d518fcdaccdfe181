"""Times predicted compared with times measured: both on logarithmic axes, and their ratio, which shows small errors."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from capacity.errors import CapacityError
from capacity.validation.compare import by_group
from capacity.validation.targets import DEVICES, RunPair

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MARKERS = "os^vD*"
TICKS = [digit * 10.0**power for power in range(-3, 6) for digit in (1, 2, 5)]  # [ms]


def plot_comparison(pairs: Sequence[RunPair], *, ax: Axes) -> Axes:
    """Draw predicted over measured times, a series for each quantity and device; on the line they are equal. [ms]"""
    for label, marker, series in _series(pairs):
        measured, predicted = [pair.measured * 1e3 for pair in series], [pair.predicted * 1e3 for pair in series]
        ax.loglog(measured, predicted, marker, label=label, mfc="none", markersize=5, alpha=0.8)
    _mark_outside(pairs, [pair.predicted * 1e3 for pair in pairs], ax)
    ends = [edge(pair.measured for pair in pairs) * 1e3 for edge in (min, max)]
    ax.loglog(ends, ends, color="0.4", linewidth=1, label="equal")
    ax.set(ylabel="predicted, ms", title="Estimates compared with measured runs")
    _plain_ticks(ax.xaxis)
    _plain_ticks(ax.yaxis)
    ax.legend(frameon=False, fontsize="small")
    return ax


def plot_ratios(pairs: Sequence[RunPair], *, ax: Axes) -> Axes:
    """Draw predicted over measured as a ratio: a bound must stay at 1 or below, an estimate in its band about 1."""
    for label, marker, series in _series(pairs):
        measured, ratios = [pair.measured * 1e3 for pair in series], [pair.ratio for pair in series]
        ax.semilogx(measured, ratios, marker, label=label, mfc="none", markersize=5, alpha=0.8)
    _mark_outside(pairs, [pair.ratio for pair in pairs], ax)
    ax.axhline(1.0, color="0.4", linewidth=1)
    ax.set(xlabel="measured, ms", ylabel="predicted / measured", ylim=(0, None))
    ax.grid(axis="y", color="0.9")
    _plain_ticks(ax.xaxis)
    return ax


def _series(pairs: Sequence[RunPair]) -> Iterator[tuple[str, str, list[RunPair]]]:
    """Label, marker and pairs of each quantity on each device."""
    groups = by_group(pairs, lambda pair: f"{pair.group}, {DEVICES[pair.source]}")
    for number, (label, series) in enumerate(groups.items()):
        yield label, MARKERS[number % len(MARKERS)], series


def _mark_outside(pairs: Sequence[RunPair], heights: Sequence[float], ax: Axes) -> None:
    """Fill what breaks its claim: a bound above its measurement, a measurement outside its band."""
    wrong = [(p.measured * 1e3, y) for p, y in zip(pairs, heights, strict=True) if False in (p.in_band, p.bound_holds)]
    if wrong:
        ax.plot(*zip(*wrong, strict=True), ".", color="red", label="outside band, or bound above")


def _plain_ticks(axis: object) -> None:
    """Numbers that can be read at a glance, 1, 2 and 5 of each power, instead of powers of ten."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    axis.set_major_locator(FixedLocator(TICKS))  # type: ignore[attr-defined]
    axis.set_minor_locator(NullLocator())  # type: ignore[attr-defined]
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))  # type: ignore[attr-defined]


def save_comparison(pairs: Sequence[RunPair], out: str) -> Path:
    """Write both plots of the times as one PNG, whole or not at all.

    Raises
    ------
    CapacityError
        If matplotlib is missing, there are no times, the name does not end in .png, or the file cannot be written.
    """
    target = Path(out)
    if target.suffix != ".png" or not target.parent.is_dir():
        raise CapacityError(f"--plot {out}: give a name that ends in .png, in a folder that exists")
    times = [pair for pair in pairs if pair.unit == "s"]
    if not times:
        raise CapacityError(f"--plot {out}: nothing to draw, no run has a time and an estimate")
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise CapacityError("drawing needs matplotlib: install capacity-planner[all]") from None
    figure = Figure(figsize=(7, 8), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    plot_comparison(times, ax=upper)
    plot_ratios(times, ax=lower)
    try:
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as folder:
            file = Path(folder, target.name)
            figure.savefig(file, format="png", dpi=150)
            os.replace(file, target)
    except OSError as error:
        raise CapacityError(f"--plot {out}: cannot be written ({error.strerror or error})") from None
    return target
