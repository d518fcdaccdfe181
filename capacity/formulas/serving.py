"""From the time of a step to the latency of a request and to throughput."""

from __future__ import annotations

import numpy as np

from capacity.arrays import ArrayLike, FloatArray


def request_latency_s(ttft_s: ArrayLike, tpot_s: ArrayLike, output_tokens: ArrayLike) -> FloatArray:
    r"""Time of a whole request; the time to first token includes the first of ``output_tokens``.

    .. math:: T = TTFT + (N - 1) TPOT

    Parameters
    ----------
    ttft_s : array_like
        Time to first token, TTFT. [s]
    tpot_s : array_like
        Time per output token after the first, TPOT. [s]
    output_tokens : array_like
        Tokens of the answer, N. [token]

    Returns
    -------
    ndarray
        In the broadcast shape of all. [s]

    Examples
    --------
    >>> round(float(request_latency_s(0.180, 0.035, 20)), 3)
    0.845
    """
    return np.asarray(ttft_s) + (np.asarray(output_tokens) - 1) * np.asarray(tpot_s)


def tokens_per_s(batch: ArrayLike, tpot_s: ArrayLike) -> FloatArray:
    """Output tokens per second of a replica in decode: one step makes a token of each sequence.

    Parameters
    ----------
    batch : array_like
        Sequences that are decoded together. [sequence]
    tpot_s : array_like
        Time of a step. [s]

    Returns
    -------
    ndarray
        In the broadcast shape of both. [token/s]

    Examples
    --------
    >>> float(tokens_per_s(16, 0.0125))
    1280.0
    """
    return np.asarray(batch) / np.asarray(tpot_s)
