"""Memory, bandwidth, peak rates, links and power of one device, with the source of each figure."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any, ClassVar, Self

from pydantic import model_validator

from capacity.errors import SpecError, unknown_name
from capacity.specs.base import Evidence, FrozenMapping, Patterns, Source, Spec
from capacity.specs.hardware_checks import ALLOWANCES, contradictions
from capacity.specs.hardware_tables import (
    PATHS_BEYOND_FORMATS,
    PEAK_TABLES,
    Allowance,
    Compute,
    HostLink,
    Links,
    Measured,
    Memory,
    Power,
    Rates,
    still_measured,
)
from capacity.specs.provenance import cited, figures, matches, require_sources
from capacity.units import format_bytes, number_format


class HardwareSpec(Spec):
    """One accelerator. Rates are dense; a format without a row has no matrix path on this part.

    ``peak_flop_per_s`` counts products summed in fp32 (int32); ``peak_flop_per_s_narrow`` the faster fp16 sums of
    GeForce parts; ``vector_flop_per_s`` the path outside the matrix units. Figures named in ``unverified`` (weak
    sources) and ``assumed`` (replaced or inherited) are shown as assumed, even where ``sources`` covers them.
    """

    obtained_by: ClassVar[str] = "load it with load_hardware"

    name: str
    id: str = ""
    vendor: str = ""
    form_factor: str | None = None
    architecture: str | None = None
    compute_capability: str | None = None
    launched: str | None = None
    half_rate_fp32_accumulate: bool = False
    memory: Memory
    peak_flop_per_s: Rates = FrozenMapping()
    peak_flop_per_s_narrow: Rates = FrozenMapping()
    vector_flop_per_s: Rates = FrozenMapping()
    compute: Compute = Compute()
    links: Links | None = None
    host_link: HostLink | None = None
    power: Power = Power()
    measured: Measured = Measured()
    sources: tuple[Source, ...] = ()
    unverified: Patterns = ()
    assumed: Patterns = ()
    exceptions: FrozenMapping[str, Allowance] = FrozenMapping()
    based_on: str | None = None
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Name, memory, dense peaks and power, in three lines."""
        capacity = self.memory.capacity_bytes
        memory = "memory not given" if capacity is None else format_bytes(capacity)
        peaks = [f"{name} {rate / 1e12:,.4g} TFLOP/s" for name, rate in self.peak_flop_per_s.items()]
        power = f", {self.power.tdp_w:,.0f} W" if self.power.tdp_w else ""
        return "\n".join(
            (
                f"{self.name} ({self.id})" if self.id else self.name,
                f"  {memory} at {self.memory.bytes_per_s / 1e9:,.4g} GB/s{power}",
                f"  dense peaks: {', '.join(peaks) or 'none'}",
            )
        )

    @property
    def usable_bytes(self) -> int:
        """Memory available to programs: capacity less what the system reserves of a shared memory. [B]"""
        if self.memory.capacity_bytes is None:
            raise SpecError(
                f"{self.id or self.name}: memory.capacity_bytes is not given, since the buyer chooses what is fitted; "
                f'give it in a file of yours: based_on = "{self.id or "..."}" and memory.capacity_bytes = "512 GiB"'
            )
        return self.memory.capacity_bytes - (self.memory.reserve_bytes or 0)

    def peak(self, number_format_name: str) -> float | None:
        """Highest dense rate at which this part computes in a format, whatever the accumulator. [FLOP/s]

        The path follows the family and the arithmetic width of the format: ``fp8_block128``, ``fp8_e5m2`` and
        ``mxfp8`` use the fp8 path, ``int8_g128`` the int8 path, ``int4_g128`` the int4 path, a 16-bit value
        stored in fewer bits (``nf4``, ``q4_k``) the faster of bf16 and fp16; ``fp32`` and ``fp64`` may use the
        vector units. None when the part has no such path.
        """
        rates = [
            table[path]
            for path in _paths(number_format_name)
            for table in (self.peak_flop_per_s, self.peak_flop_per_s_narrow, self.vector_flop_per_s)
            if path in table
        ]
        return max(rates, default=None)

    def paths(self) -> tuple[str, ...]:
        """Formats with a peak rate, on matrix or vector units."""
        return tuple(dict.fromkeys((*self.peak_flop_per_s, *self.peak_flop_per_s_narrow, *self.vector_flop_per_s)))

    def figures(self) -> Iterator[str]:
        """Dotted names of every number this spec states."""
        return figures(self.model_dump(exclude={"exceptions", "sources"}, exclude_none=True))

    def evidence(self, figure: str) -> Evidence:
        """``assumed`` for a figure that is unverified, replaced or inherited, else the evidence of its sources.

        A figure is ``measured`` where all of its sources are.
        """
        if matches(figure, (*self.unverified, *self.assumed)):
            return "assumed"
        kinds = {source.evidence for source in self.sources if matches(figure, source.fields)}
        return "measured" if kinds == {"measured"} else "published"

    def measured_ceilings(self) -> tuple[str, ...]:
        """Measured rates that serve as ceilings of a bound: a faster run can beat such a bound."""
        tables = ("memory.bytes_per_s", "peak_flop_per_s.", "peak_flop_per_s_narrow.", "vector_flop_per_s.")
        return tuple(f for f in self.figures() if f.startswith(tables) and self.evidence(f) == "measured")

    def in_power_mode(self, name: str) -> Self:
        """The part in one of its named power modes; what the mode changes is assumed.

        Where no source states how the mode slows arithmetic or memory, those rates stay: a valid but loose bound.

        Raises
        ------
        SpecError
            If the part has no mode of that name.
        """
        if name not in self.power.modes:
            raise SpecError(f"{self.name}: {unknown_name('power mode', name, self.power.modes)}")
        mode = self.power.modes[name]
        changes = {"power.tdp_w": mode.power_w, "memory.bytes_per_s": mode.bytes_per_s}
        factor = mode.peak_factor
        if factor is None and mode.boost_hz and self.compute.boost_hz:
            factor = mode.boost_hz / self.compute.boost_hz
            changes["compute.boost_hz"] = mode.boost_hz
        for table in PEAK_TABLES:
            for path, rate in getattr(self, table).items():
                changes[f"{table}.{path}"] = factor and rate * factor
        return self.replace(**{field: value for field, value in changes.items() if value is not None})

    def replace(self, **changes: Any) -> Self:
        """A copy with dotted fields changed; see ``Spec.replace``.

        Figures that were measured on a replaced ceiling are left out.
        """
        part = self.model_copy(update={"measured": still_measured(self.measured, changes, self.figures())})
        return super(HardwareSpec, part).replace(**changes)

    @model_validator(mode="after")
    def figures_agree_and_have_a_source(self) -> Self:
        """No figure contradicts the rest of the part or its architecture, and each has a source."""
        unknown = [name for name in self.exceptions if not any(fnmatchcase(name, rule) for rule in ALLOWANCES)]
        if unknown:
            raise ValueError(unknown_name("exception", unknown[0], ALLOWANCES))
        require_sources(self.figures(), (*cited(self.sources), *self.unverified, *self.assumed))
        wrong = "; ".join(contradictions(self))
        if wrong:
            raise ValueError(wrong)
        return self


def _paths(name: str) -> tuple[str, ...]:
    """Matrix paths that can compute in a format, by the keys of the peak tables."""
    if name in PATHS_BEYOND_FORMATS:
        return (name,)
    stored = number_format(name)
    bits = stored.arithmetic_bits
    if stored.family == "int" and bits in (4, 8):
        return (f"int{bits}",)
    if bits == 8:
        return ("fp8_e4m3",)
    if bits == 16 and name not in ("bf16", "fp16"):
        return ("bf16", "fp16")
    return (name,)
