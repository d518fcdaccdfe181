"""Predicted against measured, on equal logarithmic axes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from capacity.errors import CapacityError

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Compared(Protocol):
    """What is drawn: a prediction beside a measurement, and a group whose first word names the quantity."""

    @property
    def predicted(self) -> float: ...
    @property
    def measured(self) -> float: ...
    @property
    def group(self) -> str: ...


def plot_comparison(pairs: Sequence[Compared], *, ax: Axes) -> Axes:
    """Draw predicted over measured times, a series for each quantity; on the line they are equal. [s]"""
    if not pairs:
        raise CapacityError("nothing to draw: no run has both a prediction and a measurement")
    quantities = list(dict.fromkeys(pair.group.split("|")[0] for pair in pairs))
    for quantity, marker in zip(quantities, "osd^v*" * len(quantities), strict=False):
        mine = [pair for pair in pairs if pair.group.split("|")[0] == quantity]
        measured = [pair.measured * 1e3 for pair in mine]
        ax.loglog(measured, [pair.predicted * 1e3 for pair in mine], marker, label=quantity, mfc="none")
    ends = [min(pair.measured for pair in pairs) * 1e3, max(pair.measured for pair in pairs) * 1e3]
    ax.loglog(ends, ends, color="0.6", linewidth=1, label="equal")
    ax.set(xlabel="measured, ms", ylabel="predicted, ms", title="Estimates beside measured runs")
    ax.legend(frameon=False)
    return ax


def save_comparison(pairs: Sequence[Compared], out: str) -> Path:
    """Write the plot as PNG, whole or not at all.

    Raises
    ------
    CapacityError
        If matplotlib is missing, the name does not end in .png, or the file cannot be written.
    """
    target = Path(out)
    if target.suffix != ".png" or not target.parent.is_dir():
        raise CapacityError(f"--plot {out}: give a name that ends in .png, in a folder that exists")
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise CapacityError("drawing needs matplotlib: install capacity-planner[all]") from None
    figure = Figure(figsize=(6, 5), layout="constrained")
    plot_comparison(pairs, ax=figure.add_subplot())
    temporary = target.with_name(f".{target.name}.part")
    try:
        figure.savefig(temporary, format="png", dpi=150)
        os.replace(temporary, target)
    except OSError as error:
        raise CapacityError(f"--plot {out}: cannot be written ({error.strerror or error})") from None
    return target
