"""Numbers that people give, checked before any estimator sees them."""

from __future__ import annotations

from typing import Any

import numpy as np

from capacity.errors import CapacityError
from capacity.specs.base import LARGEST_COUNT
from capacity.specs.deployment import Deployment
from capacity.specs.hardware import HardwareSpec
from capacity.specs.model import ModelSpec
from capacity.specs.workload import Workload
from capacity.specs.world import WorldModelSpec

ArrayLike = Any
_HOW_TO_GET = {
    ModelSpec: "load it with load_model",
    HardwareSpec: "load it with load_hardware",
    WorldModelSpec: "load it with load_world_model",
    Deployment: "make one with Deployment(...)",
    Workload: "make one with Workload(...)",
    str: "give its name",
}
DEEPEST = 64  # dimensions that an array can have


def whole(name: str, value: ArrayLike, *, least: int = 1) -> Any:
    """``value`` as int64, or an error: whole, finite, at least ``least`` and at most 2^31.

    Raises
    ------
    CapacityError
        One sentence with the name, what was given and what is allowed.
    """
    if isinstance(value, int) and not isinstance(value, bool) and least <= value <= LARGEST_COUNT:
        return value
    array = _numbers(name, value, least)
    if array.size == 0 or not np.all(np.isfinite(array)):
        raise CapacityError(f"{name} must be finite whole numbers, got {shown(value)}")
    bad = (array != np.floor(array)) | (array < least) | (array > LARGEST_COUNT)
    if np.any(bad):
        given = value if np.ndim(value) == 0 else array[bad].flat[0]
        raise CapacityError(f"{name} must be a whole number from {least} to 2^31, got {shown(given)}")
    return int(array) if array.ndim == 0 else array.astype(np.int64)


def _numbers(name: str, value: Any, least: int) -> Any:
    """An array of integers or floats; nothing else is turned into a number."""
    wrong = CapacityError(f"{name} must be a whole number or an array of them, got {shown(value)}")
    try:
        array = as_array(value)
    except (TypeError, ValueError, OverflowError):
        raise wrong from None
    if array.dtype.kind == "O" and all(type(item) is int for item in array.flat):  # beyond 64 bits, or asked for
        if any(not least <= item <= LARGEST_COUNT for item in array.flat):
            raise CapacityError(f"{name} must be a whole number from {least} to 2^31, got {shown(value)}")
        return array.astype(np.int64)
    if array.dtype.kind not in "iuf":
        raise wrong
    return array


def as_array(value: Any) -> Any:
    """``value`` as an array, or a TypeError where numpy would make numbers of truth values or of what a mask hides."""
    if _is_no_number(value):
        raise TypeError("truth values and masked entries are no numbers")
    return np.asarray(value)


def _is_no_number(value: Any, depth: int = 0) -> bool:
    if isinstance(value, bool | np.ma.MaskedArray) or getattr(value, "dtype", None) == np.bool_:
        return True
    if isinstance(value, np.ndarray) and value.dtype == np.object_:
        value = value.tolist()
    return isinstance(value, list | tuple) and (
        depth > DEEPEST or any(_is_no_number(item, depth + 1) for item in value)
    )


def check_kind(name: str, value: Any, kind: type, *, none: bool = False) -> None:
    """Refuse an argument of another kind before anything looks into it; with ``none``, None may stand for it.

    Raises
    ------
    CapacityError
        One sentence with the name, what is wanted, what was given and how to get one.
    """
    if not isinstance(value, kind) and not (none and value is None):
        advice = f"; {_HOW_TO_GET[kind]}" if kind in _HOW_TO_GET else ""
        raise CapacityError(f"{name} must be a {kind.__name__}, got {type(value).__name__}{advice}")


def check_each(name: str, values: Any, kind: type) -> None:
    """Refuse what is no list or tuple, and one that holds another kind.

    Raises
    ------
    CapacityError
        As by `check_kind`.
    """
    if not isinstance(values, list | tuple):
        raise CapacityError(f"{name} must be a list or a tuple, got {type(values).__name__}")
    for value in values:
        check_kind(f"each of {name}", value, kind)


def shown(value: Any) -> str:
    """A value as short text for a message."""
    try:
        text = repr(value) if isinstance(value, str) else str(value)
    except ValueError:  # an int too long to print, alone or inside a list
        text = "a number of thousands of digits"
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
