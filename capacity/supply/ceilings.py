"""What one device gives: ceilings of a bound, measured ceilings, and the ridge point.

A bound uses the datasheet rate, or a measured rate where one exceeds it. Measured ceilings take the rate of reading
memory in one order (best stream, then matrix-vector products, then their median), and matrix rates in one order
(sustained, then typical, then best burst).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from capacity.errors import CapacityError
from capacity.formulas import roofline
from capacity.inputs import check_kind
from capacity.specs.calibration import TypicalShare
from capacity.specs.hardware import HardwareSpec
from capacity.specs.hardware_tables import PEAK_TABLES
from capacity.supply.paths import bound_paths, no_path, require_path
from capacity.units import Arithmetic, number_format

READS = ("read_bytes_per_s", "gemv_bytes_per_s", "read_bytes_per_s_typical")
MATRIX_RATES = ("gemm_flop_per_s_sustained", "gemm_flop_per_s_typical", "gemm_flop_per_s")


@dataclass(frozen=True, eq=False)
class Ceilings:
    """Rates of one device by arithmetic, the fixed time of one launch, and the cache that may hide weights.

    ``cache_bytes`` is 0 where every weight is charged; ``read_share`` is the share of the read rate that some operands
    reach, 1 for all others. ``notes`` say which figure stands in for a missing one,
    ``figures`` are the dotted names of the figures of the part that all this rests on; ``assumed`` whether a share of
    some of them stands in for what was not measured. [B/s], [FLOP/s], [s], [B]
    """

    bytes_per_s: float
    flop_per_s: dict[Arithmetic, float]
    launch_s: float
    cache_bytes: int
    notes: tuple[str, ...] = ()
    figures: tuple[str, ...] = ()
    read_share: Mapping[Arithmetic, float] = field(default_factory=dict)
    assumed: bool = False


@lru_cache(maxsize=512)
def sheet_ceilings(hardware: HardwareSpec, arithmetic: frozenset[Arithmetic]) -> Ceilings:
    """Datasheet rates of the paths that an ordinary engine takes, on which a roofline rests.

    Parameters
    ----------
    hardware : HardwareSpec
        The part.
    arithmetic : frozenset of Arithmetic
        How operators are stored and computed.

    Raises
    ------
    CapacityError
        If the part has no path for some of it.
    """
    rates, figures, notes = {}, ["memory.bytes_per_s"], list(measured_ceiling_notes(hardware))
    for item in sorted(arithmetic, key=str):
        path = require_path(hardware, item)
        rates[item] = float(hardware.peak(path) or 0.0)
        figures += _peak_figures(hardware, rates[item])
        notes += wider_note(hardware, item, path)
    return Ceilings(hardware.memory.bytes_per_s, rates, 0.0, 0, _once(notes), _once(figures))


def wider_note(hardware: HardwareSpec, arithmetic: Arithmetic, path: str) -> list[str]:
    """That a part computes in a wider format than the one wanted, where it does."""
    computed = arithmetic.computed
    return [] if path == computed else [f"{hardware.name} has no {computed} path: {computed} is computed in {path}"]


def _once(items: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(items))


@lru_cache(maxsize=512)
def bound_ceilings(hardware: HardwareSpec, arithmetic: frozenset[Arithmetic]) -> Ceilings:
    """The fastest rates that a bound must allow for: of any path that some engine takes, as the datasheet states it or
    as it was measured, whichever is higher; and the last-level cache.

    Parameters
    ----------
    hardware : HardwareSpec
        The part.
    arithmetic : frozenset of Arithmetic
        How operators are stored and computed.

    Raises
    ------
    CapacityError
        If the part has no path for some of it.
    """
    notes, figures, rates = list(measured_ceiling_notes(hardware)), ["memory.bytes_per_s"], {}
    read, reached = hardware.memory.bytes_per_s, _highest(_measured_reads(hardware))
    if reached and reached[1] > read:
        notes.append(_above(hardware, reached, read, "bandwidth"))
        figures[0], read = reached
    for item in sorted(arithmetic, key=str):
        paths = [name for name in (*bound_paths(item), require_path(hardware, item)) if hardware.peak(name)]
        candidates = [_highest_rate(hardware, name) for name in dict.fromkeys(paths)]
        rates[item], rests_on, note = max(candidates, key=lambda rate: rate[0])
        figures += rests_on
        notes += note
    cache = hardware.memory.cache_bytes
    if cache:
        figures.append(f"memory.{'last_level_cache' if hardware.memory.last_level_cache_bytes else 'l2'}_bytes")
    return Ceilings(read, rates, 0.0, cache, _once(notes), _once(figures))


def _highest_rate(hardware: HardwareSpec, path: str) -> tuple[float, tuple[str, ...], list[str]]:
    """The highest rate of a path, the figures it rests on, and a note where a measurement exceeds the sheet. [FLOP/s]

    A part that exceeds its sheet in one format runs at a higher clock than the sheet assumes, in every format.
    """
    datasheet = float(hardware.peak(path) or 0.0)
    boost = _boost(hardware)
    if boost is None:
        return datasheet, _peak_figures(hardware, datasheet), []
    figure, ratio = boost
    note = f"{figure} of {hardware.name} is {ratio:.3g} times its datasheet peak: the bound takes that ratio"
    return ratio * datasheet, (*_peak_figures(hardware, datasheet), figure), [note]


@lru_cache(maxsize=512)
def _boost(hardware: HardwareSpec) -> tuple[str, float] | None:
    """The measured matrix rate that exceeds its datasheet peak most, and by what ratio; None where none does."""
    ratios = [
        (f"measured.{table}.{name}", float(rate) / peak)
        for table in MATRIX_RATES
        for name, rate in getattr(hardware.measured, table).items()
        if (peak := hardware.peak(name))
    ]
    highest = _highest(ratios)
    return highest if highest and highest[1] > 1.0 else None


def _highest(figures: Iterable[tuple[str, float]]) -> tuple[str, float] | None:
    return max(figures, key=lambda figure: figure[1], default=None)


def _above(hardware: HardwareSpec, reached: tuple[str, float], sheet: float, what: str) -> str:
    figure, rate = reached
    return f"{figure} of {hardware.name} is {rate / sheet:.3g} times its datasheet {what}: the bound takes that rate"


@lru_cache(maxsize=256)
def measured_ceiling_notes(hardware: HardwareSpec) -> tuple[str, ...]:
    """A warning where the rates that bounds rest on were measured: what the best run reached, another may beat."""
    measured = hardware.measured_ceilings()
    if not measured:
        return ()
    return (f"{', '.join(measured)} of {hardware.name} were measured: the bound is an attainable time, not a limit",)


def _peak_figures(hardware: HardwareSpec, rate: float) -> tuple[str, ...]:
    """Entries of the peak tables that hold ``rate``."""
    return tuple(f"{t}.{path}" for t in PEAK_TABLES for path, peak in getattr(hardware, t).items() if peak == rate)


@lru_cache(maxsize=512)
def measured_ceilings(hardware: HardwareSpec, arithmetic: frozenset[Arithmetic], typical: TypicalShare) -> Ceilings:
    """Measured rates of a part.

    A share of the datasheet stands in for what was not measured: for a matrix rate the share that bf16 reaches on the
    same part, at most 1, where that was measured.

    Parameters
    ----------
    hardware : HardwareSpec
        The part.
    arithmetic : frozenset of Arithmetic
        How operators are stored and computed.
    typical : TypicalShare
        Shares of the datasheet that stand in for what was not measured. [1]

    Raises
    ------
    CapacityError
        If the part has no path for some of it.
    """
    read = next(_measured_reads(hardware), None)
    notes: list[str] = []
    if read is None:
        notes.append(f"no measured read rate of {hardware.name}: a typical share of its datasheet stands in")
        read = "memory.bytes_per_s", typical.memory * hardware.memory.bytes_per_s
    rates, figures = {}, [read[0]]
    for item in sorted(arithmetic, key=str):
        path = require_path(hardware, item)
        rates[item], rests_on, note = _matrix_rate(hardware, path, typical)
        figures.extend(rests_on)
        notes.extend((*wider_note(hardware, item, path), *note))
    fixed = first_measured(hardware, "gemv_fixed_s") if read[0] == "measured.gemv_bytes_per_s" else None
    figures += [fixed[0]] if fixed else []
    once = tuple(dict.fromkeys(notes)), tuple(figures)
    assumed = any(not figure.startswith("measured.") for figure in figures)
    return Ceilings(read[1], rates, fixed[1] if fixed else 0.0, 0, *once, assumed=assumed)


def _matrix_rate(
    hardware: HardwareSpec, name: str, typical: TypicalShare
) -> tuple[float, tuple[str, ...], tuple[str, ...]]:
    """The measured rate of a compute format or what stands in, the figures it rests on, and a note. [FLOP/s]"""
    if achieved := _achieved(hardware, name):
        return achieved[1], (achieved[0],), ()
    peak = float(hardware.peak(name) or 0.0)
    share, sixteen = typical.flop, _achieved(hardware, "bf16")
    if sixteen and "bf16" in hardware.peak_flop_per_s:
        share = min(1.0, sixteen[1] / hardware.peak_flop_per_s["bf16"])
    note = f"no measured {name} rate for {hardware.name}: a typical share of its datasheet stands in"
    matrix_peak = hardware.peak_flop_per_s.get(name, peak)
    return share * matrix_peak, _peak_figures(hardware, matrix_peak), (note,)


def first_measured(hardware: HardwareSpec, *names: str) -> tuple[str, float] | None:
    """The first of some measured figures that is known, with its dotted name."""
    return next(_known(hardware, *names), None)


def _known(hardware: HardwareSpec, *names: str) -> Iterator[tuple[str, float]]:
    figures = ((f"measured.{name}", getattr(hardware.measured, name)) for name in names)
    return ((figure, value) for figure, value in figures if value)


def _measured_reads(hardware: HardwareSpec) -> Iterator[tuple[str, float]]:
    """Measured rates of reading memory with their dotted names, the preferred one first. [B/s]"""
    return _known(hardware, *READS)


def achieved_flop_per_s(hardware: HardwareSpec, name: str) -> float | None:
    """Measured matrix rate of a compute format: sustained, else typical, else burst; None when never measured."""
    rate = _achieved(hardware, name)
    return rate[1] if rate else None


def _achieved(hardware: HardwareSpec, name: str) -> tuple[str, float] | None:
    """The measured matrix rate of a compute format, with its dotted name."""
    return next(_measured_rates(hardware, name), None)


def _measured_rates(hardware: HardwareSpec, name: str) -> Iterator[tuple[str, float]]:
    """Measured matrix rates of a compute format with their dotted names, the one that lasts longest first. [FLOP/s]

    Formats of 16 bits stand in for each other on parts that compute in both at the same rate.
    """
    peaks = hardware.peak_flop_per_s
    keys = [name, *(key for key in ("bf16", "fp16") if name in ("bf16", "fp16") and peaks.get(key) == peaks.get(name))]
    for table in MATRIX_RATES:
        rates = getattr(hardware.measured, table)
        for key in dict.fromkeys(keys):
            if key in rates:
                yield f"measured.{table}.{key}", float(rates[key])


def ridge_point(hardware: HardwareSpec, compute_format: str, *, attainable: bool = False) -> float:
    """FLOP per byte at which compute time equals memory time. [FLOP/B]

    Parameters
    ----------
    hardware : HardwareSpec
        The part.
    compute_format : str
        The format computed in.
    attainable : bool
        Whether on measured ceilings instead of the datasheet.

    Raises
    ------
    CapacityError
        If the part has no path for the format, or measured ceilings are wanted and were not measured.
    """
    check_kind("attainable", attainable, bool)
    name = number_format(compute_format).name
    flop_per_s, bytes_per_s = hardware.peak(name), hardware.memory.bytes_per_s
    if flop_per_s is None:
        raise CapacityError(no_path(hardware, compute_format, "it has:"))
    if attainable:
        read, achieved = next(_measured_reads(hardware), None), _achieved(hardware, name)
        if achieved is None or read is None:
            raise CapacityError(f"{hardware.name}: no measured {compute_format} rate and read bandwidth to divide")
        flop_per_s, bytes_per_s = achieved[1], read[1]
    return float(roofline.ridge_point(flop_per_s=flop_per_s, bytes_per_s=bytes_per_s))
