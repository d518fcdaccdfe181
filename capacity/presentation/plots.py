"""Plots of results: each takes what it draws and an ``Axes``, draws, and returns the ``Axes``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from capacity.errors import CapacityError
from capacity.results import Estimate, Sizing
from capacity.specs.hardware import HardwareSpec
from capacity.supply.ceilings import bound_ceilings
from capacity.units import GIB, Arithmetic

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_roof(part: HardwareSpec, number_format: str, *, ax: Axes) -> Axes:
    """Draw the rate that ``part`` can reach over arithmetic intensity, about its ridge, on the ceilings of a bound."""
    computed = Arithmetic(number_format, number_format, "deployment")
    ceilings = bound_ceilings(part, frozenset({computed}))
    peak, read = ceilings.flop_per_s[computed], ceilings.bytes_per_s
    ridge = peak / read  # [FLOP/B]
    intensity = np.array([ridge / 1024, ridge, ridge * 16])
    ax.loglog(intensity, np.minimum(peak, intensity * read), label=part.name)
    ax.set(title=f"{part.name}, {number_format}", xlabel="FLOP per byte", ylabel="FLOP per second")
    return ax


def mark_step(sizing: Sizing, *, ax: Axes) -> Axes:
    """Mark the decode step of a sizing on a roof: its intensity, and the rate that its roofline allows."""
    flop = sum(row.flop for row in sizing.tpot.rows)
    ax.plot(
        [sizing.intensity_flop_per_byte], [flop / sizing.tpot.roofline], "o", label=f"{sizing.model}, {sizing.batch}"
    )
    return ax


def plot_ledger(sizing: Sizing, *, ax: Axes) -> Axes:
    """Draw the memory of the heaviest device as stacked bars against what is usable."""
    ledger = min(sizing.ledger, key=lambda ledger: ledger.margin_bytes)
    offset = 0.0
    for line in ledger.lines:
        ax.barh([0], [line.held_bytes / GIB], left=offset, label=line.name)
        offset += line.held_bytes / GIB
    ax.axvline(ledger.usable_bytes / GIB, linestyle="--", label="usable")
    ax.set(title=f"{sizing.model}, batch {sizing.batch:,}: {sizing.verdict}", xlabel="GiB", yticks=[])
    return ax


def plot_times(estimate: Estimate, batch: np.ndarray, *, ax: Axes, name: str = "") -> Axes:
    """Draw an estimate over batches: its bound, attainable where known, and hollow marks where it does not fit.

    ``name`` tells several estimates on one ``Axes`` apart in the legend.
    """
    milliseconds = np.asarray(estimate.bound) * 1e3
    if np.shape(milliseconds) != np.shape(batch):
        raise CapacityError(f"batch has shape {np.shape(batch)}, the estimate {np.shape(milliseconds)}")
    lead = f"{name}, " if name else ""
    (line,) = ax.loglog(batch, milliseconds, label=f"{lead}bound")
    if estimate.attainable is not None:
        reached = np.asarray(estimate.attainable) * 1e3
        ax.loglog(batch, reached, linestyle=":", color=line.get_color(), label=f"{lead}attainable")
    outside = ~np.asarray(estimate.fits)
    if np.any(outside):
        label = f"{lead}does not fit"
        ax.plot(batch[outside], milliseconds[outside], "o", mfc="none", color=line.get_color(), label=label)
    ax.set(xlabel="batch", ylabel=f"{estimate.quantity} [ms]")
    return ax
