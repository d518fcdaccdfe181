"""Schedules of a robot that plays actions: time between decisions, actions applied per second, and stalls.

Synchronous: each action is decided within its own period. Chunked: the robot waits for each chunk, then plays part of
it. Asynchronous: it plays one chunk while the next is decided.
"""

from __future__ import annotations

import numpy as np

from capacity.arrays import ArrayLike, FloatArray
from capacity.errors import CapacityError
from capacity.inputs import check_count, check_time, shown

_ROUNDING = 1e-9  # 73 ms of 20 ms steps is 3.65; 60 ms of 20 ms must stay 3, not 3.0000000000000004


def check_chunk(executed_actions: ArrayLike, chunk_actions: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Actions executed from a chunk and the length of the chunk, as arrays; the first is at most the second.

    Parameters
    ----------
    executed_actions : array_like
        Actions executed from a chunk. [action]
    chunk_actions : array_like
        Actions that one decision produces. [action]

    Returns
    -------
    tuple of ndarray
        Both, each in its own shape. [action]

    Raises
    ------
    CapacityError
        If more actions are executed than a chunk has.

    Examples
    --------
    >>> [float(actions) for actions in check_chunk(25, 50)]
    [25.0, 50.0]
    """
    executed, chunk = (
        check_count("executed_actions", executed_actions),
        check_count("chunk_actions", chunk_actions),
    )
    if np.any(executed > chunk):
        shown_actions, limit = shown(executed_actions), shown(chunk_actions)
        raise CapacityError(f"executed_actions {shown_actions} is more than the chunk of {limit}")
    return executed, chunk


def synchronous_interval_s(latency_s: ArrayLike, *, period_s: ArrayLike) -> FloatArray:
    """Time between decisions when each is made within its own control period, or late: max(T, dt).

    Parameters
    ----------
    latency_s : array_like
        Time of a decision, T. [s]
    period_s : array_like
        Control period, dt. [s]

    Returns
    -------
    ndarray
        In the broadcast shape of both. [s]

    Examples
    --------
    >>> synchronous_interval_s([0.1, 0.01], period_s=0.02).tolist()
    [0.1, 0.02]
    """
    return np.maximum(check_time("latency_s", latency_s), check_time("period_s", period_s))


def chunked_interval_s(latency_s: ArrayLike, *, executed_actions: ArrayLike, period_s: ArrayLike) -> FloatArray:
    """Time between decisions when the robot waits for each chunk, then executes s actions of it: T + s dt.

    Parameters
    ----------
    latency_s : array_like
        Time of a decision, T. [s]
    executed_actions : array_like
        Actions executed from a chunk, s. [action]
    period_s : array_like
        Control period, dt. [s]

    Returns
    -------
    ndarray
        In the broadcast shape of all. [s]

    Examples
    --------
    >>> round(float(chunked_interval_s(0.1, executed_actions=10, period_s=0.02)), 3)
    0.3
    """
    latency, period = check_time("latency_s", latency_s), check_time("period_s", period_s)
    return latency + check_count("executed_actions", executed_actions) * period


def asynchronous_interval_s(latency_s: ArrayLike, *, executed_actions: ArrayLike, period_s: ArrayLike) -> FloatArray:
    """Time between decisions when the next starts after s actions, or as the last ends: max(s, d) dt.

    Decisions start on a control step, so one takes d = ceil(T / dt) steps.

    Parameters
    ----------
    latency_s : array_like
        Time of a decision, T. [s]
    executed_actions : array_like
        Actions between starts of decisions, s. [action]
    period_s : array_like
        Control period, dt. [s]

    Returns
    -------
    ndarray
        In the broadcast shape of all. [s]

    Examples
    --------
    >>> asynchronous_interval_s(0.073, executed_actions=[25, 1], period_s=0.02).tolist()
    [0.5, 0.08]
    """
    return _asynchronous_steps(latency_s, executed_actions, period_s) * check_time("period_s", period_s)


def _asynchronous_steps(latency_s: ArrayLike, executed_actions: ArrayLike, period_s: ArrayLike) -> FloatArray:
    return np.maximum(check_count("executed_actions", executed_actions), delay_steps(latency_s, period_s))


def synchronous_control_per_s(latency_s: ArrayLike, *, period_s: ArrayLike) -> FloatArray:
    """Actions applied per second when each is decided within its own control period, or late: 1 / max(T, dt).

    Parameters
    ----------
    latency_s : array_like
        Time of a decision, T. [s]
    period_s : array_like
        Control period, dt. [s]

    Returns
    -------
    ndarray
        In the broadcast shape of both. [action/s]

    Examples
    --------
    >>> synchronous_control_per_s([0.1, 0.01], period_s=0.02).tolist()
    [10.0, 50.0]
    """
    return 1.0 / synchronous_interval_s(latency_s, period_s=period_s)


def chunked_control_per_s(latency_s: ArrayLike, *, executed_actions: ArrayLike, period_s: ArrayLike) -> FloatArray:
    """Actions applied per second when the robot waits for each chunk, then executes s of it: s / (T + s dt).

    Parameters
    ----------
    latency_s : array_like
        Time of a decision, T. [s]
    executed_actions : array_like
        Actions executed from a chunk, s. [action]
    period_s : array_like
        Control period, dt. [s]

    Returns
    -------
    ndarray
        In the broadcast shape of all. [action/s]

    Examples
    --------
    >>> round(float(chunked_control_per_s(0.1, executed_actions=10, period_s=0.02)), 2)
    33.33
    """
    interval = chunked_interval_s(latency_s, executed_actions=executed_actions, period_s=period_s)
    return check_count("executed_actions", executed_actions) / interval


def asynchronous_control_per_s(
    latency_s: ArrayLike, *, period_s: ArrayLike, chunk_actions: ArrayLike, executed_actions: ArrayLike
) -> FloatArray:
    r"""Actions applied per second when the next chunk is decided while this one is executed.

    .. math:: \min\left(\frac{1}{dt}, \frac{\max(0, H - d)}{\max(s, d) \, dt}\right)

    A chunk arrives d steps after the observation it was decided from, when its first d actions are in the past.

    Parameters
    ----------
    latency_s : array_like
        Time of a decision. [s]
    period_s : array_like
        Control period, dt. [s]
    chunk_actions : array_like
        Actions that one decision produces, H. [action]
    executed_actions : array_like
        Actions between starts of decisions, s. [action]

    Returns
    -------
    ndarray
        In the broadcast shape of all. [action/s]

    Examples
    --------
    >>> asynchronous_control_per_s([0.1, 0.6], period_s=0.02, chunk_actions=50, executed_actions=25).round(2).tolist()
    [50.0, 33.33]
    """
    executed, chunk = check_chunk(executed_actions, chunk_actions)
    useful = np.maximum(chunk - delay_steps(latency_s, period_s), 0.0)
    played = np.minimum(useful / _asynchronous_steps(latency_s, executed, period_s), 1.0)
    return played / check_time("period_s", period_s)


def stall_share(latency_s: ArrayLike, *, executed_actions: ArrayLike, period_s: ArrayLike) -> FloatArray:
    """Share of the time in which a robot that waits for each chunk stands still: T / (T + s dt).

    Parameters
    ----------
    latency_s : array_like
        Time of a decision, T. [s]
    executed_actions : array_like
        Actions executed from a chunk, s. [action]
    period_s : array_like
        Control period, dt. [s]

    Returns
    -------
    ndarray
        In the broadcast shape of all. [1]

    Examples
    --------
    >>> float(stall_share(0.1, executed_actions=10, period_s=0.03))
    0.25
    """
    interval = chunked_interval_s(latency_s, executed_actions=executed_actions, period_s=period_s)
    return check_time("latency_s", latency_s) / interval


def delay_steps(latency_s: ArrayLike, period_s: ArrayLike) -> FloatArray:
    """Control steps that pass during one decision, rounded up: d = ceil(T / dt).

    Parameters
    ----------
    latency_s : array_like
        Time of a decision, T. [s]
    period_s : array_like
        Control period, dt. [s]

    Returns
    -------
    ndarray
        In the broadcast shape of both. [step]

    Examples
    --------
    >>> delay_steps(0.073, [1 / 50, 1 / 30]).tolist()
    [4.0, 3.0]
    """
    ratio = check_time("latency_s", latency_s) / check_time("period_s", period_s)
    return np.ceil(ratio - _ROUNDING * np.maximum(1.0, ratio))
