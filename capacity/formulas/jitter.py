"""Deadlines under jitter: a percentile of the latency and the share of decisions that are late."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from capacity.arrays import ArrayLike, FloatArray
from capacity.errors import CapacityError
from capacity.inputs import check_time

_EXACT = 1e-9  # a latency that equals its deadline but for rounding is in time
_NORMAL = NormalDist()
_QUANTILE_99 = _NORMAL.inv_cdf(0.99)


def percentile_latency_s(median_s: ArrayLike, *, p99_over_p50: ArrayLike, percentile: ArrayLike) -> FloatArray:
    r"""A percentile of a log-normal latency whose spread is given by its 99th percentile over its median [1]_.

    .. math:: T_q = T_{50} \exp(\sigma z_q), \quad \sigma = \ln(T_{99} / T_{50}) / z_{99}

    Parameters
    ----------
    median_s : array_like
        Half of the decisions are faster. [s]
    p99_over_p50 : array_like
        Jitter, measured or assumed; 1 means none. [1]
    percentile : array_like
        Between 0 and 100. [%]

    Returns
    -------
    ndarray
        In the broadcast shape of all. [s]

    Raises
    ------
    CapacityError
        If the jitter is below 1 or the percentile outside 0 to 100.

    Examples
    --------
    >>> float(percentile_latency_s(0.050, p99_over_p50=1.2, percentile=99).round(6))
    0.06

    References
    ----------
    .. [1] Johnson, Kotz, Balakrishnan, "Continuous Univariate Distributions", vol. 1, 2nd ed., 1994, ch. 14.
    """
    sigma = _sigma(p99_over_p50)
    return check_time("median_s", median_s) * np.exp(sigma * _normal_quantile(percentile))


def miss_rate(median_s: ArrayLike, *, p99_over_p50: ArrayLike, deadline_s: ArrayLike) -> FloatArray:
    r"""Share of decisions later than the deadline, for the latency of `percentile_latency_s`.

    .. math:: 1 - \Phi\left(\frac{\ln(D / T_{50})}{\sigma}\right)

    Parameters
    ----------
    median_s : array_like
        Half of the decisions are faster. [s]
    p99_over_p50 : array_like
        Jitter; 1 means none. [1]
    deadline_s : array_like
        Time allowed, D. [s]

    Returns
    -------
    ndarray
        In the broadcast shape of all. [1]

    Raises
    ------
    CapacityError
        If the jitter is below 1 or a time is not positive.

    Examples
    --------
    >>> miss_rate(0.050, p99_over_p50=1.2, deadline_s=[0.050, 0.060]).round(4)
    array([0.5 , 0.01])
    """
    median, deadline = check_time("median_s", median_s), check_time("deadline_s", deadline_s)
    sigma = _sigma(p99_over_p50)
    gap = np.log(deadline / median)
    spread = np.where(sigma > 0, sigma, 1.0)
    late = _above(gap / spread)
    return np.where(sigma > 0, late, np.where(gap < -_EXACT, 1.0, 0.0))


def _above(z: FloatArray) -> FloatArray:
    """Share of a normal distribution above z."""
    if np.ndim(z) == 0:
        return np.asarray(1.0 - _NORMAL.cdf(float(z)))
    return np.vectorize(lambda one: 1.0 - _NORMAL.cdf(float(one)), otypes=[float])(z)


def _sigma(p99_over_p50: ArrayLike) -> FloatArray:
    jitter = np.asarray(p99_over_p50, dtype=float)
    if not np.all(np.isfinite(jitter) & (jitter >= 1)):
        raise CapacityError(f"p99_over_p50 is at least 1, got {p99_over_p50!r}")
    return np.log(jitter) / _QUANTILE_99


def _normal_quantile(percentile: ArrayLike) -> FloatArray:
    percentiles = np.asarray(percentile, dtype=float)
    if not np.all((percentiles > 0) & (percentiles < 100)):
        raise CapacityError(f"percentile lies between 0 and 100, both excluded, got {percentile!r}")
    if percentiles.ndim == 0:
        return np.asarray(_NORMAL.inv_cdf(float(percentiles) / 100.0))
    return np.vectorize(lambda q: _NORMAL.inv_cdf(float(q) / 100.0), otypes=[float])(percentiles)
