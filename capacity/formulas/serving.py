"""From step times to requests and throughput."""

from __future__ import annotations

from typing import Any

import numpy as np

ArrayLike = Any


def request_latency_s(ttft_s: ArrayLike, tpot_s: ArrayLike, output_tokens: ArrayLike) -> Any:
    """Time of a whole request; the time to first token holds the first of ``output_tokens``. [s]

    .. math:: T = TTFT + (N - 1) TPOT

    >>> round(float(request_latency_s(0.180, 0.035, 20)), 3)
    0.845
    """
    return np.asarray(ttft_s) + (np.asarray(output_tokens) - 1) * np.asarray(tpot_s)


def tokens_per_s(batch: ArrayLike, tpot_s: ArrayLike) -> Any:
    """Output tokens a second of a replica that decodes ``batch`` sequences at ``tpot_s`` a step. [token/s]"""
    return np.asarray(batch) / np.asarray(tpot_s)
