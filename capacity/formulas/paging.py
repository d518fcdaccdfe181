"""Cache policies over many requests: contiguous or paged, sliding window with sinks."""

from __future__ import annotations

import numpy as np

from capacity.arrays import ArrayLike, FloatArray
from capacity.errors import CapacityError
from capacity.inputs import check_count


def window_tokens(context_tokens: ArrayLike, *, window: ArrayLike, sinks: ArrayLike) -> FloatArray:
    """Tokens kept per layer with a sliding window after some first tokens: min(S, W + sinks) [1]_.

    Parameters
    ----------
    context_tokens : array_like
        Tokens seen, S. [token]
    window : array_like
        Last tokens kept, W. [token]
    sinks : array_like
        First tokens, which are always kept. [token]

    Returns
    -------
    ndarray
        In the broadcast shape of all. [token]

    Raises
    ------
    CapacityError
        If ``sinks`` is negative or not whole.

    Examples
    --------
    >>> window_tokens([500, 25_600], window=1020, sinks=4).tolist()
    [500.0, 1024.0]

    References
    ----------
    .. [1] Xiao et al., "Efficient Streaming Language Models with Attention Sinks", arXiv:2309.17453.
    """
    first = np.asarray(sinks, dtype=float)
    if not np.all((first >= 0) & (first == np.floor(first))):
        raise CapacityError(f"sinks must be whole and not negative, got {sinks!r}")
    return np.minimum(check_count("context_tokens", context_tokens), check_count("window", window) + first)


def contiguous_tokens(lengths_tokens: ArrayLike, *, longest_tokens: int) -> float:
    """Tokens reserved when each request gets room for the longest one [1]_.

    Parameters
    ----------
    lengths_tokens : array_like
        Final length of each request. [token]
    longest_tokens : int
        Length reserved. [token]

    Returns
    -------
    float
        Sum over all requests. [token]

    Raises
    ------
    CapacityError
        If a request is longer than what is reserved.

    Examples
    --------
    >>> contiguous_tokens([100, 300, 2000], longest_tokens=2048)
    6144.0

    References
    ----------
    .. [1] Kwon et al., "Efficient Memory Management for Large Language Model Serving with PagedAttention",
       SOSP 2023, arXiv:2309.06180, section 3.1.
    """
    lengths = check_count("lengths_tokens", lengths_tokens)
    if np.any(lengths > longest_tokens):
        raise CapacityError(f"a request of {int(lengths.max())} tokens does not fit the {longest_tokens} reserved")
    return float(lengths.size * check_count("longest_tokens", longest_tokens))


def paged_tokens(lengths_tokens: ArrayLike, *, block_tokens: int) -> float:
    """Tokens held when each request gets whole blocks as it grows [1]_.

    Parameters
    ----------
    lengths_tokens : array_like
        Length of each request. [token]
    block_tokens : int
        Tokens per block. [token]

    Returns
    -------
    float
        Sum over all requests. [token]

    Examples
    --------
    >>> paged_tokens([100, 300, 2000], block_tokens=16)
    2416.0

    References
    ----------
    .. [1] As for `contiguous_tokens`, section 4.
    """
    block = check_count("block_tokens", block_tokens)
    return float(np.sum(np.ceil(check_count("lengths_tokens", lengths_tokens) / block) * block))


def requests_that_fit(free_bytes: float, *, token_bytes: float, held_tokens: float, requests: int) -> int:
    """Requests of one length distribution that fit on average, from what a sample of them holds.

    Parameters
    ----------
    free_bytes : float
        Memory for caches. [B]
    token_bytes : float
        Cache of one token in all layers. [B]
    held_tokens : float
        What a sample holds, from `contiguous_tokens` or `paged_tokens`. [token]
    requests : int
        Size of that sample. [request]

    Returns
    -------
    int
        Rounded down. [request]

    Raises
    ------
    CapacityError
        If the bytes or the tokens are not positive.

    Examples
    --------
    >>> requests_that_fit(62e9, token_bytes=524_288, held_tokens=2048, requests=1)
    57
    """
    if not (token_bytes > 0 and held_tokens > 0):
        raise CapacityError(f"token_bytes and held_tokens must be positive, got {token_bytes!r} and {held_tokens!r}")
    return int(max(free_bytes, 0.0) // (token_bytes * held_tokens / float(check_count("requests", requests))))
