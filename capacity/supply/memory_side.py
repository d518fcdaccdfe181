"""A part whose peaks are not recorded: why its compute times are unknown, and the ceilings of its memory alone."""

from __future__ import annotations

from functools import lru_cache

from capacity.specs.hardware import HardwareSpec
from capacity.supply.ceilings import READS, Ceilings
from capacity.units import Arithmetic


@lru_cache(maxsize=512)
def without_peaks(hardware: HardwareSpec) -> str:
    """Why compute times of a part are unknown: no peak of it is recorded; empty where one is."""
    if hardware.paths():
        return ""
    return f"{hardware.name}: no peak is recorded for this part, so compute times are unknown"


@lru_cache(maxsize=512)
def memory_ceilings(hardware: HardwareSpec, arithmetic: frozenset[Arithmetic]) -> Ceilings:
    """The memory side alone: arithmetic takes no time, which only lowers a bound.

    Parameters
    ----------
    hardware : HardwareSpec
        The part.
    arithmetic : frozenset of Arithmetic
        How operators are stored and computed.
    """
    rates = {f"measured.{name}": getattr(hardware.measured, name) or 0.0 for name in READS}
    rates["memory.bytes_per_s"] = hardware.memory.bytes_per_s
    figure = max(rates, key=lambda name: rates[name])
    no_time = dict.fromkeys(arithmetic, float("inf"))
    return Ceilings(rates[figure], no_time, 0.0, hardware.memory.cache_bytes, (), (figure,))
