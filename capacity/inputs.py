"""Numbers that people give, checked before any estimator sees them."""

from __future__ import annotations

from typing import Any

import numpy as np

from capacity.errors import CapacityError
from capacity.specs.base import LARGEST_COUNT

ArrayLike = Any


def whole(name: str, value: ArrayLike, *, least: int = 1) -> Any:
    """``value`` as int64, or an error: whole, finite, at least ``least`` and at most 2^31.

    Raises
    ------
    CapacityError
        One sentence with the name, what was given and what is allowed.
    """
    if isinstance(value, bool | str | bytes) or value is None:
        raise CapacityError(f"{name} must be a whole number, got {value!r}")
    if isinstance(value, int) and least <= value <= LARGEST_COUNT:
        return value
    try:
        array = np.asarray(value)
        numbers = array.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        raise CapacityError(f"{name} must be a whole number or an array of them, got {shown(value)}") from None
    if array.dtype == bool or array.size == 0 or not np.all(np.isfinite(numbers)):
        raise CapacityError(f"{name} must be finite whole numbers, got {shown(value)}")
    bad = (numbers != np.floor(numbers)) | (numbers < least) | (numbers > LARGEST_COUNT)
    if np.any(bad):
        given = value if np.ndim(value) == 0 else numbers[bad].flat[0]
        raise CapacityError(f"{name} must be a whole number from {least} to 2^31, got {shown(given)}")
    return int(numbers) if np.ndim(value) == 0 else array.astype(np.int64)


def shown(value: Any) -> str:
    """A value as short text for a message."""
    text = str(value) if not isinstance(value, int) or abs(value) < 10**30 else "a number of many digits"
    return text if len(text) <= 60 else text[:57] + "..."


def same_shape(**numbers: Any) -> None:
    """Refuse arrays that do not broadcast together."""
    try:
        np.broadcast_shapes(*(np.shape(number) for number in numbers.values()))
    except ValueError:
        shapes = ", ".join(f"{name} {np.shape(number)}" for name, number in numbers.items())
        raise CapacityError(f"these arrays do not broadcast together: {shapes}") from None


def plain(value: Any) -> Any:
    """A zero-dimensional array as a Python number; arrays stay."""
    return value.item() if isinstance(value, np.generic | np.ndarray) and np.ndim(value) == 0 else value
