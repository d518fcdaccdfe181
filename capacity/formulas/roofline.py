"""Roofline: the ridge point of a device, the least work of a pass, and the time that no engine beats."""

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


def least_work(
    moved_bytes: ArrayLike,
    flop: ArrayLike,
    *,
    surplus_expert_bytes: ArrayLike,
    cache_bytes: ArrayLike,
    idle_flop: ArrayLike,
) -> tuple[FloatArray, FloatArray]:
    r"""Bytes and FLOP that a pass cannot do without, from those of an ordinary engine [1]_.

    .. math:: M_{min} = \max(0, M - M_{experts} - C), \qquad F_{min} = F - F_{idle}

    Taken away are the experts beyond the fewest that any routing visits; what the last-level cache could have kept of
    weights and key-value cache since the pass before; and the arithmetic of the last layer on tokens whose output no
    one reads. The head on all but the last token is not in ``flop`` to begin with.

    Parameters
    ----------
    moved_bytes : array_like
        Weights, cache and state that an ordinary engine moves, M. [B]
    flop : array_like
        Its arithmetic, F, for example by compute format along the first axis. [FLOP]
    surplus_expert_bytes : array_like
        Expected bytes of experts beyond the fewest. [B]
    cache_bytes : array_like
        Last-level cache of the device, C. [B]
    idle_flop : array_like
        Arithmetic of the last layer whose result is not read, in the shape of ``flop``. [FLOP]

    Returns
    -------
    tuple of ndarray
        Bytes and FLOP. [B], [FLOP]

    Examples
    --------
    >>> moved, flop = least_work(100e6, 5e9, surplus_expert_bytes=20e6, cache_bytes=50e6, idle_flop=1e9)
    >>> float(moved), float(flop)
    (30000000.0, 4000000000.0)

    References
    ----------
    .. [1] Each line is an argument about what some engine could do, not a measurement: a cache may hold any part of
       the data between two passes, all tokens may visit the same experts, and the last layer's output at a token that
       is not sampled has no reader.
    """
    beyond_fewest_experts = np.subtract(moved_bytes, surplus_expert_bytes)
    outside_cache = np.maximum(np.subtract(beyond_fewest_experts, cache_bytes), 0.0)
    read_by_someone = np.subtract(flop, idle_flop)
    return np.asarray(outside_cache), np.asarray(read_by_someone)


def bound_s(memory_s: ArrayLike, compute_s: ArrayLike) -> FloatArray:
    """Least time of a whole pass: memory and arithmetic overlap perfectly, across operators [1]_.

    Parameters
    ----------
    memory_s : array_like
        Time of the least bytes at full bandwidth. [s]
    compute_s : array_like
        Time of the least FLOP, each compute format at its peak. [s]

    Returns
    -------
    ndarray
        The larger, in the broadcast shape of both. [s]

    Examples
    --------
    >>> float(bound_s(0.004, 0.016))
    0.016

    References
    ----------
    .. [1] Williams, Waterman, Patterson, "Roofline", CACM 52(4), 2009, applied to the pass as one kernel.
    """
    return np.maximum(memory_s, compute_s)
