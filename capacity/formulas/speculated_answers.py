"""Speculative decoding of short answers: the last verification is cut short where the answer ends."""

from __future__ import annotations

import numpy as np

from capacity.arrays import ArrayLike, FloatArray
from capacity.errors import CapacityError
from capacity.formulas.speculation import check_cost, checked_draft

MAX_DRAFT_TOKENS = 1024
MAX_OUTPUT_TOKENS = 100_000


def expected_steps(output_tokens: int, acceptance: ArrayLike, draft_tokens: int) -> FloatArray:
    r"""Mean verifications for exactly ``output_tokens``; the last step is cut short.

    .. math:: m(n) = 1 + \sum_{k=1}^{g+1} P(k) m(n - k), \quad m(n \le 0) = 0

    with P(k) = a^{k-1}(1 - a) for k <= g and P(g + 1) = a^g.

    Parameters
    ----------
    output_tokens : int
        Tokens to make, n. [token]
    acceptance : array_like
        Probability that one drafted token is accepted, a. [1]
    draft_tokens : int
        Tokens drafted per step, g. [token]

    Returns
    -------
    ndarray
        In the shape of ``acceptance``. [step]

    Raises
    ------
    CapacityError
        If ``output_tokens`` is not between 1 and 100,000.

    Examples
    --------
    >>> expected_steps(7, [0.0, 1.0], 5)
    array([7., 2.])
    """
    a, g = checked_draft(acceptance, draft_tokens)
    if not isinstance(output_tokens, int) or not 1 <= output_tokens <= MAX_OUTPUT_TOKENS:
        allowed = f"a whole number between 1 and {MAX_OUTPUT_TOKENS:,}"
        raise CapacityError(f"output_tokens must be {allowed}, got {output_tokens!r}")
    if not isinstance(draft_tokens, int) or not 1 <= draft_tokens <= MAX_DRAFT_TOKENS:
        allowed = f"a whole number between 1 and {MAX_DRAFT_TOKENS:,}"
        raise CapacityError(f"draft_tokens must be {allowed}, got {draft_tokens!r}")
    drafted = int(g)
    chance = [a ** (k - 1) * (1.0 - a) for k in range(1, drafted + 1)] + [a**drafted]
    none: FloatArray = np.zeros(a.shape)
    steps_after = [none] * (drafted + 1)  # steps for n-1, n-2 ... tokens
    for _ in range(int(output_tokens)):
        now = 1.0 + sum((p * steps for p, steps in zip(chance, steps_after, strict=True)), start=none)
        steps_after = [now, *steps_after[:-1]]
    return steps_after[0]


def answer_speedup(
    output_tokens: int,
    acceptance: ArrayLike,
    draft_tokens: int,
    *,
    draft_cost: ArrayLike,
    verify_cost: ArrayLike,
) -> FloatArray:
    """Speed-up over an answer of exactly ``output_tokens``, its last step cut short.

    Parameters
    ----------
    output_tokens : int
        Tokens to make. [token]
    acceptance : array_like
        Probability that one drafted token is accepted. [1]
    draft_tokens : int
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
        As by `expected_steps`, and if a cost is too small.

    Examples
    --------
    >>> float(answer_speedup(7, 1.0, 5, draft_cost=0.05, verify_cost=1))  # two steps of 1.25
    2.8
    """
    steps = expected_steps(output_tokens, acceptance, draft_tokens)
    drafting = check_cost("draft_cost", draft_cost, 0.0) * draft_tokens
    return output_tokens / (steps * (drafting + check_cost("verify_cost", verify_cost, 1.0)))
