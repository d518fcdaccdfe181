"""Pipeline parallelism: how often each rank's time counts in a decode step and in a prefill."""

from __future__ import annotations

import numpy as np

from capacity.arrays import ArrayLike, FloatArray


def rank_weights(rank_s: FloatArray, ranks: ArrayLike, *, turns: ArrayLike, flows: bool) -> FloatArray:
    r"""How often the time of one turn of each kind of rank counts in the time of a pass [1]_.

    A token of a decode step passes all ranks, and no round is shorter than the turns of the slowest:

    .. math:: t = \max\left(\sum_r n_r t_r,\; m \max_r t_r\right)

    Chunks of a prompt flow through the ranks like micro-batches, so a long prefill takes the longest rank alone.

    Parameters
    ----------
    rank_s : array_like
        Time of one turn (of the whole prompt, where it flows) of each kind of rank, along the first axis. [s]
    ranks : array_like
        Ranks of each kind, n. [rank]
    turns : array_like
        Micro-batches that each rank takes in a round, m. [1]
    flows : bool
        Whether chunks flow through the ranks, as in prefill.

    Returns
    -------
    ndarray
        Weights in the shape of ``rank_s``; the time of the pass is the sum of weights and times. [1]

    Examples
    --------
    >>> times = np.array([2.0, 3.0])
    >>> rank_weights(times, [1, 1], turns=1, flows=False), rank_weights(times, [1, 1], turns=2, flows=False)
    (array([1., 1.]), array([0., 2.]))
    >>> rank_weights(times, [1, 1], turns=8, flows=True)
    array([0., 1.])

    References
    ----------
    .. [1] Huang et al., "GPipe", NeurIPS 2019, section 2.3: micro-batches and the bubble of a pipeline.
    """
    times = np.asarray(rank_s, dtype=np.float64)
    counts = np.reshape(np.asarray(ranks, dtype=np.float64), (-1,) + (1,) * (times.ndim - 1))
    slowest = np.arange(len(times)).reshape(counts.shape) == times.argmax(axis=0)
    if flows:
        return np.asarray(slowest, dtype=np.float64)
    through_all = (counts * times).sum(axis=0) >= np.multiply(turns, times.max(axis=0))
    return np.where(through_all, counts, np.multiply(turns, slowest))


def filling_factor(turns: ArrayLike, ranks: int) -> FloatArray:
    r"""How much longer a prefill takes than its longest rank, while the pipeline fills [1]_.

    .. math:: \frac{c + r - 1}{c}

    Parameters
    ----------
    turns : array_like
        Chunks of the prompts, c. [1]
    ranks : int
        Ranks of the pipeline, r. [rank]

    Returns
    -------
    ndarray
        In the shape of ``turns``. [1]

    Examples
    --------
    >>> filling_factor([1, 8], 8)
    array([8.   , 1.875])

    References
    ----------
    .. [1] Huang et al., "GPipe", NeurIPS 2019, section 2.3.
    """
    chunks = np.maximum(np.asarray(turns, dtype=np.float64), 1.0)
    return np.asarray((chunks + ranks - 1) / chunks)
