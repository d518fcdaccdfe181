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


def seen_tpot_s(prefill_s: ArrayLike, step_s: ArrayLike, *, batch: ArrayLike, output_tokens: ArrayLike) -> FloatArray:
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
    >>> round(1e3 * float(seen_tpot_s(0.13367, 0.014817, batch=32, output_tokens=128)), 1)
    47.4
    """
    return np.asarray(step_s) + (np.asarray(batch) - 1) * np.asarray(prefill_s) / (np.asarray(output_tokens) - 1)


def chunked_requests_per_s(
    mixed_s: ArrayLike, step_s: ArrayLike, *, chunks: ArrayLike, batch: ArrayLike, output_tokens: ArrayLike
) -> FloatArray:
    r"""Requests per second where chunks of a prompt ride along with decode steps.

    With :math:`m = (N - 1) / B` decode steps per finished request,

    .. math:: X = \frac{1}{n_c t_{mix} + (m - n_c)\, t(B)} \quad (n_c \le m), \qquad X = \frac{1}{n_c t_{mix}}
        \quad (n_c > m)

    Parameters
    ----------
    mixed_s : array_like
        Time of a pass with the decode tokens and one chunk, t_mix; where chunks outnumber the decode steps of a
        request, at (N - 1) / n_c sequences in decode. [s]
    step_s : array_like
        Time of a decode step of the whole batch, t(B). [s]
    chunks : array_like
        Chunks of a prompt, n_c. [1]
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
    >>> float(chunked_requests_per_s(0.05, 0.01, chunks=2, batch=10, output_tokens=101))  # 2 x 0.05 + 8 x 0.01
    5.555555555555555
    """
    steps = (np.asarray(output_tokens) - 1) / np.asarray(batch)
    alone = np.maximum(steps - np.asarray(chunks), 0.0) * np.asarray(step_s)
    return 1.0 / (np.asarray(chunks) * np.asarray(mixed_s) + alone)


def most_requests_per_s(
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
    >>> float(most_requests_per_s(0.1, 0.002, 0.01, batch=10, output_tokens=101))  # compute: 0.1 + 100 x 0.0002
    8.333333333333332
    """
    steps = (np.asarray(output_tokens) - 1) / np.asarray(batch)
    compute_s = np.asarray(prefill_compute_s) + steps * np.asarray(step_compute_s)
    return 1.0 / np.maximum(compute_s, steps * np.asarray(step_memory_s))
