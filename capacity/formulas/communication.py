"""Time of collectives on links: a fixed part and a bandwidth part; what an exchange among experts sends."""

from __future__ import annotations

import numpy as np

from capacity.arrays import ArrayLike, FloatArray


def all_reduce_s(
    message_bytes: ArrayLike, *, devices: int, bytes_per_s: ArrayLike, fixed_s: ArrayLike, device_s: ArrayLike
) -> FloatArray:
    r"""Time to sum a message over ``devices`` and leave the sum on each of them [1]_.

    .. math:: t = t_0 + (n - 1) t_1 + \frac{2 (n - 1)}{n} \frac{M}{B}

    Parameters
    ----------
    message_bytes : array_like
        Size of the message on one device, M. [B]
    devices : int
        Devices that take part, n; with one the time is 0. [device]
    bytes_per_s : array_like
        Bus bandwidth, B: per direction and device. [B/s]
    fixed_s : array_like
        Fixed time, t_0. [s]
    device_s : array_like
        Time that each further device adds, t_1. [s]

    Returns
    -------
    ndarray
        Time in the broadcast shape. [s]

    Examples
    --------
    >>> float(all_reduce_s(8e9, devices=8, bytes_per_s=400e9, fixed_s=0, device_s=0))
    0.035

    References
    ----------
    .. [1] NVIDIA nccl-tests, doc/PERFORMANCE.md: bus bandwidth of all-reduce is 2 (n - 1) / n of size over time.
    """
    if devices == 1:
        return np.zeros(np.shape(message_bytes))
    moved = np.multiply(message_bytes, 2.0 * (devices - 1) / devices)
    fixed = np.add(fixed_s, np.multiply(devices - 1, device_s))
    return np.add(fixed, np.divide(moved, bytes_per_s))


def all_to_all_s(
    message_bytes: ArrayLike, *, devices: int, bytes_per_s: ArrayLike, fixed_s: ArrayLike, device_s: ArrayLike
) -> FloatArray:
    r"""Time to send each device its share of a message; also of an all-gather that ends with ``message_bytes`` [1]_.

    .. math:: t = t_0 + (n - 1) t_1 + \frac{n - 1}{n} \frac{M}{B}

    Parameters
    ----------
    message_bytes : array_like
        What one device sends in total, M. [B]
    devices : int
        Devices that take part, n; with one the time is 0. [device]
    bytes_per_s : array_like
        Rate per direction and device, B. [B/s]
    fixed_s : array_like
        Fixed time, t_0. [s]
    device_s : array_like
        Time that each further device adds, t_1. [s]

    Returns
    -------
    ndarray
        Time in the broadcast shape. [s]

    Examples
    --------
    >>> float(all_to_all_s(8e9, devices=8, bytes_per_s=400e9, fixed_s=0, device_s=0))
    0.0175

    References
    ----------
    .. [1] NVIDIA nccl-tests, doc/PERFORMANCE.md: bus bandwidth of all-gather is (n - 1) / n of size over time.
    """
    if devices == 1:
        return np.zeros(np.shape(message_bytes))
    moved = np.multiply(message_bytes, (devices - 1) / devices)
    fixed = np.add(fixed_s, np.multiply(devices - 1, device_s))
    return np.add(fixed, np.divide(moved, bytes_per_s))


def expert_copies(groups: int, choices: int, *, group_devices: int) -> float:
    r"""Copies of a token that leave for its experts, where one copy serves all experts of a group of devices.

    .. math:: m G (1 - (1 - 1 / G)^k)

    Parameters
    ----------
    groups : int
        Groups of devices that hold the experts of a layer, G. [1]
    choices : int
        Experts that the token visits, k, each in a group drawn uniformly. [expert]
    group_devices : int
        Devices of a group, m: they share each expert by columns, so all of them need the token. [device]

    Returns
    -------
    float
        Its own device included, if that is among them. [1]

    Examples
    --------
    >>> round(expert_copies(8, 8, group_devices=1), 2), expert_copies(1, 8, group_devices=4)
    (5.25, 4.0)
    """
    return group_devices * groups * (1.0 - (1.0 - 1.0 / groups) ** choices)


def send_s(message_bytes: ArrayLike, *, bytes_per_s: ArrayLike, fixed_s: ArrayLike) -> FloatArray:
    r"""Time to send a message to one peer.

    .. math:: t = t_0 + M / B

    Parameters
    ----------
    message_bytes : array_like
        Size of the message, M. [B]
    bytes_per_s : array_like
        Rate to one peer, B. [B/s]
    fixed_s : array_like
        Fixed time, t_0. [s]

    Returns
    -------
    ndarray
        Time in the broadcast shape. [s]

    Examples
    --------
    >>> float(send_s(1e9, bytes_per_s=100e9, fixed_s=1e-5))
    0.01001
    """
    return np.add(fixed_s, np.divide(message_bytes, bytes_per_s))
