"""Types of numbers and arrays, and the way back from an array to a plain number."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

ArrayLike = npt.ArrayLike
"""A number, or numbers that numpy makes an array of."""

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


def plain(value: Any) -> Any:
    """A zero-dimensional array as a Python number; anything else as it is.

    >>> plain(np.int64(3)), plain(np.array([1, 2])).tolist()
    (3, [1, 2])
    """
    return value.item() if isinstance(value, np.generic | np.ndarray) and np.ndim(value) == 0 else value
