"""The tables of a part: memory, compute, links, power and what was measured."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from pydantic import AfterValidator, Field

from capacity.errors import unknown_name
from capacity.specs.base import Count, FrozenMapping, Spec, WrittenBytes
from capacity.specs.ranges import BytesPerS, Factor, FixedSeconds, FlopPerS, Hertz, Watts
from capacity.units import number_formats

PEAK_TABLES = ("peak_flop_per_s", "peak_flop_per_s_narrow", "vector_flop_per_s")
PATHS_BEYOND_FORMATS = ("int4", "fp64")  # a path can be wider than any one storage format


def _known_path(name: str) -> str:
    allowed = [*number_formats(), *PATHS_BEYOND_FORMATS]
    if name not in allowed:
        raise ValueError(unknown_name("number format", name, allowed))
    return name


PathName = Annotated[str, AfterValidator(_known_path)]
Rates = FrozenMapping[PathName, FlopPerS]


class Memory(Spec):
    """Main memory. ``capacity_bytes`` is what the driver reports; the datasheet's "80 GB" is only a label.

    ``reserve_bytes`` is what the operating system reserves of a memory it shares (``unified``).
    """

    bytes_per_s: BytesPerS
    capacity_bytes: WrittenBytes | None = None
    datasheet_label: str | None = None
    kind: str | None = None
    unified: bool = False
    reserve_bytes: WrittenBytes | None = None
    l2_bytes: WrittenBytes | None = None
    last_level_cache_bytes: WrittenBytes | None = None

    @property
    def cache_bytes(self) -> int:
        """The last-level cache, the L2 where there is none behind it; 0 when neither is known. [B]"""
        return self.last_level_cache_bytes or self.l2_bytes or 0


class Compute(Spec):
    """Units (SM, CU, core) and the clock that the peak rates assume."""

    units: Count | None = None
    boost_hz: Hertz | None = None


class Links(Spec):
    """Link to other devices. ``bytes_per_s_per_peer`` is given where one peer gets less than the whole rate."""

    kind: str
    bytes_per_s_per_direction: BytesPerS | None = None
    bytes_per_s_per_peer: BytesPerS | None = None
    domain_devices: Count | None = None


class HostLink(Spec):
    """Link to the host processor."""

    kind: str
    bytes_per_s_per_direction: BytesPerS | None = None


class PowerMode(Spec):
    """A named power limit of the vendor and what it changes; None where no source states it."""

    power_w: Watts
    bytes_per_s: BytesPerS | None = None
    peak_factor: Factor | None = None
    boost_hz: Hertz | None = None


class Power(Spec):
    """Board or module power."""

    tdp_w: Watts | None = None
    modes: FrozenMapping[str, PowerMode] = FrozenMapping()


class Measured(Spec):
    """Achieved rates, for estimates that ask for them.

    Reads: the best stream, and the median of matrix-vector products over large weights. ``gemv_*``: the law
    ``gemv_fixed_s + weight_bytes / gemv_bytes_per_s``. Matrix products by format: best short burst, sustained
    search, median of common shapes. ``allreduce_bytes_per_s`` is bus bandwidth of large messages.
    """

    read_bytes_per_s: BytesPerS | None = None
    read_bytes_per_s_typical: BytesPerS | None = None
    copy_bytes_per_s: BytesPerS | None = None
    gemv_fixed_s: FixedSeconds | None = None
    gemv_bytes_per_s: BytesPerS | None = None
    gemm_flop_per_s: Rates = FrozenMapping()
    gemm_flop_per_s_sustained: Rates = FrozenMapping()
    gemm_flop_per_s_typical: Rates = FrozenMapping()
    allreduce_bytes_per_s: BytesPerS | None = None
    host_to_device_bytes_per_s: BytesPerS | None = None
    device_to_host_bytes_per_s: BytesPerS | None = None


class Allowance(Spec):
    """An exception from a rule of the family: the value that holds here instead, and why."""

    value: Factor
    reason: Annotated[str, Field(min_length=8)]


def still_measured(measured: Measured, changes: Iterable[str], figures: Iterable[str]) -> Measured:
    """Measured figures that still hold after the dotted ``changes``, which may replace the ceilings they belong to.

    A path that the ``figures`` of the part do not state is added to it and replaces nothing.
    """
    all_figures = tuple(figures)
    changed = [change for change in changes if not _adds_a_path(change, all_figures)]
    rates = {
        name: value
        for name, value in measured.model_dump(exclude_none=True).items()
        if not any(_overlap(change, ceiling) for change in changed for ceiling in _ceilings_of(name))
    }
    return Measured.model_validate(rates)


def _adds_a_path(change: str, figures: Iterable[str]) -> bool:
    """Whether a change of one path's peak is about a path that has none yet."""
    table, _, path = change.partition(".")
    return bool(path) and table in PEAK_TABLES and change not in figures


def _overlap(first: str, second: str) -> bool:
    """Whether one dotted name equals the other or contains it."""
    return f"{first}.".startswith(f"{second}.") or f"{second}.".startswith(f"{first}.")


def _ceilings_of(measured_name: str) -> tuple[str, ...]:
    kind = measured_name.split("_")[0]
    if kind in ("host", "device"):
        return ("host_link",)
    return {"gemm": (*PEAK_TABLES, "compute"), "allreduce": ("links",)}.get(kind, ("memory.bytes_per_s",))
