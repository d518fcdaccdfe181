"""What a replica keeps up when prefill and decode of the same requests share it, and how long a request waits.

A closed loop: ``batch`` sequences are always in decode, and a finished one is replaced by a new prompt at once.
"""

from __future__ import annotations

import numpy as np

from capacity.arrays import ArrayLike, FloatArray


def requests_per_s(
    prefill_s: ArrayLike, step_s: ArrayLike, *, batch: ArrayLike, output_tokens: ArrayLike
) -> FloatArray:
    r"""Requests per second where each prompt is prefilled alone while the sequences in decode wait.

    .. math:: X = \frac{1}{T_p + (N - 1) t(B) / B}

    Parameters
    ----------
    prefill_s : array_like
        Time of the prefill of one prompt, T_p, which makes its first token. [s]
    step_s : array_like
        Time of a decode step of the whole batch, t(B). [s]
    batch : array_like
        Sequences in decode, B. [sequence]
    output_tokens : array_like
        Tokens of an answer, N. [token]

    Returns
    -------
    ndarray
        In the broadcast shape of all. [1/s]

    Examples
    --------
    Llama-3.1-8B on one H100, 8,192 tokens in and 128 out, 32 sequences: 665 token/s, not 32 / 14.8 ms.

    >>> round(128 * float(requests_per_s(0.13367, 0.014817, batch=32, output_tokens=128)))
    665
    """
    decode_s = (np.asarray(output_tokens) - 1) * np.asarray(step_s) / np.asarray(batch)
    return 1.0 / (np.asarray(prefill_s) + decode_s)


def served_tpot_s(prefill_s: ArrayLike, step_s: ArrayLike, *, batch: ArrayLike, output_tokens: ArrayLike) -> FloatArray:
    r"""Time per output token that a user sees where prompts of others are prefilled between the steps of an answer.

    .. math:: TPOT = t(B) + \frac{(B - 1) T_p}{N - 1}

    While an answer is made, each of the other B - 1 sequences ends about once, and the prompt that follows it is
    prefilled.

    Parameters
    ----------
    prefill_s : array_like
        Time of the prefill of one prompt, T_p. [s]
    step_s : array_like
        Time of a decode step of the whole batch, t(B). [s]
    batch : array_like
        Sequences in decode, B. [sequence]
    output_tokens : array_like
        Tokens of an answer, N; above 1. [token]

    Returns
    -------
    ndarray
        In the broadcast shape of all. [s]

    Examples
    --------
    >>> round(1e3 * float(served_tpot_s(0.13367, 0.014817, batch=32, output_tokens=128)), 1)
    47.4
    """
    return np.asarray(step_s) + (np.asarray(batch) - 1) * np.asarray(prefill_s) / (np.asarray(output_tokens) - 1)


def arrivals_tpot_s(
    step_s: ArrayLike, sequence_s: ArrayLike, *, prefill_share: ArrayLike, decode_per_s: ArrayLike
) -> FloatArray:
    r"""Mean time per output token where requests arrive at random and every prompt is prefilled at once.

    An arrival finds the B sequences of the mean in decode, and adds itself and what gathers while it is served,

    .. math:: TPOT = \frac{t(B) + b / (1 - f)}{1 - s}, \qquad f = s + L (N - 1)\, b

    Parameters
    ----------
    step_s : array_like
        Time of a decode step of the mean number of sequences, t(B). [s]
    sequence_s : array_like
        What one more sequence adds to a step, b. [s]
    prefill_share : array_like
        Share of the time that goes into prefill, s: arrivals per second times the time of a prefill; below 1. [1]
    decode_per_s : array_like
        Tokens to decode that arrive per second, L (N - 1). [token/s]

    Returns
    -------
    ndarray
        In the broadcast shape of all; infinite where f reaches 1. [s]

    Examples
    --------
    >>> float(arrivals_tpot_s(0.01, 0.0, prefill_share=0.5, decode_per_s=100))
    0.02
    """
    share, more = np.asarray(prefill_share, dtype=float), np.asarray(sequence_s, dtype=float)
    decode_share = 1.0 - share - np.asarray(decode_per_s) * more
    met = np.asarray(step_s) + more / np.where(decode_share > 0.0, decode_share, 1.0)
    return np.where(decode_share > 0.0, met / np.where(decode_share > 0.0, 1.0 - share, 1.0), np.inf)


def max_requests_per_s(
    prefill_compute_s: ArrayLike,
    step_compute_s: ArrayLike,
    step_memory_s: ArrayLike,
    *,
    batch: ArrayLike,
    output_tokens: ArrayLike,
) -> FloatArray:
    r"""Requests per second that no engine exceeds: one side of the device is busy all the time.

    .. math:: X \le 1 / \max\left(c_p + (N - 1) \frac{c(B)}{B},\; (N - 1) \frac{m(B)}{B}\right)

    Every request needs N - 1 decode passes of at most B sequences; a prompt may share one of them, so its weights and
    its cache cost no bytes of their own.

    Parameters
    ----------
    prefill_compute_s : array_like
        Compute time of the least work of one prompt, c_p. [s]
    step_compute_s, step_memory_s : array_like
        Compute and memory time of the least work of a decode step of the whole batch, c(B) and m(B). [s]
    batch : array_like
        Sequences in decode, B. [sequence]
    output_tokens : array_like
        Tokens of an answer, N. [token]

    Returns
    -------
    ndarray
        In the broadcast shape of all. [1/s]

    Examples
    --------
    >>> float(max_requests_per_s(0.1, 0.002, 0.01, batch=10, output_tokens=101))  # compute: 0.1 + 100 x 0.0002
    8.333333333333332
    """
    steps = (np.asarray(output_tokens) - 1) / np.asarray(batch)
    compute_s = np.asarray(prefill_compute_s) + steps * np.asarray(step_compute_s)
    return 1.0 / np.maximum(compute_s, steps * np.asarray(step_memory_s))
