"""How long requests wait that arrive at random: for the prefill ahead of them, and for one of a number of slots."""

from __future__ import annotations

import numpy as np

from capacity.arrays import ArrayLike, FloatArray


def mean_wait_s(service_s: ArrayLike, utilisation: ArrayLike, *, squared_variation: ArrayLike = 0.0) -> FloatArray:
    r"""Mean wait before one server with Poisson arrivals, first come first served [1]_.

    .. math:: W = \frac{\rho\, Y (1 + c^2)}{2 (1 - \rho)}

    Parameters
    ----------
    service_s : array_like
        Mean time of service, Y. [s]
    utilisation : array_like
        Arrivals per second times Y, below 1; at 1 and above the wait has no end. [1]
    squared_variation : array_like
        Variance of the service over its squared mean; 0 where all are equal. [1]

    Returns
    -------
    ndarray
        In the broadcast shape of all; infinite from a utilisation of 1. [s]

    Examples
    --------
    >>> float(mean_wait_s(0.1, 0.5))
    0.05

    References
    ----------
    .. [1] Pollaczek and Khinchine, for example L. Kleinrock, Queueing Systems, vol. 1, 1975.
    """
    rho = np.asarray(utilisation, dtype=float)
    numerator = rho * np.asarray(service_s) * (1.0 + np.asarray(squared_variation)) / 2.0
    return np.where(rho < 1.0, numerator / np.where(rho < 1.0, 1.0 - rho, 1.0), np.inf)


def wait_at_percentile_s(
    service_s: ArrayLike, utilisation: ArrayLike, percentile: ArrayLike, *, squared_variation: ArrayLike = 0.0
) -> FloatArray:
    r"""Wait that a share of requests does not exceed, from the exponential tail of a busy server.

    .. math:: W_p = \max\left(0, \frac{Y (1 + c^2)}{2 (1 - \rho)} \ln \frac{\rho}{1 - p}\right)

    Parameters
    ----------
    service_s : array_like
        Mean time of service, Y. [s]
    utilisation : array_like
        Arrivals per second times Y. [1]
    percentile : array_like
        From 0 to 100, both exclusive: p in per cent. [%]
    squared_variation : array_like
        Variance of the service over its squared mean. [1]

    Returns
    -------
    ndarray
        In the broadcast shape of all; infinite from a utilisation of 1. [s]

    Examples
    --------
    >>> round(float(wait_at_percentile_s(0.1, 0.5, 99.0)), 3)
    0.391
    >>> float(wait_at_percentile_s(0.1, 0.2, 50.0))  # half of the requests do not wait at all
    0.0
    """
    rho = np.asarray(utilisation, dtype=float)
    busy = (rho > 0.0) & (rho < 1.0)
    within = np.where(busy, rho, 0.5)
    scale = np.asarray(service_s) * (1.0 + np.asarray(squared_variation)) / (2.0 * (1.0 - within))
    wait = np.maximum(0.0, scale * np.log(within / (1.0 - np.asarray(percentile) / 100.0)))
    return np.where(rho >= 1.0, np.inf, np.where(busy, wait, 0.0))
