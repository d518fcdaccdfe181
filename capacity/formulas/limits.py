"""Largest batch and longest context that fit: whole numbers in, whole numbers out; in closed form or, for any condition
that stays false once it is, by bisection.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from capacity.arrays import ArrayLike, BoolArray, IntArray

UNBOUNDED = 2**62
_NO_MEMORY_HOLDS = 2**60  # above every capacity, and still far from the end of 64 bits [B]
Blocks = TypeVar("Blocks", int, IntArray)


def max_rank_batch(
    *,
    free_bytes: ArrayLike,
    sequence_bytes: ArrayLike,
    token_activation_bytes: int,
    sequence_activation_bytes: int,
    tokens: ArrayLike,
    chunk_tokens: int,
) -> IntArray:
    r"""Sequences that fit one device with its weights.

    The largest n with :math:`n (c + b) + a \max(\min(n t, k), n) \le R`: each sequence holds its cache and state c
    and a sampler row b, and the tokens in flight of a prefill chunk k (or one per sequence in decode) cost a each.

    Parameters
    ----------
    free_bytes : array_like
        Memory left by weights and reserves, R. [B]
    sequence_bytes : array_like
        Cache and state of one sequence, blocks rounded up, c. [B]
    token_activation_bytes, sequence_activation_bytes : int
        a and b. [B]
    tokens : array_like
        Prompt tokens of one sequence, t. [token]
    chunk_tokens : int
        Tokens of one prefill pass at most, k. [token]

    Returns
    -------
    ndarray
        n in the broadcast shape, 0 where nothing fits. [sequence]

    Examples
    --------
    >>> int(max_rank_batch(free_bytes=62_000_000_000, sequence_bytes=1_073_741_824, token_activation_bytes=0,
    ...                    sequence_activation_bytes=0, tokens=2048, chunk_tokens=8192))
    57
    """
    free = np.asarray(free_bytes, dtype=np.int64)
    each = np.asarray(sequence_bytes, dtype=np.int64) + sequence_activation_bytes
    a = token_activation_bytes
    if not a:
        return _divide(free, np.broadcast_to(each, np.broadcast_shapes(each.shape, np.shape(tokens))))
    decode = _divide(free, each + a)
    whole_prompts = _divide(free, each + a * np.asarray(tokens))
    chunked = _divide(free - min(a * chunk_tokens, _NO_MEMORY_HOLDS), each)
    return np.minimum(decode, np.maximum(whole_prompts, chunked))


def max_tokens(
    *,
    free_bytes: ArrayLike,
    rank_batch: ArrayLike,
    layers: Sequence[int],
    token_bytes: Sequence[int],
    windows: Sequence[int],
    block_tokens: int,
    constant_bytes: int,
    token_activation_bytes: int,
    chunk_tokens: int,
) -> IntArray:
    r"""Longest context of each of ``rank_batch`` sequences on one device.

    The largest t for which n sequences with caches :math:`\sum_i l_i c_i \min(t, w_i)`, in whole blocks, constant
    bytes and the activations of :func:`max_rank_batch` fit R. Where only windows grow and all of them are full,
    the answer is `UNBOUNDED`.

    Parameters
    ----------
    free_bytes, rank_batch : array_like
        R and n. [B], [sequence]
    layers, token_bytes, windows : sequence of int
        Rows of equal layers: how many, bytes per token in each, window (0: none). [layer], [B], [token]
    block_tokens : int
        Tokens per cache block. [token]
    constant_bytes : int
        State and sampler row of one sequence. [B]
    token_activation_bytes, chunk_tokens : int
        As in `max_rank_batch`. [B], [token]

    Returns
    -------
    ndarray
        t in the broadcast shape, 0 where nothing fits. [token]

    Examples
    --------
    >>> int(max_tokens(free_bytes=2_147_483_648, rank_batch=4, layers=[32], token_bytes=[4096], windows=[0],
    ...                block_tokens=16, constant_bytes=0, token_activation_bytes=0, chunk_tokens=8192))
    4096
    """
    batch = np.asarray(rank_batch, dtype=np.int64)
    free = np.asarray(free_bytes, dtype=np.int64) - batch * constant_bytes
    a = token_activation_bytes
    rows = [
        (count * size * block_tokens, -(-window // block_tokens))
        for count, size, window in zip(layers, token_bytes, windows, strict=True)
        if size
    ]
    if not a:
        return _tokens_within(free // batch, rows, block_tokens, 0)
    budgets = np.array([free - a * batch, free - min(a * chunk_tokens, _NO_MEMORY_HOLDS)]) // batch
    decode, chunked = _tokens_within(budgets, rows, block_tokens, 0)
    whole_prompts = _tokens_within(free // batch, rows, block_tokens, a)
    return np.minimum(decode, np.maximum(whole_prompts, chunked))


def largest(fits: Callable[[IntArray], BoolArray], *, shape: tuple[int, ...], upper: int) -> IntArray:
    """Largest n from 1 to ``upper`` for which the monotone predicate ``fits`` holds; 0 where it does not hold for 1.

    Parameters
    ----------
    fits : callable
        Of numbers in ``shape``, whether each fits. [1]
    shape : tuple of int
        Of the numbers. [1]
    upper : int
        Largest number tried. [1]

    Returns
    -------
    ndarray
        In ``shape``. [1]

    Examples
    --------
    >>> largest(lambda n: n * n <= np.array([0, 99, 100]), shape=(3,), upper=2**31).tolist()
    [0, 9, 10]
    """
    low = np.zeros(shape, dtype=np.int64)
    high = np.full(shape, upper + 1, dtype=np.int64)
    while np.any(high - low > 1):
        middle = np.maximum((low + high) // 2, 1)
        fitting = fits(middle)
        low, high = np.where(fitting, middle, low), np.where(fitting, high, middle)
    return low


def _tokens_within(budget: IntArray, rows: list[tuple[int, int]], block: int, token_activation: int) -> IntArray:
    """Largest t with sum_i c_i min(blocks(t), w_i) + a t <= budget; rows are c_i of a block, and w_i in blocks."""
    blocks = _blocks_within(budget, rows, block, token_activation)
    tokens = np.minimum(blocks, UNBOUNDED // block) * block
    if token_activation:  # part of one more block: its cache is charged whole, its activations by the token
        cache = _cache_of(blocks + 1, rows)
        partial = (budget - cache) // token_activation
        tokens = np.where(partial > tokens, np.minimum(partial, (blocks + 1) * block), tokens)
    return np.maximum(tokens, 0)


def _blocks_within(budget: IntArray, rows: list[tuple[int, int]], block: int, token_activation: int) -> IntArray:
    """Whole blocks: the cost is linear between the windows, so each stretch has its own quotient."""
    best = np.zeros(np.shape(budget), dtype=np.int64)
    start = 0
    for end in sorted({window for _, window in rows if window} | {UNBOUNDED // block}):
        at_start = _cache_of(start, rows) + token_activation * block * start
        if at_start > _NO_MEMORY_HOLDS:
            break
        slope = block * token_activation
        for size, window in rows:
            slope += size if not window or window >= end else 0
        reach = start + (budget - at_start) // slope if slope else np.full(np.shape(budget), end)
        best = np.where(budget >= at_start, np.minimum(reach, end), best)
        start = end
    return best


def _cache_of(blocks: Blocks, rows: list[tuple[int, int]]) -> Blocks:
    smaller = min if isinstance(blocks, int) else np.minimum  # Python's numbers have no end
    total: Any = 0
    for size, window in rows:
        layer_blocks = smaller(blocks, window) if window else blocks
        total = total + size * layer_blocks
    return total


def _divide(free: IntArray, each: IntArray) -> IntArray:
    """Whole quotient, never below 0; where a unit is free of charge there is no limit."""
    unit = np.asarray(each)
    quotient = np.where(free < 0, 0, np.asarray(free) // np.maximum(unit, 1))
    return np.where((unit <= 0) & (free >= 0), UNBOUNDED, quotient)
