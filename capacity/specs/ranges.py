"""Figures of parts, servers and fits with the range in which each can be: far beyond anything built on both sides.

A slip of a unit falls outside, and no product or quotient of figures inside leaves a float.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from capacity.inputs import MAX_TIME_S, MIN_TIME_S
from capacity.specs.base import written_in


def _within(low: float, high: float, unit: str, *, zero: bool = False) -> AfterValidator:
    """A check that a figure lies from ``low`` to ``high``, or is 0 with ``zero``."""
    allowed = f"must be {'0 or ' if zero else ''}from {low:g} to {high:g} {unit}"

    def check(value: float) -> float:
        if low <= value <= high or (zero and value == 0):
            return value
        raise ValueError(f"{allowed}, got {value:g}")

    return AfterValidator(check)


_NUMBER = Field(allow_inf_nan=False, strict=True)

BytesPerS = Annotated[float, _NUMBER, written_in("B/s"), _within(1e6, 1e18, "B/s")]
FlopPerS = Annotated[float, _NUMBER, written_in("FLOP/s"), _within(1e6, 1e20, "FLOP/s")]
Hertz = Annotated[float, _NUMBER, written_in("Hz"), _within(1e6, 1e12, "Hz")]
Watts = Annotated[float, _NUMBER, written_in("W"), _within(0.01, 1e8, "W")]
RackUnits = Annotated[float, _NUMBER, _within(0.01, 1e4, "rack units")]
Factor = Annotated[float, _NUMBER, _within(1e-6, 1e9, "times")]
"""How many times one figure another is, or a count per clock."""

FixedSeconds = Annotated[float, _NUMBER, written_in("s"), _within(1e-12, 100, "s", zero=True)]
"""What a launch, a layer or a request costs whatever its size; 0 where nothing was fitted."""
Seconds = Annotated[float, _NUMBER, _within(MIN_TIME_S, MAX_TIME_S, "s")]
Flop = Annotated[float, _NUMBER, _within(1, 1e24, "FLOP", zero=True)]
PerSecond = Annotated[float, _NUMBER, _within(1e-9, 1e12, "per second")]
