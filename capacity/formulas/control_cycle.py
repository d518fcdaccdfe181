"""The control cycle: latency, rates and reaction time. Numbers and arrays only; deadlines are in `jitter`.

Four different rates are sold as "Hz"; each has a name of its own here: the replan rate (decisions per second),
the action throughput (actions produced per second), the control rate (actions applied per second) and the frame
rate (camera or generated frames per second).
"""

from __future__ import annotations

import numpy as np

from capacity.arrays import ArrayLike, FloatArray
from capacity.errors import CapacityError
from capacity.inputs import check_count, check_time, shown

_ROUNDING = 1e-9  # 73 ms of 20 ms steps is 3.65; 60 ms of 20 ms must stay 3, not 3.0000000000000004


def cycle_latency_s(
    *, sensing_s: ArrayLike, preprocessing_s: ArrayLike, network_s: ArrayLike, model_s: ArrayLike
) -> FloatArray:
    """Time from light on the sensor to an action at the robot: a plain sum.

    Parameters
    ----------
    sensing_s : array_like
        Exposure, read-out and transfer of the frame. [s]
    preprocessing_s : array_like
        Decoding, resizing, tokenising, un-normalising. [s]
    network_s : array_like
        Both ways between robot and device; 0 on the robot. [s]
    model_s : array_like
        All phases of the model. [s]

    Returns
    -------
    ndarray
        Time in the broadcast shape of all. [s]

    Raises
    ------
    CapacityError
        If a time is negative or not finite.

    Examples
    --------
    >>> round(float(cycle_latency_s(sensing_s=0.01, preprocessing_s=0.004, network_s=0, model_s=0.073)), 3)
    0.087
    """
    times = {
        "sensing_s": sensing_s,
        "preprocessing_s": preprocessing_s,
        "network_s": network_s,
        "model_s": model_s,
    }
    return sum((check_time(name, value, zero=True) for name, value in times.items()), start=np.zeros(()))


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
    executed, made = (
        check_count("executed_actions", executed_actions),
        check_count("chunk_actions", chunk_actions),
    )
    if np.any(executed > made):
        given, limit = shown(executed_actions), shown(chunk_actions)
        raise CapacityError(f"executed_actions {given} is more than the chunk of {limit}")
    return executed, made


def after_cut_s(total_s: ArrayLike, *, share: ArrayLike, cut: ArrayLike) -> FloatArray:
    r"""Time left when a part that takes ``share`` of the total becomes shorter by ``cut`` of itself [1]_.

    .. math:: t' = t (1 - f c)

    Parameters
    ----------
    total_s : array_like
        Time before. [s]
    share : array_like
        Share of it that the part takes, f. [1]
    cut : array_like
        Share of the part that is saved, c. [1]

    Returns
    -------
    ndarray
        In the broadcast shape of all. [s]

    Raises
    ------
    CapacityError
        If a share lies outside 0 to 1.

    Examples
    --------
    >>> round(float(after_cut_s(0.180, share=0.7, cut=0.4)), 4)
    0.1296

    References
    ----------
    .. [1] Amdahl, "Validity of the single processor approach", AFIPS 1967.
    """
    part, saved = _share("share", share), _share("cut", cut)
    return check_time("total_s", total_s) * (1.0 - part * saved)


def _share(name: str, value: ArrayLike) -> FloatArray:
    share = np.asarray(value, dtype=float)
    if not np.all((share >= 0) & (share <= 1)):
        raise CapacityError(f"{name} lies between 0 and 1, got {value!r}")
    return share


def replan_per_s(latency_s: ArrayLike) -> FloatArray:
    """Decisions per second when each starts as the last ends: 1 / T. [1/s]

    >>> round(float(replan_per_s(0.0729)), 1)  # OpenVLA-OFT, sold as "109.7 Hz"
    13.7
    """
    return 1.0 / check_time("latency_s", latency_s)


def action_throughput_per_s(latency_s: ArrayLike, chunk_actions: ArrayLike) -> FloatArray:
    """Actions produced per second: H / T; no robot applies them at that rate.

    Parameters
    ----------
    latency_s : array_like
        Time of a decision, T. [s]
    chunk_actions : array_like
        Actions that one decision produces, H. [action]

    Returns
    -------
    ndarray
        In the broadcast shape of both. [action/s]

    Examples
    --------
    >>> round(float(action_throughput_per_s(0.0729, 8)), 1)
    109.7
    """
    return check_count("chunk_actions", chunk_actions) / check_time("latency_s", latency_s)


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
    executed, made = check_chunk(executed_actions, chunk_actions)
    useful = np.maximum(made - delay_steps(latency_s, period_s), 0.0)
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


def reaction_s(latency_s: ArrayLike, *, interval_s: ArrayLike) -> FloatArray:
    """Longest time until an event changes an action: it just misses one decision, and the next one has it.

    Parameters
    ----------
    latency_s : array_like
        Time of a decision. [s]
    interval_s : array_like
        Time between starts of decisions. [s]

    Returns
    -------
    ndarray
        In the broadcast shape of both. [s]

    Examples
    --------
    >>> round(float(reaction_s(0.073, interval_s=0.5)), 3)
    0.573
    """
    return check_time("latency_s", latency_s) + check_time("interval_s", interval_s)
