"""How far a result may be from the float64 oracle, and the quality that a record states."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from capacity.specs.measured_run import Quality

if TYPE_CHECKING:
    from torch import Tensor

TOLERANCE = 5e-6  # fp32 sums of some thousand terms; the weights are exact in all formats
# Where activations are in 16 bits they are rounded once per kernel or operator (docs/kernel.md); else they are fp32.
NARROW_TOLERANCES = {"bf16": 2e-2, "int8": 2e-2, "fp16": 3e-3}
PREFILL_TOLERANCES = {"fp32": 1e-5, "bf16": 5e-2, "fp16": 6e-3}  # of probabilities, relative as the logit's is absolute
TIE_SHARE = 1e-4
NOT_FINITE = 1e9  # error of a result that is NaN or infinite


def quality_of(result: np.ndarray, expected: np.ndarray, *, tolerance: float, tie_share: float = TIE_SHARE) -> Quality:
    """Error and chosen token of [batch, vocabulary] values.

    Tokens whose expected values differ by less than ``tie_share`` of the largest one count as the same choice.
    """
    error = float(np.linalg.norm(result - expected) / np.linalg.norm(expected))
    same = bool(np.array_equal(np.argmax(result, axis=1), np.argmax(expected, axis=1)))
    return Quality(
        relative_error=finite_error(error),
        argmax_match=same or _near_ties(result, expected, tie_share),
        tolerance=tolerance,
        nan_count=int(np.count_nonzero(~np.isfinite(result))),
    )


def finite_error(error: float) -> float:
    """The error, or ``NOT_FINITE`` for one that is NaN or infinite."""
    return error if math.isfinite(error) else NOT_FINITE


def with_result(quality: Quality, result: Tensor) -> Quality:
    """The quality after the timed runs: any NaN or infinity in their own result fails the check."""
    count = int((~result.isfinite()).sum())
    if not count:
        return quality
    return quality.replace(relative_error=NOT_FINITE, nan_count=quality.nan_count + count)


def _near_ties(result: np.ndarray, expected: np.ndarray, tie_share: float) -> bool:
    """Whether the chosen tokens differ only where the two largest expected values are closer than the rounding."""
    chosen = np.take_along_axis(expected, np.argmax(result, axis=1)[:, None], axis=1)[:, 0]
    return bool(np.all(expected.max(axis=1) - chosen < tie_share * np.abs(expected).max()))
