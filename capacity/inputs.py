"""Numbers that people give, checked before any formula sees them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from capacity.arrays import ArrayLike, FloatArray
from capacity.errors import CapacityError

LARGEST_COUNT = 2**31  # a product of counts above this could leave 64 bits unnoticed
MIN_TIME_S, MAX_TIME_S = 1e-15, 1e15  # far beyond any clock, and no quotient or sum of two overflows a float
MAX_DIMENSIONS = 32  # of an array that numpy broadcasts
MAX_POINTS = 2**27  # of one question: several arrays of floats of that size are held at once


def whole(name: str, value: ArrayLike | None, *, minimum: int = 1) -> Any:
    """``value`` as int64, or an error: whole, finite, at least ``minimum`` and at most 2^31.

    Raises
    ------
    CapacityError
        One sentence with the name, what was given and what is allowed.
    """
    if isinstance(value, int) and not isinstance(value, bool) and minimum <= value <= LARGEST_COUNT:
        return value
    array = _whole_or_float(name, value, minimum)
    if array.size == 0 or not np.all(np.isfinite(array)):
        raise CapacityError(f"{name} must be finite whole numbers, got {shown(value)}")
    bad = (array != np.floor(array)) | (array < minimum) | (array > LARGEST_COUNT)
    if np.any(bad):
        value_in_error = array[bad].flat[0] if array.ndim else value
        raise CapacityError(f"{name} must be a whole number from {minimum} to 2^31, got {shown(value_in_error)}")
    return int(array) if array.ndim == 0 else array.astype(np.int64)


def _whole_or_float(name: str, value: Any, minimum: int) -> Any:
    """An array of integers or floats; nothing else is turned into a number."""
    wrong = CapacityError(f"{name} must be a whole number or an array of them, got {shown(value)}")
    try:
        array = as_array(value)
    except (TypeError, ValueError, OverflowError):
        raise wrong from None
    if array.dtype.kind == "O" and all(type(item) is int for item in array.flat):  # beyond 64 bits, or asked for
        if any(not minimum <= item <= LARGEST_COUNT for item in array.flat):
            raise CapacityError(f"{name} must be a whole number from {minimum} to 2^31, got {shown(value)}")
        return array.astype(np.int64)
    if array.dtype.kind not in "iuf":
        raise wrong
    _check_extent(name, array)
    return array


def one_count(name: str, value: ArrayLike | None) -> int:
    """A single whole number of at least one and at most 2^31, as an int. [-]

    Raises
    ------
    CapacityError
        If it is not one.
    """
    if np.ndim(count := whole(name, value)):
        raise CapacityError(f"{name} must be one number, got an array of shape {count.shape}")
    return int(count)


def check_count(name: str, value: ArrayLike | None) -> FloatArray:
    """``value`` as an array of whole numbers of at least one, in the unit it came in. [-]

    Raises
    ------
    CapacityError
        If it is not.
    """
    counts = _floats(name, value, "a whole number")
    if not np.all(np.isfinite(counts) & (counts >= 1) & (counts == np.floor(counts))):
        raise CapacityError(f"{name} must be a whole number of at least 1, got {shown(value)}")
    return counts


def check_time(name: str, value: ArrayLike | None, *, zero: bool = False) -> FloatArray:
    """``value`` as an array of times from `MIN_TIME_S` to `MAX_TIME_S`, or also 0 with ``zero``. [s]

    Raises
    ------
    CapacityError
        If it is missing, not a number, or outside that range.
    """
    if value is None:
        raise CapacityError(f"{name} is missing; give a number{', 0 if there is none' if zero else ''}")
    if isinstance(value, float) and (MIN_TIME_S <= value <= MAX_TIME_S or (zero and value == 0.0)):
        return np.asarray(value, dtype=np.float64)
    times = _floats(name, value, "a number")
    if not np.all(np.isfinite(times) & ((times >= 0) if zero else (times > 0))):
        allowed = "not negative" if zero else "positive"
        raise CapacityError(f"{name} must be finite and {allowed}, got {shown(value)}")
    if np.any((times > MAX_TIME_S) | (times < MIN_TIME_S) & (times != 0)):
        or_zero = "0 or " if zero else ""
        raise CapacityError(f"{name} must be {or_zero}from {MIN_TIME_S:g} to {MAX_TIME_S:g}, got {shown(value)}")
    return times


def one_time(name: str, value: ArrayLike | None, *, zero: bool = False) -> float:
    """A single time, checked as by `check_time`, as a float. [s]

    Raises
    ------
    CapacityError
        If it is not one.
    """
    times = check_time(name, value, zero=zero)
    if times.ndim:
        raise CapacityError(f"{name} must be one number, got an array of shape {times.shape}")
    return float(times)


def _floats(name: str, value: ArrayLike | None, requirement: str) -> FloatArray:
    """``value`` as an array of floats; text, booleans, masked entries and complex numbers are not numbers here."""
    try:
        array = as_array(value)
        if array.dtype.kind not in "iufO":
            raise TypeError
        _check_extent(name, array)
        return array.astype(float)
    except CapacityError:
        raise
    except (TypeError, ValueError, OverflowError):
        raise CapacityError(f"{name} must be {requirement}, got {shown(value)}") from None


def _check_extent(name: str, array: Any) -> None:
    """Refuse an array that numpy does not broadcast or that memory does not hold, before anything is made of it."""
    if array.ndim > MAX_DIMENSIONS:
        raise CapacityError(f"{name}: arrays of at most {MAX_DIMENSIONS} dimensions are allowed, got {array.ndim}")
    if array.size > MAX_POINTS:
        raise CapacityError(f"{name} has {array.size:,} points; at most {MAX_POINTS:,} are allowed")


def as_array(value: Any) -> Any:
    """``value`` as an array.

    Raises
    ------
    TypeError
        Where numpy would turn booleans, or what a mask hides, into numbers, and where an object does not become one.
    """
    if _is_not_a_number(value):
        raise TypeError("booleans and masked entries are not accepted as numbers")
    try:
        return np.asarray(value)
    except Exception as error:  # an object that offers an array may raise anything
        raise TypeError("cannot be made an array") from error


def _is_not_a_number(value: Any, depth: int = 0) -> bool:
    if isinstance(value, bool | np.ma.MaskedArray) or getattr(value, "dtype", None) == np.bool_:
        return True
    if isinstance(value, np.ndarray) and value.dtype == np.object_:
        value = value.tolist()
    return isinstance(value, list | tuple) and (
        depth > MAX_DIMENSIONS or any(_is_not_a_number(item, depth + 1) for item in value)
    )


def check_kind(name: str, value: Any, kind: type, *, none: bool = False) -> None:
    """Refuse an argument of another type before anything looks into it; ``none`` allows None.

    The class says in ``obtained_by`` how to get an instance of it.

    Raises
    ------
    CapacityError
        One sentence with the name, what is wanted, what was given and how to get one.
    """
    if not isinstance(value, kind) and not (none and value is None):
        obtained_by = "give its name" if kind is str else getattr(kind, "obtained_by", "")
        advice = f"; {obtained_by}" if obtained_by else ""
        raise CapacityError(f"{name} must be a {kind.__name__}, got {type(value).__name__}{advice}")


def check_each(name: str, values: Any, kind: type) -> None:
    """Refuse anything but a list or tuple whose items are all of one type.

    Raises
    ------
    CapacityError
        As by `check_kind`.
    """
    if not isinstance(values, list | tuple):
        raise CapacityError(f"{name} must be a list or a tuple, got {type(values).__name__}")
    for value in values:
        check_kind(f"each of {name}", value, kind)


def same_shape(**numbers: Any) -> None:
    """Refuse arrays that do not broadcast together.

    Raises
    ------
    CapacityError
        One sentence with the shape of each.
    """
    shapes = [np.shape(number) for number in numbers.values()]
    if max(map(len, shapes), default=0) > MAX_DIMENSIONS:
        raise CapacityError(f"{', '.join(numbers)}: arrays of at most {MAX_DIMENSIONS} dimensions are allowed")
    try:
        points = math.prod(np.broadcast_shapes(*shapes))
    except ValueError:
        listed = ", ".join(f"{name} {np.shape(number)}" for name, number in numbers.items())
        raise CapacityError(f"these arrays do not broadcast together: {listed}") from None
    if points > MAX_POINTS:
        raise CapacityError(f"{', '.join(numbers)} broadcast to {points:,} points; at most {MAX_POINTS:,} are allowed")


def shown(value: Any) -> str:
    """A value as short text for a message."""
    try:
        if type(value).__repr__ is object.__repr__:
            return f"an object of type {type(value).__name__:.40}"
        text = repr(value) if isinstance(value, str) else str(value)
    except ValueError:  # an int too long to print, alone or inside a list
        text = "a number of thousands of digits"
    except Exception:  # an object may raise anything when it is printed
        text = f"an object of type {type(value).__name__:.40}"
    return text if len(text) <= 60 else text[:57] + "..."
