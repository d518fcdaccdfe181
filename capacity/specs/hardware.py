"""What one device holds, moves and computes; ``sources`` says who claims so."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, model_validator

from capacity.errors import SpecError, unknown_name
from capacity.specs.base import Bytes, Count, Evidence, FrozenMapping, Positive, Source, Spec
from capacity.specs.hardware_checks import ALLOWANCES, contradictions
from capacity.specs.provenance import cited, figures, named, require_sources
from capacity.units import number_format, number_formats

_PATHS_BEYOND_FORMATS = ("int4", "fp64")  # a path can be wider than any one storage format


def _known_path(name: str) -> str:
    allowed = [*number_formats(), *_PATHS_BEYOND_FORMATS]
    if name not in allowed:
        raise ValueError(unknown_name("number format", name, allowed))
    return name


PathName = Annotated[str, AfterValidator(_known_path)]
Rates = FrozenMapping[PathName, Positive]


class Memory(Spec):
    """Main memory. ``capacity_bytes`` is what the driver reports; the datasheet's "80 GB" is only a label.

    ``reserve_bytes`` is what an operating system keeps of a memory shared with it (``unified``).
    """

    bytes_per_s: Annotated[float, Field(ge=1e6, le=1e18, strict=True)]
    capacity_bytes: Bytes | None = None
    datasheet_label: str | None = None
    kind: str | None = None
    unified: bool = False
    reserve_bytes: Bytes | None = None
    l2_bytes: Bytes | None = None
    last_level_cache_bytes: Bytes | None = None

    @property
    def cache_bytes(self) -> int:
        """The last-level cache, the L2 where there is none behind it; 0 when neither is known. [B]"""
        return self.last_level_cache_bytes or self.l2_bytes or 0


class Compute(Spec):
    """Units (SM, CU, core) and the clock that the peak rates assume."""

    units: Count | None = None
    boost_hz: Positive | None = None


class Links(Spec):
    """Link to other devices. ``bytes_per_s_per_peer`` is given where one peer gets less than the whole rate."""

    kind: str
    bytes_per_s_per_direction: Positive | None = None
    bytes_per_s_per_peer: Positive | None = None
    domain_devices: Count | None = None


class HostLink(Spec):
    """Link to the host processor."""

    kind: str
    bytes_per_s_per_direction: Positive | None = None


class PowerMode(Spec):
    """A power limit the vendor names, with what it changes; None where no source says."""

    power_w: Positive
    bytes_per_s: Positive | None = None
    peak_factor: Positive | None = None
    boost_hz: Positive | None = None


class Power(Spec):
    """Board or module power."""

    tdp_w: Positive | None = None
    modes: FrozenMapping[str, PowerMode] = FrozenMapping()


class Measured(Spec):
    """Achieved rates, for estimates that ask for them.

    Reads: the best stream, and the median of matrix-vector products over large weights. ``gemv_*``: the law
    ``gemv_fixed_s + weight_bytes / gemv_bytes_per_s``. Matrix products by format: best short burst, sustained
    search, median of common shapes. ``allreduce_bytes_per_s`` is bus bandwidth of large messages.
    """

    read_bytes_per_s: Positive | None = None
    read_bytes_per_s_typical: Positive | None = None
    copy_bytes_per_s: Positive | None = None
    gemv_fixed_s: Positive | None = None
    gemv_bytes_per_s: Positive | None = None
    gemm_flop_per_s: Rates = FrozenMapping()
    gemm_flop_per_s_sustained: Rates = FrozenMapping()
    gemm_flop_per_s_typical: Rates = FrozenMapping()
    allreduce_bytes_per_s: Positive | None = None
    host_to_device_bytes_per_s: Positive | None = None
    device_to_host_bytes_per_s: Positive | None = None


class Allowance(Spec):
    """A figure that leaves a rule of the family: the value that holds here instead, and why."""

    value: Positive
    reason: Annotated[str, Field(min_length=8)]


class HardwareSpec(Spec):
    """One accelerator. Rates are dense; a format without a row has no matrix path on this part.

    ``peak_flop_per_s`` counts products summed in fp32 (int32); ``peak_flop_per_s_narrow`` the faster fp16 sums of
    GeForce parts; ``vector_flop_per_s`` the path beside the matrix units. Figures named in ``unverified`` (weak
    sources) and ``assumed`` (replaced or inherited) are shown as assumed, whatever ``sources`` covers.
    """

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
    unverified: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    exceptions: FrozenMapping[str, Allowance] = FrozenMapping()
    based_on: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def usable_bytes(self) -> int:
        """Memory a program can have: capacity less what a shared memory keeps for the system. [B]"""
        if self.memory.capacity_bytes is None:
            raise SpecError(
                f"{self.id or self.name}: memory.capacity_bytes is not given (it depends on what is fitted); "
                'give it with replace(**{"memory.capacity_bytes": ...}) or in a file with based_on'
            )
        return self.memory.capacity_bytes - (self.memory.reserve_bytes or 0)

    def peak(self, number_format_name: str) -> float | None:
        """Highest dense rate at which this part computes in a format, whatever it sums in. [FLOP/s]

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
        """``assumed`` for a figure that is unverified, replaced or inherited, else what its sources say.

        ``measured`` is a figure that no published source vouches for.
        """
        if named(figure, (*self.unverified, *self.assumed)):
            return "assumed"
        kinds = {source.evidence for source in self.sources if named(figure, source.fields)}
        return "measured" if kinds == {"measured"} else "published"

    def measured_ceilings(self) -> tuple[str, ...]:
        """Rates that serve as ceilings of a bound though they were measured: a faster run can beat such a bound."""
        tables = ("memory.bytes_per_s", "peak_flop_per_s.", "peak_flop_per_s_narrow.", "vector_flop_per_s.")
        return tuple(f for f in self.figures() if f.startswith(tables) and self.evidence(f) == "measured")

    def in_power_mode(self, name: str) -> Self:
        """The part held to one of its named power modes; what the mode changes is assumed.

        Where no source says how the mode slows arithmetic or memory, those stay: still a bound, but a far one.

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
        for table in ("peak_flop_per_s", "peak_flop_per_s_narrow", "vector_flop_per_s"):
            for path, rate in getattr(self, table).items():
                changes[f"{table}.{path}"] = factor and rate * factor
        return self.replace(**{field: value for field, value in changes.items() if value is not None})

    def replace(self, **changes: Any) -> Self:
        """A copy with dotted fields changed; see ``Spec.replace``.

        What was measured on a ceiling that is replaced does not hold for the new one and is left out.
        """
        kept = self.model_copy(update={"measured": still_measured(self.measured, changes)})
        return super(HardwareSpec, kept).replace(**changes)

    @model_validator(mode="after")
    def figures_agree_and_have_a_source(self) -> Self:
        """No figure contradicts the rest of the part or its architecture, and each says where it comes from."""
        unknown = [name for name in self.exceptions if not any(fnmatchcase(name, rule) for rule in ALLOWANCES)]
        if unknown:
            raise ValueError(unknown_name("exception", unknown[0], ALLOWANCES))
        require_sources(self.figures(), (*cited(self.sources), *self.unverified, *self.assumed))
        wrong = "; ".join(contradictions(self))
        if wrong:
            raise ValueError(wrong)
        return self


def still_measured(measured: Measured, changes: Iterable[str]) -> Measured:
    """What stays true of the measured figures when the dotted ``changes`` replace ceilings they were measured on."""
    changed = tuple(changes)
    kept = {
        name: value
        for name, value in measured.model_dump(exclude_none=True).items()
        if not any(_overlap(change, ceiling) for change in changed for ceiling in _ceilings_of(name))
    }
    return Measured.model_validate(kept)


def _overlap(first: str, second: str) -> bool:
    """Whether one dotted name is the other, or a table that holds it."""
    return f"{first}.".startswith(f"{second}.") or f"{second}.".startswith(f"{first}.")


def _ceilings_of(measured_name: str) -> tuple[str, ...]:
    kind = measured_name.split("_")[0]
    if kind in ("host", "device"):
        return ("host_link",)
    rates = ("peak_flop_per_s", "peak_flop_per_s_narrow", "vector_flop_per_s", "compute")
    return {"gemm": rates, "allreduce": ("links",)}.get(kind, ("memory.bytes_per_s",))


def _paths(name: str) -> tuple[str, ...]:
    """Matrix paths that can compute in a format, by the keys of the peak tables."""
    if name in _PATHS_BEYOND_FORMATS:
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
