"""Keys that attention reads and query-key pairs that it computes, in a pass of new tokens after cached ones."""

from __future__ import annotations

import numpy as np

from capacity.arrays import ArrayLike, FloatArray


def causal_pairs(new_tokens: ArrayLike, cached_tokens: ArrayLike, *, window: ArrayLike) -> FloatArray:
    r"""Query-key pairs when each query attends to the last ``window`` tokens up to its own position.

    .. math:: \sum_{i=1}^{n} \min(c + i, w) = a c + \frac{a (a + 1)}{2} + (n - a) w, \quad a = \min(\max(w - c, 0), n)

    Parameters
    ----------
    new_tokens : array_like
        Queries of one sequence, n. [token]
    cached_tokens : array_like
        Tokens before the first query, c. [token]
    window : array_like
        Keys of one query at most, its own included, w; above every context where there is no window. [token]

    Returns
    -------
    ndarray
        Pairs of one sequence, in the broadcast shape of all. [pair]

    Examples
    --------
    >>> causal_pairs(4, 0, window=[2**62, 2]), causal_pairs(1, 9, window=4)
    (array([10.,  7.]), array(4.))
    """
    n, c = np.asarray(new_tokens, dtype=np.float64), np.asarray(cached_tokens, dtype=np.float64)
    w = np.asarray(window, dtype=np.float64)
    growing = np.clip(w - c, 0.0, n)
    return np.asarray(growing * c + growing * (growing + 1.0) / 2.0 + (n - growing) * w)


def chunked_pairs(new_tokens: ArrayLike, cached_tokens: ArrayLike, *, chunk: ArrayLike) -> FloatArray:
    r"""Query-key pairs when each query attends to its own chunk of the positions, up to itself.

    With :math:`p = q k + r` positions, :math:`P(p) = q k (k + 1) / 2 + r (r + 1) / 2` pairs; a pass has
    :math:`P(c + n) - P(c)`.

    Parameters
    ----------
    new_tokens : array_like
        Queries of one sequence, n. [token]
    cached_tokens : array_like
        Tokens before the first query, c. [token]
    chunk : array_like
        Positions of one chunk, k. [token]

    Returns
    -------
    ndarray
        Pairs of one sequence, in the broadcast shape of all. [pair]

    Examples
    --------
    >>> chunked_pairs([5, 1, 1], [0, 7, 8], chunk=8)  # the eighth position ends a chunk, the ninth starts one
    array([15.,  8.,  1.])
    """
    n, c = np.asarray(new_tokens, dtype=np.float64), np.asarray(cached_tokens, dtype=np.float64)
    k = np.asarray(chunk, dtype=np.float64)
    first, before = np.divmod(c, k)
    last, after = np.divmod(c + n, k)
    rests = (after * (after + 1.0) - before * (before + 1.0)) / 2.0
    return np.asarray((last - first) * k * (k + 1.0) / 2.0 + rests)


def free_pairs(new_tokens: ArrayLike, cached_tokens: ArrayLike, *, window: ArrayLike) -> FloatArray:
    """Query-key pairs when each query attends to all cached and all new tokens, at most ``window`` of them.

    Parameters
    ----------
    new_tokens : array_like
        Queries of one sequence. [token]
    cached_tokens : array_like
        Cached tokens. [token]
    window : array_like
        Keys of one query at most. [token]

    Returns
    -------
    ndarray
        Pairs of one sequence, in the broadcast shape of all. [pair]

    Examples
    --------
    >>> float(free_pairs(50, 816, window=2**62))
    43300.0
    """
    new = np.asarray(new_tokens, dtype=np.float64)
    return np.asarray(new * np.minimum(new + np.asarray(cached_tokens, dtype=np.float64), window))


def cached_keys_read(cached_tokens: ArrayLike, *, window: ArrayLike) -> FloatArray:
    """Cached keys that the first query of a causal pass attends to: its own key takes one place of the window.

    Parameters
    ----------
    cached_tokens : array_like
        Tokens before the first query. [token]
    window : array_like
        Keys of one query at most, its own included. [token]

    Returns
    -------
    ndarray
        Keys of one sequence, in the broadcast shape of both. [token]

    Examples
    --------
    >>> cached_keys_read([10, 4096], window=4096)
    array([  10., 4095.])
    """
    return np.minimum(np.asarray(cached_tokens, dtype=np.float64), np.asarray(window, dtype=np.float64) - 1.0)
