"""Predicted compared with measured: ratio, inside its band or not, and mean absolute, p90 and worst error."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar

import numpy as np

from capacity.arrays import ArrayLike, FloatArray
from capacity.errors import CapacityError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Pair:
    """A prediction and a measurement in one ``unit``; ``low`` and ``high`` are the band, where claimed."""

    DERIVED: ClassVar[tuple[str, ...]] = ("ratio", "in_band", "bound_holds")

    name: str
    unit: str
    predicted: float
    measured: float
    low: float | None = None
    high: float | None = None
    bound: float | None = None
    group: str = ""
    note: str = ""

    @property
    def ratio(self) -> float:
        """Predicted over measured. [1]"""
        return self.predicted / self.measured

    @property
    def error(self) -> float:
        """Absolute relative error, |predicted / measured - 1|. [1]"""
        return abs(self.ratio - 1.0)

    @property
    def in_band(self) -> bool | None:
        """Whether the measurement is inside the band; ``None`` without a band."""
        if self.low is None or self.high is None:
            return None
        return self.low <= self.measured <= self.high

    @property
    def bound_holds(self) -> bool | None:
        """Whether the bound is not above the measurement; ``None`` without a bound."""
        return None if self.bound is None else self.bound <= self.measured


@dataclass(frozen=True, slots=True)
class Errors:
    """Absolute relative errors of ``rows`` pairs; ``in_band`` is a share of those that have a band. [1]"""

    rows: int
    median: float
    mean_absolute: float
    p90: float
    worst: float
    in_band: float | None = None


def relative_errors(predicted: ArrayLike, measured: ArrayLike) -> FloatArray:
    """Absolute relative errors, in the broadcast shape of both. [1]

    Raises
    ------
    CapacityError
        If a measurement is not positive, or a number is not finite.

    Examples
    --------
    >>> relative_errors([90.0, 120.0], [100.0, 100.0]).round(3)
    array([0.1, 0.2])
    """
    estimates, truth = np.asarray(predicted, dtype=float), np.asarray(measured, dtype=float)
    if not (np.all(np.isfinite(estimates)) and np.all(np.isfinite(truth)) and np.all(truth > 0)):
        raise CapacityError("a comparison needs finite predictions and finite, positive measurements")
    return np.asarray(np.abs(estimates / truth - 1.0))


def summarise(pairs: Sequence[Pair]) -> Errors:
    """Median, mean absolute, p90 and worst error; p90 is an error that occurred (nearest rank).

    Raises
    ------
    CapacityError
        If there are no pairs.
    """
    if not pairs:
        raise CapacityError("nothing to compare: no row has both a prediction and a measurement")
    errors = relative_errors([pair.predicted for pair in pairs], [pair.measured for pair in pairs])
    banded = [pair.in_band for pair in pairs if pair.in_band is not None]
    return Errors(
        rows=len(pairs),
        median=float(np.median(errors)),
        mean_absolute=float(np.mean(errors)),
        p90=float(np.percentile(errors, 90, method="inverted_cdf")),
        worst=float(np.max(errors)),
        in_band=sum(banded) / len(banded) if banded else None,
    )


def share_within(pairs: Sequence[Pair], tolerance: float) -> float:
    """Share of pairs whose error is at most ``tolerance``. [1]"""
    return sum(pair.error <= tolerance for pair in pairs) / len(pairs) if pairs else 0.0


def by_group(items: Iterable[T], key: Callable[[T], str]) -> dict[str, list[T]]:
    """Items by the text that ``key`` gives, in order of first appearance."""
    groups: dict[str, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups
