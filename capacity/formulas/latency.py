"""The latency law: operators at a roofline of their own, launches, layers, sequences, links, and a host floor."""

from __future__ import annotations

import numpy as np

from capacity.arrays import ArrayLike, FloatArray


def operator_s(
    moved_bytes: ArrayLike,
    flop: ArrayLike,
    *,
    bytes_per_s: ArrayLike,
    flop_per_s: ArrayLike,
    memory_efficiency: ArrayLike,
    flop_efficiency: ArrayLike,
) -> FloatArray:
    r"""Time of one operator: the slower of memory and arithmetic, perfectly overlapped [1]_.

    .. math:: t = \max(M / (e_m B), F / (e_f P))

    Parameters
    ----------
    moved_bytes : array_like
        Weights, cache and state moved, M. [B]
    flop : array_like
        Arithmetic, F. [FLOP]
    bytes_per_s : array_like
        Memory bandwidth, B. [B/s]
    flop_per_s : array_like
        Dense peak of the format computed in, P. [FLOP/s]
    memory_efficiency : array_like
        Share of B that this operator reaches, e_m; 1 for a bound. [1]
    flop_efficiency : array_like
        Share of P that this operator reaches, e_f; 1 for a bound. [1]

    Returns
    -------
    ndarray
        Time in the broadcast shape of all. [s]

    Examples
    --------
    >>> operator_s([16e9, 16e9], [16e9, 16e12], bytes_per_s=4e12, flop_per_s=1e15,
    ...            memory_efficiency=1, flop_efficiency=1)
    array([0.004, 0.016])

    References
    ----------
    .. [1] Williams, Waterman, Patterson, "Roofline", CACM 52(4), 2009.
    """
    memory = np.multiply(moved_bytes, 1.0 / np.multiply(memory_efficiency, bytes_per_s))
    arithmetic = np.multiply(flop, 1.0 / np.multiply(flop_efficiency, flop_per_s))
    return np.maximum(memory, arithmetic)


def step_s(
    operators_s: ArrayLike,
    *,
    layers: ArrayLike,
    layer_s: ArrayLike,
    launches: ArrayLike,
    launch_s: ArrayLike,
    sequences: ArrayLike,
    sequence_s: ArrayLike,
    comm_s: ArrayLike,
    host_floor_s: ArrayLike,
    prefill_share: ArrayLike,
) -> FloatArray:
    r"""Time of a step from the sum of its operators.

    .. math:: t = \frac{\max\left(t_{host}, \sum_i t_i + L t_l + N t_k + S t_s + t_c\right)}{1 - p}

    Parameters
    ----------
    operators_s : array_like
        Sum of the times of the operators. [s]
    layers, launches, sequences : array_like
        Layers, kernel launches and sequences of a step, L, N, S. [1]
    layer_s, launch_s, sequence_s : array_like
        Fixed time of one layer, launch and sequence. [s]
    comm_s : array_like
        Time on links. [s]
    host_floor_s : array_like
        Least time in which the host can issue a step. [s]
    prefill_share : array_like
        Share of the device that prefill of other requests takes, p. [1]

    Returns
    -------
    ndarray
        Time in the broadcast shape of all. [s]

    Examples
    --------
    >>> step = step_s(0.004, layers=32, layer_s=0, launches=160, launch_s=1e-6, sequences=1, sequence_s=0,
    ...               comm_s=0, host_floor_s=0, prefill_share=0)
    >>> round(float(step), 6)
    0.00416
    """
    fixed = np.multiply(layers, layer_s) + np.multiply(launches, launch_s) + np.multiply(sequences, sequence_s)
    device = np.asarray(operators_s) + fixed + comm_s
    return np.asarray(np.maximum(host_floor_s, device) / (1.0 - np.asarray(prefill_share)))
