"""Roofline: the ridge point of a device."""

from __future__ import annotations

import numpy as np

from capacity.arrays import ArrayLike, FloatArray
from capacity.errors import CapacityError


def ridge_point(*, flop_per_s: ArrayLike, bytes_per_s: ArrayLike) -> FloatArray:
    """Arithmetic intensity at which compute time equals memory time [1]_.

    Parameters
    ----------
    flop_per_s : array_like
        Dense peak of the format computed in. [FLOP/s]
    bytes_per_s : array_like
        Memory bandwidth. [B/s]

    Returns
    -------
    ndarray
        In the broadcast shape of both. [FLOP/B]

    Raises
    ------
    CapacityError
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
            raise CapacityError(f"{name} must be positive, got {rate!r}")
    return np.divide(flop_per_s, bytes_per_s)
