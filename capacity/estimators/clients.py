"""Robots and sessions that share one device: batching, overlap, two systems, growing caches."""

from __future__ import annotations

from typing import Any

import numpy as np

from capacity.errors import CapacityError
from capacity.estimators.control import check_count, check_time

ArrayLike = Any


def robots_unbatched(decision_s: ArrayLike, *, replan_interval_s: ArrayLike) -> Any:
    """Robots that one device serves one after the other: floor(interval / S). Shape: broadcast. [robot]

    Parameters
    ----------
    decision_s : array_like
        Time that one decision keeps the device busy, S. [s]
    replan_interval_s : array_like
        Time between decisions that one robot asks for. [s]

    Examples
    --------
    >>> int(robots_unbatched(0.073, replan_interval_s=0.5))
    6
    """
    interval, busy = check_time("replan_interval_s", replan_interval_s), check_time("decision_s", decision_s)
    return np.floor(interval / busy + 1e-9)


def robots_batched(decision_s_by_batch: ArrayLike, *, replan_interval_s: float, max_latency_s: float) -> int:
    """Most robots served in one batch: decisions keep up, and one that just missed a batch is still in time.

    With n robots a batch takes T(n). It must not exceed the interval, and a request that arrives just after a
    batch has started waits for it and then for its own: 2 T(n) must not exceed ``max_latency_s``.

    Parameters
    ----------
    decision_s_by_batch : array_like
        T(1), T(2) ... T(N), the device's time for each batch. [s]
    replan_interval_s : float
        Time between decisions that one robot asks for. [s]
    max_latency_s : float
        Longest time that the device may take, waiting included. [s]

    Returns
    -------
    int
        0 when not even one robot is served in time; N at most. [robot]

    Examples
    --------
    >>> robots_batched([0.05, 0.06, 0.07, 0.30], replan_interval_s=0.2, max_latency_s=0.2)
    3
    """
    times = np.atleast_1d(check_time("decision_s_by_batch", decision_s_by_batch))
    interval, allowed = (
        check_time("replan_interval_s", replan_interval_s),
        check_time("max_latency_s", max_latency_s),
    )
    waits = np.where(np.arange(times.size) == 0, 1.0, 2.0)  # one robot alone waits for nobody
    meets = (times <= interval) & (waits * times <= allowed)
    return int(np.flatnonzero(meets)[-1] + 1) if meets.any() else 0


def closed_loop_latency_s(clients: ArrayLike, *, decision_s: ArrayLike, think_s: ArrayLike) -> Any:
    r"""Mean time of a decision when ``clients`` ask one device in turn, each waiting for its answer.

    .. math:: \max(S, n S - Z)

    Parameters
    ----------
    clients : array_like
        Robots, n. [robot]
    decision_s : array_like
        Time that one decision keeps the device busy, S. [s]
    think_s : array_like
        Time between an answer and the next question, Z. [s]

    References
    ----------
    Asymptotic bound of a closed system with one server; Lazowska, Zahorjan, Graham, Sevcik, "Quantitative
    System Performance", 1984, chapter 5.

    Examples
    --------
    >>> closed_loop_latency_s([1, 8], decision_s=0.1, think_s=0.0)
    array([0.1, 0.8])
    """
    busy = check_time("decision_s", decision_s)
    return np.maximum(busy, check_count("clients", clients) * busy - check_time("think_s", think_s, zero=True))


def pipeline_s(encode_s: ArrayLike, decode_s: ArrayLike) -> tuple[Any, Any]:
    """Latency of one decision and interval between decisions when encoder and decoder have a device each. [s]

    >>> latency, interval = pipeline_s(0.02, 0.05)
    >>> round(float(latency), 3), float(interval)
    (0.07, 0.05)
    """
    encode, decode = check_time("encode_s", encode_s), check_time("decode_s", decode_s)
    return encode + decode, np.maximum(encode, decode)


def overlapped_s(
    encode_flop: ArrayLike,
    encode_bytes: ArrayLike,
    decode_flop: ArrayLike,
    decode_bytes: ArrayLike,
    *,
    flop_per_s: ArrayLike,
    bytes_per_s: ArrayLike,
) -> Any:
    r"""Least interval when the next encode runs beside this decode on one device: no resource is used twice.

    .. math:: \max\left(T_e, T_d, \frac{F_e + F_d}{P}, \frac{M_e + M_d}{B}\right)

    Parameters
    ----------
    encode_flop, decode_flop : array_like
        Arithmetic of each. [FLOP]
    encode_bytes, decode_bytes : array_like
        Traffic of each. [B]
    flop_per_s : array_like
        Dense peak, or what is attained of it. [FLOP/s]
    bytes_per_s : array_like
        Memory bandwidth, or what is attained of it. [B/s]

    Examples
    --------
    >>> float(overlapped_s(2e12, 1e9, 1e11, 15e9, flop_per_s=1e14, bytes_per_s=1e12).round(6))
    0.021
    """
    arithmetic = np.add(encode_flop, decode_flop) / np.asarray(flop_per_s, dtype=float)
    traffic = np.add(encode_bytes, decode_bytes) / np.asarray(bytes_per_s, dtype=float)
    # T_e and T_d are each the larger of their own arithmetic and traffic, hence never above these two.
    return np.maximum(arithmetic, traffic)


def fast_system_per_s(fast_s: ArrayLike, slow_s: ArrayLike, *, slow_per_s: ArrayLike) -> Any:
    r"""Rate of a fast policy that shares a device with a slow planner capped at ``slow_per_s``.

    .. math:: f_1 = \frac{1 - f_2 T_2}{T_1}

    Parameters
    ----------
    fast_s : array_like
        Time of one pass of the fast policy, T_1. [s]
    slow_s : array_like
        Time of one pass of the slow planner, T_2. [s]
    slow_per_s : array_like
        Rate of the planner, f_2. [1/s]

    Raises
    ------
    CapacityError
        If the planner alone needs more than the whole device.

    Examples
    --------
    >>> fast_system_per_s(0.0323, 0.0203, slow_per_s=[5, 10]).round(1)
    array([27.8, 24.7])

    References
    ----------
    arXiv:2602.18397 (VLA-Perf), table 9.
    """
    fast, slow = check_time("fast_s", fast_s), check_time("slow_s", slow_s)
    busy = np.asarray(slow_per_s, dtype=float) * slow
    if not np.all((busy >= 0) & (busy <= 1)):
        raise CapacityError(f"a planner of {slow_s!r} s cannot run {slow_per_s!r} times a second on one device")
    return (1.0 - busy) / fast


def sessions_that_fit(free_bytes: ArrayLike, *, constant_bytes: ArrayLike, cache_bytes: ArrayLike) -> Any:
    """Sessions whose state and cache fit: floor(free / (constant + cache)). Shape: broadcast. [session]

    Parameters
    ----------
    free_bytes : array_like
        Memory left beside weights and activations. [B]
    constant_bytes : array_like
        State of one session, whatever its length. [B]
    cache_bytes : array_like
        Cache of one session at the length in question. [B]

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
) -> Any:
    """Tokens in the cache of a session of some age: they grow with time up to the window. [token]

    Parameters
    ----------
    elapsed_s : array_like
        Length of the session. [s]
    start_tokens : array_like
        Tokens of its prompt. [token]
    tokens_per_s : array_like
        Frames a second times tokens a frame. [token/s]
    window_tokens : int or None
        Longest context kept; None keeps all. [token]

    Examples
    --------
    >>> cache_tokens([1, 100], start_tokens=20, tokens_per_s=30 * 256, window_tokens=25_600).tolist()
    [7700.0, 25600.0]
    """
    made = np.ceil(check_time("elapsed_s", elapsed_s, zero=True) * np.asarray(tokens_per_s, dtype=float))
    tokens = np.asarray(start_tokens, dtype=float) + made
    return tokens if window_tokens is None else np.minimum(tokens, float(check_count("window_tokens", window_tokens)))


def seconds_until_full(free_bytes: ArrayLike, *, sessions: ArrayLike, bytes_per_s: ArrayLike) -> Any:
    """Time until the caches of ``sessions`` that started together have filled the memory. [s]

    Parameters
    ----------
    free_bytes : array_like
        Memory left beside weights, activations and constant state. [B]
    sessions : array_like
        Sessions that run at once. [session]
    bytes_per_s : array_like
        Cache growth of one session: tokens a second times bytes a token. [B/s]

    Examples
    --------
    >>> round(float(seconds_until_full(62e9, sessions=1, bytes_per_s=7680 * 524_288)), 1)
    15.4
    """
    rate = np.asarray(bytes_per_s, dtype=float)
    if not np.all(rate > 0):
        raise CapacityError(f"bytes_per_s must be positive, got {bytes_per_s!r}; without growth memory never fills")
    return np.maximum(np.asarray(free_bytes, dtype=float), 0.0) / (check_count("sessions", sessions) * rate)
