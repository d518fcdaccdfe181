"""Routed experts: how many distinct ones a number of tokens visits."""

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
