"""Speculative decoding: tokens per step, cost of drafting and verifying, and short answers.

Times are in units of one plain decode step at the same batch, so that only ratios enter.
"""

from __future__ import annotations

import numpy as np

from capacity.arrays import ArrayLike, FloatArray
from capacity.errors import CapacityError

_HALVINGS = 60  # a bisection of [0, 1] down to the last bit of a double


def expected_tokens(acceptance: ArrayLike, draft_tokens: ArrayLike) -> FloatArray:
    r"""Mean tokens that one verification commits: the accepted prefix and one more [1]_.

    .. math:: E = \frac{1 - a^{g + 1}}{1 - a} = \sum_{i=0}^{g} a^i

    Parameters
    ----------
    acceptance : array_like
        Probability that one drafted token is accepted, a. [1]
    draft_tokens : array_like
        Tokens drafted per step, g. [token]

    Returns
    -------
    ndarray
        In the broadcast shape of both. [token]

    Raises
    ------
    CapacityError
        If the acceptance is not a probability or fewer than one token is drafted.

    Examples
    --------
    >>> expected_tokens([0.8, 1.0], 5).round(2)
    array([3.69, 6.  ])

    References
    ----------
    .. [1] Leviathan, Kalman, Matias, "Fast Inference from Transformers via Speculative Decoding",
       arXiv:2211.17192, eq. 1.
    """
    a, g = checked_draft(acceptance, draft_tokens)
    certain = a >= 1.0
    below = np.where(certain, 0.5, a)
    return np.where(certain, g + 1.0, (1.0 - below ** (g + 1.0)) / (1.0 - below))


def checked_draft(acceptance: ArrayLike, draft_tokens: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Acceptance and drafted tokens as arrays.

    Parameters
    ----------
    acceptance : array_like
        Probability that one drafted token is accepted. [1]
    draft_tokens : array_like
        Tokens drafted per step. [token]

    Returns
    -------
    tuple of ndarray
        Both as floats. [1], [token]

    Raises
    ------
    CapacityError
        If the acceptance is no probability, or less than one whole token is drafted.

    Examples
    --------
    >>> checked_draft(0.8, 5)
    (array(0.8), array(5.))
    """
    a, g = np.asarray(acceptance, dtype=float), np.asarray(draft_tokens, dtype=float)
    if not np.all((a >= 0) & (a <= 1)):
        raise CapacityError(f"acceptance is a probability between 0 and 1, got {acceptance!r}")
    if not np.all(np.isfinite(g) & (g >= 1) & (g == np.floor(g))):
        raise CapacityError(f"draft_tokens must be a whole number of at least 1, got {draft_tokens!r}")
    return a, g


def check_cost(name: str, value: ArrayLike, minimum: float) -> FloatArray:
    """A cost in plain steps as an array.

    Parameters
    ----------
    name : str
        What the error calls it.
    value : array_like
        The cost, in plain decode steps. [1]
    minimum : float
        The lowest that is allowed. [1]

    Returns
    -------
    ndarray
        In the shape of ``value``. [1]

    Raises
    ------
    CapacityError
        If it is not finite or below ``minimum``.

    Examples
    --------
    >>> check_cost("draft_cost", 0.05, 0.0)
    array(0.05)
    """
    cost = np.asarray(value, dtype=float)
    if not np.all(np.isfinite(cost) & (cost >= minimum)):
        raise CapacityError(f"{name} is a share of a plain step and at least {minimum:g}, got {value!r}")
    return cost


def verify_cost(batch: ArrayLike, draft_tokens: ArrayLike, *, ridge_batch: ArrayLike) -> FloatArray:
    r"""Time of a pass over g + 1 tokens per sequence, in plain steps, on a roofline of weight-bound decode.

    .. math:: v = \frac{\max(1, B (g + 1) / B^*)}{\max(1, B / B^*)}

    Parameters
    ----------
    batch : array_like
        Sequences, B. [sequence]
    draft_tokens : array_like
        Tokens drafted per step, g. [token]
    ridge_batch : array_like
        Batch at which arithmetic takes as long as reading the weights, B*. [sequence]

    Returns
    -------
    ndarray
        In the broadcast shape of all. [1]

    Raises
    ------
    CapacityError
        If a number is not positive.

    Examples
    --------
    >>> verify_cost([1, 104, 1000], 5, ridge_batch=156)
    array([1., 4., 6.])
    """
    _, g = checked_draft(0.0, draft_tokens)
    b, ridge = np.asarray(batch, dtype=float), np.asarray(ridge_batch, dtype=float)
    if not (np.all(b > 0) and np.all(ridge > 0)):
        raise CapacityError(f"batch and ridge_batch must be positive, got {batch!r} and {ridge_batch!r}")
    return np.maximum(1.0, b * (g + 1.0) / ridge) / np.maximum(1.0, b / ridge)


def ridge_batch(*, flop_per_s: ArrayLike, bytes_per_s: ArrayLike, weight_bits: ArrayLike) -> FloatArray:
    r"""Batch at which a weight-bound decode step turns compute bound: two FLOP per weight that is read.

    .. math:: B^* = \frac{P}{B_w} \cdot \frac{b}{2 \cdot 8}

    Parameters
    ----------
    flop_per_s : array_like
        Dense peak, or what is attained of it, P. [FLOP/s]
    bytes_per_s : array_like
        Memory bandwidth, or what is attained of it. [B/s]
    weight_bits : array_like
        Effective bits of one weight, b. [bit]

    Returns
    -------
    ndarray
        In the broadcast shape of all. [sequence]

    Raises
    ------
    CapacityError
        If a number is not positive.

    Examples
    --------
    >>> float(ridge_batch(flop_per_s=312e12, bytes_per_s=2e12, weight_bits=16))
    156.0
    """
    for name, value in (
        ("flop_per_s", flop_per_s),
        ("bytes_per_s", bytes_per_s),
        ("weight_bits", weight_bits),
    ):
        if not np.all(np.greater(value, 0)):
            raise CapacityError(f"{name} must be positive, got {value!r}")
    return np.asarray(flop_per_s) / np.asarray(bytes_per_s) * np.asarray(weight_bits) / 16.0


def speedup(
    acceptance: ArrayLike, draft_tokens: ArrayLike, *, draft_cost: ArrayLike, verify_cost: ArrayLike
) -> FloatArray:
    r"""Long-run speed-up over plain decoding [1]_.

    .. math:: S = \frac{E}{g c + v}

    Parameters
    ----------
    acceptance : array_like
        Probability that one drafted token is accepted. [1]
    draft_tokens : array_like
        Tokens drafted per step, g. [token]
    draft_cost : array_like
        Time to draft one token, in plain steps, c. [1]
    verify_cost : array_like
        Time of the verification pass, in plain steps, v; 1 while reading weights hides it. [1]

    Returns
    -------
    ndarray
        In the broadcast shape of all. [1]

    Raises
    ------
    CapacityError
        If the acceptance is not a probability, or a cost is too small.

    Examples
    --------
    >>> round(float(speedup(0.8, 5, draft_cost=0.05, verify_cost=1)), 2)
    2.95

    References
    ----------
    .. [1] arXiv:2211.17192, theorem 3.8, with the cost of verification kept.
    """
    cost = check_cost("draft_cost", draft_cost, 0.0) * np.asarray(draft_tokens, dtype=float)
    return expected_tokens(acceptance, draft_tokens) / (cost + check_cost("verify_cost", verify_cost, 1.0))


def required_acceptance(
    wanted_speedup: ArrayLike, draft_tokens: ArrayLike, *, draft_cost: ArrayLike, verify_cost: ArrayLike
) -> FloatArray:
    """Acceptance that gives a wanted speed-up; NaN where even certainty would not.

    Parameters
    ----------
    wanted_speedup : array_like
        Plain time per token over the time wanted. [1]
    draft_tokens : array_like
        Tokens drafted per step. [token]
    draft_cost, verify_cost : array_like
        As in `speedup`, in plain steps. [1]

    Returns
    -------
    ndarray
        In the broadcast shape of all. [1]

    Raises
    ------
    CapacityError
        If the wanted speed-up is not positive.

    Examples
    --------
    >>> required_acceptance(22 / 8, 5, draft_cost=[0, 0.02, 0.05], verify_cost=1).round(3)
    array([0.669, 0.713, 0.769])
    """
    target = np.asarray(wanted_speedup, dtype=float)
    if not np.all(target > 0):
        raise CapacityError(f"a wanted speed-up must be positive, got {wanted_speedup!r}")
    speedup_at_zero = speedup(0.0, draft_tokens, draft_cost=draft_cost, verify_cost=verify_cost)
    speedup_at_one = speedup(1.0, draft_tokens, draft_cost=draft_cost, verify_cost=verify_cost)
    target, speedup_at_zero, speedup_at_one = np.broadcast_arrays(target, speedup_at_zero, speedup_at_one)
    low, high = np.zeros(target.shape), np.ones(target.shape)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        enough = speedup(middle, draft_tokens, draft_cost=draft_cost, verify_cost=verify_cost) >= target
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return np.where(target <= speedup_at_zero, 0.0, np.where(target > speedup_at_one, np.nan, high))
