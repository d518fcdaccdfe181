"""Robots and sessions that share one device: one after another, and by the memory of growing caches."""

from __future__ import annotations

import numpy as np

from capacity.arrays import ArrayLike, FloatArray
from capacity.errors import CapacityError
from capacity.inputs import check_count, check_time


def robots_unbatched(decision_s: ArrayLike, *, replan_interval_s: ArrayLike) -> FloatArray:
    """Robots that one device serves one after another: floor(interval / S).

    Parameters
    ----------
    decision_s : array_like
        Time that one decision keeps the device busy, S. [s]
    replan_interval_s : array_like
        Time between the decisions of one robot. [s]

    Returns
    -------
    ndarray
        In the broadcast shape of both. [robot]

    Examples
    --------
    >>> int(robots_unbatched(0.073, replan_interval_s=0.5))
    6
    """
    interval, busy = check_time("replan_interval_s", replan_interval_s), check_time("decision_s", decision_s)
    return np.floor(interval / busy + 1e-9)


def sessions_that_fit(free_bytes: ArrayLike, *, constant_bytes: ArrayLike, cache_bytes: ArrayLike) -> FloatArray:
    """Sessions whose state and cache fit: floor(free / (constant + cache)).

    Parameters
    ----------
    free_bytes : array_like
        Memory left by weights and activations. [B]
    constant_bytes : array_like
        State of one session, whatever its length. [B]
    cache_bytes : array_like
        Cache of one session at the length in question. [B]

    Returns
    -------
    ndarray
        In the broadcast shape of all; infinite where a session needs no memory. [session]

    Raises
    ------
    CapacityError
        If the bytes of a session are negative.

    Examples
    --------
    >>> sessions_that_fit(62e9, constant_bytes=0, cache_bytes=[1.0737e9, 0]).tolist()
    [57.0, inf]
    """
    each = np.asarray(constant_bytes, dtype=float) + np.asarray(cache_bytes, dtype=float)
    free = np.maximum(np.asarray(free_bytes, dtype=float), 0.0)
    if np.any(each < 0):
        raise CapacityError("bytes of a session must not be negative")
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(each > 0, np.floor(free / each), np.inf)


def cache_tokens(
    elapsed_s: ArrayLike, *, start_tokens: ArrayLike, tokens_per_s: ArrayLike, window_tokens: int | None
) -> FloatArray:
    """Tokens in the cache of a session of some age: they grow with time up to the window.

    Parameters
    ----------
    elapsed_s : array_like
        Length of the session. [s]
    start_tokens : array_like
        Tokens of its prompt. [token]
    tokens_per_s : array_like
        Frames per second times tokens per frame. [token/s]
    window_tokens : int or None
        Longest context kept; None keeps all. [token]

    Returns
    -------
    ndarray
        In the broadcast shape of all. [token]

    Examples
    --------
    >>> cache_tokens([1, 100], start_tokens=20, tokens_per_s=30 * 256, window_tokens=25_600).tolist()
    [7700.0, 25600.0]
    """
    new_tokens = np.ceil(check_time("elapsed_s", elapsed_s, zero=True) * np.asarray(tokens_per_s, dtype=float))
    tokens = np.asarray(start_tokens, dtype=float) + new_tokens
    return tokens if window_tokens is None else np.minimum(tokens, float(check_count("window_tokens", window_tokens)))


def seconds_until_full(free_bytes: ArrayLike, *, sessions: ArrayLike, bytes_per_s: ArrayLike) -> FloatArray:
    """Time until the caches of ``sessions`` that started together have filled the memory.

    Parameters
    ----------
    free_bytes : array_like
        Memory left by weights, activations and constant state. [B]
    sessions : array_like
        Sessions that run at once. [session]
    bytes_per_s : array_like
        Cache growth of one session: tokens per second times bytes per token. [B/s]

    Returns
    -------
    ndarray
        In the broadcast shape of all. [s]

    Raises
    ------
    CapacityError
        If a rate is not positive.

    Examples
    --------
    >>> round(float(seconds_until_full(62e9, sessions=1, bytes_per_s=7680 * 524_288)), 1)
    15.4
    """
    rate = np.asarray(bytes_per_s, dtype=float)
    if not np.all(rate > 0):
        raise CapacityError(f"bytes_per_s must be positive, got {bytes_per_s!r}; without growth memory never fills")
    return np.maximum(np.asarray(free_bytes, dtype=float), 0.0) / (check_count("sessions", sessions) * rate)
