"""What one device gives: ceilings of a bound, measured ceilings, and the ridge point.

A bound uses the datasheet rate, or a measured rate where one exceeds it. Measured ceilings take the rate of reading
memory in one order (best stream, then matrix-vector products, then their median), and matrix rates in one order
(sustained, then typical, then best burst).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from capacity.errors import CapacityError
from capacity.formulas import roofline
from capacity.specs.calibration import TypicalShare
from capacity.specs.hardware import HardwareSpec
from capacity.units import number_format

READS = ("read_bytes_per_s", "gemv_bytes_per_s", "read_bytes_per_s_typical")
MATRIX_RATES = ("gemm_flop_per_s_sustained", "gemm_flop_per_s_typical", "gemm_flop_per_s")


@dataclass(frozen=True, eq=False)
class Ceilings:
    """Rates of one device by compute format, the fixed time of one launch, and the cache that may hide weights.

    ``cache_bytes`` is 0 where every weight is charged. ``notes`` say which figure stands in for a missing one,
    ``figures`` are the dotted names of the figures of the part that all this rests on. [B/s], [FLOP/s], [s], [B]
    """

    bytes_per_s: float
    flop_per_s: dict[str, float]
    launch_s: float
    cache_bytes: int
    notes: tuple[str, ...] = ()
    figures: tuple[str, ...] = ()


@lru_cache(maxsize=512)
def sheet_ceilings(hardware: HardwareSpec, formats: frozenset[str], activations: str) -> Ceilings:
    """Datasheet rates, on which a roofline rests.

    Parameters
    ----------
    hardware : HardwareSpec
        The part.
    formats : frozenset of str
        Compute formats in question.
    activations : str
        The compute format that was asked for, which an error names as the thing to change.

    Raises
    ------
    CapacityError
        If the part has no path for one of ``formats``.
    """
    rates = {name: require_peak(hardware, name, activations) for name in sorted(formats)}
    figures = ["memory.bytes_per_s", *[figure for rate in rates.values() for figure in _peak_figures(hardware, rate)]]
    notes = measured_ceiling_notes(hardware)
    return Ceilings(hardware.memory.bytes_per_s, rates, 0.0, 0, notes, tuple(dict.fromkeys(figures)))


@lru_cache(maxsize=512)
def bound_ceilings(hardware: HardwareSpec, formats: frozenset[str], activations: str) -> Ceilings:
    """Datasheet rates, or the measured ones that exceed them: no bound may be beaten by a rate that was measured.

    Parameters
    ----------
    hardware : HardwareSpec
        The part.
    formats : frozenset of str
        Compute formats in question.
    activations : str
        The compute format that was asked for, which an error names as the thing to change.

    Raises
    ------
    CapacityError
        If the part has no path for one of ``formats``.
    """
    sheet = sheet_ceilings(hardware, formats, activations)
    notes, rates, read = list(sheet.notes), dict(sheet.flop_per_s), sheet.bytes_per_s
    figures = list(sheet.figures)
    reached = _highest(_measured_reads(hardware))
    if reached and reached[1] > read:
        notes.append(_above(hardware, reached, read, "bandwidth"))
        figures[0], read = reached
    for name, rate in sheet.flop_per_s.items():
        reached = _highest(_measured_rates(hardware, name))
        if reached and reached[1] > rate:
            notes.append(_above(hardware, reached, rate, f"{name} peak"))
            rates[name] = reached[1]
            figures = [reached[0] if figure in _peak_figures(hardware, rate) else figure for figure in figures]
    cache = hardware.memory.cache_bytes
    figures += (
        [f"memory.{'last_level_cache' if hardware.memory.last_level_cache_bytes else 'l2'}_bytes"] if cache else []
    )
    return Ceilings(read, rates, 0.0, cache, tuple(dict.fromkeys(notes)), tuple(dict.fromkeys(figures)))


def _highest(figures: Iterable[tuple[str, float]]) -> tuple[str, float] | None:
    return max(figures, key=lambda figure: figure[1], default=None)


def _above(hardware: HardwareSpec, reached: tuple[str, float], stated: float, what: str) -> str:
    figure, rate = reached
    return f"{figure} of {hardware.name} is {rate / stated:.3g} times its datasheet {what}: the bound takes that rate"


@lru_cache(maxsize=256)
def measured_ceiling_notes(hardware: HardwareSpec) -> tuple[str, ...]:
    """A warning where the rates that bounds rest on were measured: what the best run reached, another may beat."""
    measured = hardware.measured_ceilings()
    if not measured:
        return ()
    return (f"{', '.join(measured)} of {hardware.name} were measured: the bound is an attainable time, not a limit",)


def _peak_figures(hardware: HardwareSpec, rate: float) -> tuple[str, ...]:
    """Entries of the peak tables that hold ``rate``."""
    tables = ("peak_flop_per_s", "peak_flop_per_s_narrow", "vector_flop_per_s")
    return tuple(f"{t}.{path}" for t in tables for path, known in getattr(hardware, t).items() if known == rate)


def require_peak(hardware: HardwareSpec, name: str, activations: str) -> float:
    """The highest dense rate for a compute format. [FLOP/s]

    Raises
    ------
    CapacityError
        If the part has no such path, saying which it has.
    """
    peak = hardware.peak(name)
    if peak is not None:
        return peak
    if name == activations:
        advice = _no_path(hardware, name, "choose activations among:")
        if hardware.paths() and number_format(name).element_bits < 16:
            advice += "; weights stored in this format are then dequantised"
        raise CapacityError(advice)
    raise CapacityError(_no_path(hardware, name, "weights or cache of this deployment need it; it has:"))


def _no_path(hardware: HardwareSpec, name: str, lead: str) -> str:
    """That a part cannot compute in a format, and the formats in which it can."""
    paths = hardware.paths()
    if not paths:
        return f"{hardware.name}: no peak is recorded for this part, so no time in {name} can be bounded"
    return f"{hardware.name} has no {name} path; {lead} {', '.join(paths)}"


@lru_cache(maxsize=512)
def measured_ceilings(
    hardware: HardwareSpec, formats: frozenset[str], activations: str, typical: TypicalShare | None = None
) -> Ceilings | None:
    """Measured rates of a part.

    Without ``typical``, None where no read rate was measured, and the datasheet peak (with a note) where a matrix rate
    was not. With it, a share of the datasheet stands in for both: for a matrix rate the share that bf16 reaches on the
    same part, at most 1, where that was measured.

    Parameters
    ----------
    hardware : HardwareSpec
        The part.
    formats : frozenset of str
        Compute formats in question.
    activations : str
        The compute format that was asked for.
    typical : TypicalShare or None
        Shares of the datasheet that stand in for what was not measured. [1]

    Raises
    ------
    CapacityError
        If the part has no path for one of ``formats``.
    """
    read = next(_measured_reads(hardware), None)
    notes: list[str] = []
    if read is None:
        if typical is None:
            return None
        notes.append(f"no measured read rate of {hardware.name}: a typical share of its datasheet stands in")
        read = "memory.bytes_per_s", typical.memory * hardware.memory.bytes_per_s
    rates, figures = {}, [read[0]]
    for name in sorted(formats):
        rates[name], rests_on, note = _matrix_rate(hardware, name, activations, typical)
        figures.extend(rests_on)
        notes.extend(note)
    fixed = first_measured(hardware, "gemv_fixed_s") if read[0] == "measured.gemv_bytes_per_s" else None
    figures += [fixed[0]] if fixed else []
    once = tuple(dict.fromkeys(notes)), tuple(figures)
    return Ceilings(read[1], rates, fixed[1] if fixed else 0.0, 0, *once)


def _matrix_rate(
    hardware: HardwareSpec, name: str, activations: str, typical: TypicalShare | None
) -> tuple[float, tuple[str, ...], tuple[str, ...]]:
    """The measured rate of a compute format or what stands in, the figures it rests on, and a note. [FLOP/s]"""
    if achieved := _achieved(hardware, name):
        return achieved[1], (achieved[0],), ()
    peak = require_peak(hardware, name, activations)
    if typical is None:
        note = f"no measured {name} rate for {hardware.name}: the datasheet peak stands in"
        return peak, _peak_figures(hardware, peak), (note,)
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
    found = _achieved(hardware, name)
    return found[1] if found else None


def _achieved(hardware: HardwareSpec, name: str) -> tuple[str, float] | None:
    """The measured matrix rate of a compute format, with its dotted name; bf16 and fp16 stand in for each other."""
    return next(_measured_rates(hardware, name), None)


def _measured_rates(hardware: HardwareSpec, name: str) -> Iterator[tuple[str, float]]:
    """Measured matrix rates of a compute format with their dotted names, the one that lasts longest first. [FLOP/s]"""
    for table in MATRIX_RATES:
        rates = getattr(hardware.measured, table)
        for key in dict.fromkeys((name, {"fp16": "bf16", "bf16": "fp16"}.get(name, name))):
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
    name = number_format(compute_format).name
    flop_per_s, bytes_per_s = hardware.peak(name), hardware.memory.bytes_per_s
    if flop_per_s is None:
        raise CapacityError(_no_path(hardware, compute_format, "it has:"))
    if attainable:
        read, achieved = next(_measured_reads(hardware), None), _achieved(hardware, name)
        if achieved is None or read is None:
            raise CapacityError(f"{hardware.name}: no measured {compute_format} rate and read bandwidth to divide")
        flop_per_s, bytes_per_s = achieved[1], read[1]
    return float(roofline.ridge_point(flop_per_s=flop_per_s, bytes_per_s=bytes_per_s))
