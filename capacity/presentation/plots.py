"""Plots of results: each takes what it draws and an ``Axes``, draws, and returns the ``Axes``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from capacity.errors import CapacityError
from capacity.results import Estimate, Sizing
from capacity.specs.hardware import HardwareSpec
from capacity.units import GIB

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_roof(part: HardwareSpec, number_format: str, *, ax: Axes) -> Axes:
    """Draw the rate that ``part`` can reach over arithmetic intensity, about its ridge, on datasheet ceilings."""
    peak = part.peak(number_format)
    if peak is None:
        raise CapacityError(f"{part.name} has no {number_format} path")
    ridge = peak / part.memory.bytes_per_s  # [FLOP/B]
    intensity = np.array([ridge / 1024, ridge, ridge * 16])
    ax.loglog(intensity, np.minimum(peak, intensity * part.memory.bytes_per_s), label=part.name)
    ax.set(title=f"{part.name}, {number_format}", xlabel="FLOP per byte", ylabel="FLOP per second")
    return ax


def mark_step(sizing: Sizing, *, ax: Axes) -> Axes:
    """Mark the decode step of a sizing on a roof: its intensity, and the rate that its bound allows."""
    flop = sum(row.flop for row in sizing.tpot.rows)
    ax.plot([sizing.intensity_flop_per_byte], [flop / sizing.tpot.bound], "o", label=f"{sizing.model}, {sizing.batch}")
    return ax


def plot_ledger(sizing: Sizing, *, ax: Axes) -> Axes:
    """Draw the memory of the heaviest device as stacked bars against what is usable."""
    ledger = min(sizing.ledger, key=lambda ledger: ledger.margin_bytes)
    left = 0.0
    for line in ledger.lines:
        ax.barh([0], [line.held_bytes / GIB], left=left, label=line.name)
        left += line.held_bytes / GIB
    ax.axvline(ledger.usable_bytes / GIB, linestyle="--", label="usable")
    ax.set(title=f"{sizing.model}, batch {sizing.batch:,}: {sizing.verdict}", xlabel="GiB", yticks=[])
    return ax


def plot_times(estimate: Estimate, batch: np.ndarray, *, ax: Axes) -> Axes:
    """Draw an estimate over batches: its bound, attainable where known, and hollow marks where it does not fit."""
    milliseconds = np.asarray(estimate.bound) * 1e3
    if np.shape(milliseconds) != np.shape(batch):
        raise CapacityError(f"batch has shape {np.shape(batch)}, the estimate {np.shape(milliseconds)}")
    (line,) = ax.loglog(batch, milliseconds, label=f"{estimate.quantity} bound")
    if estimate.attainable is not None:
        ax.loglog(batch, np.asarray(estimate.attainable) * 1e3, linestyle=":", label=f"{estimate.quantity} attainable")
    outside = ~np.asarray(estimate.fits)
    ax.plot(batch[outside], milliseconds[outside], "o", mfc="none", color=line.get_color(), label="does not fit")
    ax.set(xlabel="batch", ylabel="milliseconds")
    return ax
