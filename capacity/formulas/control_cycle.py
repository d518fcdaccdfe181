"""The control cycle: latency, rates and reaction time. Numbers and arrays only; deadlines are in `jitter`.

Four different rates are quoted as "Hz"; each has its own name here: the replan rate (decisions per second),
the action throughput (actions produced per second), the control rate (actions applied per second) and the frame
rate (camera or generated frames per second).
"""

from __future__ import annotations

import numpy as np

from capacity.arrays import ArrayLike, FloatArray
from capacity.errors import CapacityError
from capacity.inputs import check_count, check_time


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

    Parameters
    ----------
    latency_s : array_like
        Time of one decision, T. [s]

    Returns
    -------
    ndarray
        In the shape of ``latency_s``. [1/s]

    Examples
    --------
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
