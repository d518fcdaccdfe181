"""Roofline: the ridge point and the intensity of a step."""

from __future__ import annotations

from typing import Any

import numpy as np

ArrayLike = Any


def ridge_point(*, flop_per_s: ArrayLike, bytes_per_s: ArrayLike) -> Any:
    """Arithmetic intensity at which compute time equals memory time [1]_. [FLOP/B]

    Parameters
    ----------
    flop_per_s : array_like
        Dense peak of the format computed in. [FLOP/s]
    bytes_per_s : array_like
        Memory bandwidth. [B/s]

    Raises
    ------
    ValueError
        If a rate is not positive.

    Examples
    --------
    >>> float(ridge_point(flop_per_s=312e12, bytes_per_s=2e12))
    156.0

    References
    ----------
    .. [1] Williams, Waterman, Patterson, "Roofline", CACM 52(4), 2009.
    """
    for name, rate in (("flop_per_s", flop_per_s), ("bytes_per_s", bytes_per_s)):
        if not np.all(np.greater(rate, 0)):
            raise ValueError(f"{name} must be positive, got {rate!r}")
    return np.divide(flop_per_s, bytes_per_s)
