"""The control cycle: latency, rates and reaction time. Numbers and arrays only; deadlines are in `jitter`.

Four different things are sold as "Hz"; each has a name of its own here: the replan rate (decisions a second),
the action throughput (actions made a second), the control rate (actions applied a second) and the frame rate
(camera or generated frames a second).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from capacity.errors import CapacityError
from capacity.inputs import as_array, shown, whole

ArrayLike = Any
SHORTEST_S, LONGEST_S = 1e-15, 1e15  # far beyond any clock, and no quotient or sum of two leaves a float
_WHOLE = 1e-9  # 73 ms of 20 ms steps is 3.65; 60 ms of 20 ms must stay 3, not 3.0000000000000004


def cycle_latency_s(
    *, sensing_s: ArrayLike, preprocessing_s: ArrayLike, network_s: ArrayLike, model_s: ArrayLike
) -> Any:
    """Time from light on the sensor to an action at the robot: a plain sum. Shape: broadcast. [s]

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
    return sum(check_time(name, value, zero=True) for name, value in times.items())


def check_time(name: str, value: ArrayLike, *, zero: bool = False) -> Any:
    """``value`` as an array of times from `SHORTEST_S` to `LONGEST_S`, or also 0 with ``zero``. [s]

    Raises
    ------
    CapacityError
        If it is missing, not a number, or outside that range.
    """
    if value is None:
        raise CapacityError(f"{name} is missing; give a number{', 0 if there is none' if zero else ''}")
    times = _numbers(name, value, "a number")
    if not np.all(np.isfinite(times) & ((times >= 0) if zero else (times > 0))):
        allowed = "not negative" if zero else "positive"
        raise CapacityError(f"{name} must be finite and {allowed}, got {shown(value)}")
    if np.any((times > LONGEST_S) | (times < SHORTEST_S) & (times != 0)):
        least = "0 or " if zero else ""
        raise CapacityError(f"{name} must be {least}from {SHORTEST_S:g} to {LONGEST_S:g}, got {shown(value)}")
    return times


def check_count(name: str, value: ArrayLike) -> Any:
    """``value`` as an array of whole numbers of at least one, in the unit it came in. [-]

    Raises
    ------
    CapacityError
        If it is not.
    """
    counts = _numbers(name, value, "a whole number")
    if not np.all(np.isfinite(counts) & (counts >= 1) & (counts == np.floor(counts))):
        raise CapacityError(f"{name} must be a whole number of at least 1, got {shown(value)}")
    return counts


def _numbers(name: str, value: ArrayLike, wanted: str) -> Any:
    """``value`` as an array of floats; text, truth values, masks and complex numbers are no numbers here."""
    try:
        array = as_array(value)
        if array.dtype.kind not in "iufO":
            raise TypeError
        return array.astype(float)
    except (TypeError, ValueError, OverflowError):
        raise CapacityError(f"{name} must be {wanted}, got {shown(value)}") from None


def one_time(name: str, value: ArrayLike, *, zero: bool = False) -> float:
    """A single time, checked as by `check_time`, as a float. [s]

    Raises
    ------
    CapacityError
        If it is not one.
    """
    times = check_time(name, value, zero=zero)
    if times.ndim:
        raise CapacityError(f"{name} must be one number, got an array of shape {times.shape}")
    return float(times)


def one_count(name: str, value: ArrayLike) -> int:
    """A single whole number of at least one and at most 2^31, as an int. [-]

    Raises
    ------
    CapacityError
        If it is not one.
    """
    if np.ndim(count := whole(name, value)):
        raise CapacityError(f"{name} must be one number, got an array of shape {count.shape}")
    return int(count)


def check_chunk(executed_actions: ArrayLike, chunk_actions: ArrayLike) -> tuple[Any, Any]:
    """Actions executed of a chunk and its length, the first not above the second. [action]

    Raises
    ------
    CapacityError
        If more is executed than was made.
    """
    executed, made = (
        check_count("executed_actions", executed_actions),
        check_count("chunk_actions", chunk_actions),
    )
    if np.any(executed > made):
        given, most = shown(executed_actions), shown(chunk_actions)
        raise CapacityError(f"executed_actions {given} is more than the chunk of {most}")
    return executed, made


def after_cut_s(total_s: ArrayLike, *, share: ArrayLike, cut: ArrayLike) -> Any:
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


def _share(name: str, value: ArrayLike) -> Any:
    share = np.asarray(value, dtype=float)
    if not np.all((share >= 0) & (share <= 1)):
        raise CapacityError(f"{name} lies between 0 and 1, got {value!r}")
    return share


def replan_per_s(latency_s: ArrayLike) -> Any:
    """Decisions a second when each starts as the last ends: 1 / T. [1/s]

    >>> round(float(replan_per_s(0.0729)), 1)  # OpenVLA-OFT, sold as "109.7 Hz"
    13.7
    """
    return 1.0 / check_time("latency_s", latency_s)


def action_throughput_per_s(latency_s: ArrayLike, chunk_actions: ArrayLike) -> Any:
    """Actions made a second: K / T; no robot applies them at that rate. [action/s]

    >>> round(float(action_throughput_per_s(0.0729, 8)), 1)
    109.7
    """
    return check_count("chunk_actions", chunk_actions) / check_time("latency_s", latency_s)


def synchronous_interval_s(latency_s: ArrayLike, *, period_s: ArrayLike) -> Any:
    """Time between decisions when each is made within its own control period, or late: max(T, dt). [s]

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


def chunked_interval_s(latency_s: ArrayLike, *, executed_actions: ArrayLike, period_s: ArrayLike) -> Any:
    """Time between decisions when the robot waits for each chunk, then plays s actions of it: T + s dt. [s]

    Parameters
    ----------
    latency_s : array_like
        Time of a decision, T. [s]
    executed_actions : array_like
        Actions played of a chunk, s. [action]
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


def asynchronous_interval_s(latency_s: ArrayLike, *, executed_actions: ArrayLike, period_s: ArrayLike) -> Any:
    """Time between decisions when the next starts after s actions, or as the last ends: max(s, d) dt. [s]

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


def _asynchronous_steps(latency_s: ArrayLike, executed_actions: ArrayLike, period_s: ArrayLike) -> Any:
    return np.maximum(check_count("executed_actions", executed_actions), delay_steps(latency_s, period_s))


def synchronous_control_per_s(latency_s: ArrayLike, *, period_s: ArrayLike) -> Any:
    """Actions applied a second when each is decided within its own control period, or late. [action/s]

    >>> synchronous_control_per_s([0.1, 0.01], period_s=0.02).tolist()
    [10.0, 50.0]
    """
    return 1.0 / synchronous_interval_s(latency_s, period_s=period_s)


def chunked_control_per_s(latency_s: ArrayLike, *, executed_actions: ArrayLike, period_s: ArrayLike) -> Any:
    """Actions applied a second when the robot waits for each chunk, then plays s of it: s / (T + s dt). [action/s]

    >>> round(float(chunked_control_per_s(0.1, executed_actions=10, period_s=0.02)), 2)
    33.33
    """
    interval = chunked_interval_s(latency_s, executed_actions=executed_actions, period_s=period_s)
    return check_count("executed_actions", executed_actions) / interval


def asynchronous_control_per_s(
    latency_s: ArrayLike, *, period_s: ArrayLike, chunk_actions: ArrayLike, executed_actions: ArrayLike
) -> Any:
    r"""Actions applied a second when the next chunk is decided while this one plays.

    .. math:: \min\left(\frac{1}{dt}, \frac{\max(0, H - d)}{\max(s, d) \, dt}\right)

    A chunk comes d steps after what it was decided from, with its first d actions past.

    Parameters
    ----------
    latency_s : array_like
        Time of a decision. [s]
    period_s : array_like
        Control period, dt. [s]
    chunk_actions : array_like
        Actions made by a decision, H. [action]
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


def stall_share(latency_s: ArrayLike, *, executed_actions: ArrayLike, period_s: ArrayLike) -> Any:
    """Share of the time in which a robot that waits for each chunk stands still: T / (T + s dt). [1]

    >>> float(stall_share(0.1, executed_actions=10, period_s=0.03))
    0.25
    """
    interval = chunked_interval_s(latency_s, executed_actions=executed_actions, period_s=period_s)
    return check_time("latency_s", latency_s) / interval


def delay_steps(latency_s: ArrayLike, period_s: ArrayLike) -> Any:
    """Control steps that pass during one decision, rounded up: d = ceil(T / dt). [step]

    >>> delay_steps(0.073, [1 / 50, 1 / 30]).tolist()
    [4.0, 3.0]
    """
    ratio = check_time("latency_s", latency_s) / check_time("period_s", period_s)
    return np.ceil(ratio - _WHOLE * np.maximum(1.0, ratio))


def reaction_s(latency_s: ArrayLike, *, interval_s: ArrayLike) -> Any:
    """Longest time until what is seen changes an action: one decision just misses it, the next one has it. [s]

    Parameters
    ----------
    latency_s : array_like
        Time of a decision. [s]
    interval_s : array_like
        Time between starts of decisions. [s]

    Examples
    --------
    >>> round(float(reaction_s(0.073, interval_s=0.5)), 3)
    0.573
    """
    return check_time("latency_s", latency_s) + check_time("interval_s", interval_s)
