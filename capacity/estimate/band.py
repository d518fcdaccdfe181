"""A calibrated time with its band: the sum over phases, where all of them were measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from capacity.arrays import BoolArray, FloatArray
from capacity.estimate.time import PhaseFigures, total


@dataclass(frozen=True, eq=False)
class Band:
    """A calibrated time with its ends. [s]"""

    value_s: FloatArray
    low_s: FloatArray
    high_s: FloatArray


def band_of(figures: Sequence[PhaseFigures], inside: BoolArray | None = None) -> Band | None:
    """The sum of the phases, each with the band of its calibration; None unless every phase has one. Shape: of them.

    Parameters
    ----------
    figures : sequence of PhaseFigures
        All phases of a request or decision.
    inside : ndarray of bool or None
        Which cases are in the measured range; elsewhere the band is not a number. None: everywhere. [1]
    """
    pairs = [(item.value_s, item.calibration) for item in figures if item.value_s is not None and item.calibration]
    if len(pairs) < len(figures):
        return None
    bound = total([item.bound_s for item in figures])
    value = total([value for value, _ in pairs])
    low = np.maximum(bound, total([value * calibration.band_low for value, calibration in pairs]))
    high = total([value * calibration.band_high for value, calibration in pairs])
    if inside is None:
        return Band(value, low, high)
    unknown = np.where(inside, 0.0, np.nan)
    return Band(value + unknown, low + unknown, high + unknown)
