"""Routed experts: how many distinct ones a number of tokens is expected to visit, and the fewest it can."""

from __future__ import annotations

import numpy as np

from capacity.arrays import ArrayLike, FloatArray


def distinct_experts(experts: int, used: int, tokens: ArrayLike) -> FloatArray:
    r"""Expected distinct experts that ``tokens`` visit when each draws its experts uniformly [1]_.

    .. math:: E (1 - (1 - k / E)^T)

    Parameters
    ----------
    experts : int
        Experts of a layer, E. [expert]
    used : int
        Experts that one token visits, k. [expert]
    tokens : array_like
        Tokens, T. [token]

    Returns
    -------
    ndarray
        In the shape of ``tokens``. [expert]

    Examples
    --------
    >>> round(float(distinct_experts(256, 8, 64)), 1)
    222.4

    References
    ----------
    .. [1] Each expert is missed by one token with probability 1 - k / E, and tokens route independently.
    """
    missed = 1.0 - used / experts
    if missed <= 0:
        return np.where(np.asarray(tokens) > 0, float(experts), 0.0)
    return np.asarray(-experts * np.expm1(np.asarray(tokens) * np.log(missed)))


def fewest_experts(used: int, ranks: int) -> int:
    r"""Experts of one layer that the busiest of ``ranks`` devices reads at the very least [1]_.

    .. math:: \lceil k / r \rceil

    However many tokens there are, all of them may visit the same k experts, spread evenly over the devices.

    Parameters
    ----------
    used : int
        Experts that one token visits, k. [expert]
    ranks : int
        Devices over which the experts of a layer are spread, r. [device]

    Returns
    -------
    int
        Experts on the device that reads most. [expert]

    Examples
    --------
    >>> fewest_experts(8, 1), fewest_experts(8, 8), fewest_experts(2, 4)
    (8, 1, 1)

    References
    ----------
    .. [1] Pigeonhole: k experts on r devices leave one device with at least k / r of them.
    """
    return -(-used // ranks)
