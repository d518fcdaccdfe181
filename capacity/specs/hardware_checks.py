"""Consistency checks between the figures of one part; the constants are data, with sources."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Protocol

from capacity.files import package_data
from capacity.specs.base import FrozenMapping
from capacity.specs.hardware_tables import Allowance, Compute, Links, Measured, Memory, Rates
from capacity.specs.provenance import matches
from capacity.units import GIB

# Names that the `exceptions` table of a part may use; the value given there replaces that of the rule.
ALLOWANCES = ("flop_per_clock_and_unit", "fp8_over_16_bit", "fp4_over_fp8", "int8_over_16_bit", "measured.*")
_WAY_OUT = "if this part truly differs, give value and reason in [exceptions]"
_RATIO_TOLERANCE = 0.04  # datasheets round; 1299/667 is the worst honest row


class Part(Protocol):
    """What the checks see of a `HardwareSpec`."""

    @property
    def memory(self) -> Memory: ...
    @property
    def compute(self) -> Compute: ...
    @property
    def links(self) -> Links | None: ...
    @property
    def measured(self) -> Measured: ...
    @property
    def peak_flop_per_s(self) -> Rates: ...
    @property
    def peak_flop_per_s_narrow(self) -> Rates: ...
    @property
    def half_rate_fp32_accumulate(self) -> bool: ...
    @property
    def architecture(self) -> str | None: ...
    @property
    def compute_capability(self) -> str | None: ...
    @property
    def exceptions(self) -> FrozenMapping[str, Allowance]: ...
    @property
    def assumed(self) -> tuple[str, ...]: ...

    def peak(self, number_format_name: str) -> float | None: ...


def contradictions(part: Part) -> Iterator[str]:
    """One sentence per figure that contradicts the others."""
    yield from _capacity_and_label(part)
    yield from _flop_per_clock(part)
    yield from _narrow_sums(part)
    yield from _ratios_of_peaks(part)
    yield from _int8_over_16_bit(part)
    yield from _links(part)
    yield from _measured_below_peak(part)


def _capacity_and_label(part: Part) -> Iterator[str]:
    memory = part.memory
    label = re.fullmatch(r"([0-9.]+) (GB|GiB)", memory.datasheet_label or "")
    if memory.datasheet_label and not label:
        yield f"memory.datasheet_label {memory.datasheet_label!r} must read like '80 GB'"
    if (memory.reserve_bytes or 0) >= (memory.capacity_bytes or 2**53):
        yield "memory.reserve_bytes must be below memory.capacity_bytes"
    # A cache as large as the memory would leave a bound without anything to read.
    for name in ("l2_bytes", "last_level_cache_bytes"):
        if (getattr(memory, name) or 0) >= (memory.capacity_bytes or 2**53):
            yield f"memory.{name} must be below memory.capacity_bytes"
    if not label or memory.capacity_bytes is None or "memory.capacity_bytes" in part.assumed:
        return
    ratio = memory.capacity_bytes / (float(label[1]) * GIB)
    if not 0.92 <= ratio <= 1.02:
        yield (f"memory.capacity_bytes is {ratio:.3f} of the label {label[0]} read as GiB; drivers report 0.92 to 1.02")


def _flop_per_clock(part: Part) -> Iterator[str]:
    path = "fp16" if "fp16" in part.peak_flop_per_s else "bf16"
    rate, units, clock = part.peak_flop_per_s.get(path), part.compute.units, part.compute.boost_hz
    expected = _expected_flop_per_clock(part)
    if not (rate and units and clock and expected) or _assumed(part, f"peak_flop_per_s.{path}"):
        return
    if _assumed(part, "compute.units") or _assumed(part, "compute.boost_hz"):
        return
    ratio = rate / (units * clock) / expected
    if not 0.85 <= ratio <= 1.10:
        guess = "a sparse or fp16-accumulate rate" if ratio > 1 else "another part's units or an export-cut part"
        yield (
            f"peak_flop_per_s.{path} is {ratio:.2f} of the {expected:,.0f} FLOP per clock and unit of this "
            f"architecture ({guess}?); {_WAY_OUT}"
        )


def _expected_flop_per_clock(part: Part) -> float | None:
    if "flop_per_clock_and_unit" in part.exceptions:
        return part.exceptions["flop_per_clock_and_unit"].value
    table = package_data.toml("data/architectures.toml")
    full = table["compute_capability"].get(part.compute_capability) or table["architecture"].get(part.architecture)
    return full / 2 if full and part.half_rate_fp32_accumulate else full


def _narrow_sums(part: Part) -> Iterator[str]:
    """Where fp32 accumulation runs at half rate, fp16 accumulation runs at full rate, which a bound needs."""
    if not part.half_rate_fp32_accumulate:
        return
    wide, narrow = part.peak_flop_per_s, part.peak_flop_per_s_narrow
    for path in ("fp16", "fp8_e4m3"):
        if path not in wide or _assumed(part, f"peak_flop_per_s.{path}"):
            continue
        if path not in narrow:
            yield f"half_rate_fp32_accumulate needs peak_flop_per_s_narrow.{path}, the rate with fp16 accumulation"
        elif not _assumed(part, f"peak_flop_per_s_narrow.{path}"):
            ratio = narrow[path] / wide[path]
            if abs(ratio / 2 - 1) > _RATIO_TOLERANCE:
                yield f"peak_flop_per_s_narrow.{path} is {ratio:.2f} times peak_flop_per_s.{path}, expected 2"


def _ratios_of_peaks(part: Part) -> Iterator[str]:
    peaks = part.peak_flop_per_s
    sixteen = "bf16" if "bf16" in peaks else "fp16"
    fp4 = "nvfp4" if "nvfp4" in peaks else "mxfp4"
    rules = [("fp8_over_16_bit", "fp8_e4m3", sixteen), ("fp4_over_fp8", fp4, "fp8_e4m3")]
    for rule, fast, slow in rules:
        if fast not in peaks or slow not in peaks:
            continue
        if _assumed(part, f"peak_flop_per_s.{fast}") or _assumed(part, f"peak_flop_per_s.{slow}"):
            continue
        expected = part.exceptions[rule].value if rule in part.exceptions else 2.0
        ratio = peaks[fast] / peaks[slow]
        if abs(ratio / expected - 1) > _RATIO_TOLERANCE:
            yield f"peak_flop_per_s.{fast} is {ratio:.2f} times {slow}, expected {expected:g}; {_WAY_OUT}"


def _int8_over_16_bit(part: Part) -> Iterator[str]:
    """At most twice the 16-bit rate, four times where fp32 accumulation runs at half rate; less is allowed."""
    peaks = part.peak_flop_per_s
    sixteen = "bf16" if "bf16" in peaks else "fp16"
    if "int8" not in peaks or sixteen not in peaks:
        return
    if _assumed(part, "peak_flop_per_s.int8") or _assumed(part, f"peak_flop_per_s.{sixteen}"):
        return
    rule = "int8_over_16_bit"
    limit = part.exceptions[rule].value if rule in part.exceptions else 4.0 if part.half_rate_fp32_accumulate else 2.0
    ratio = peaks["int8"] / peaks[sixteen]
    if ratio > limit * (1 + _RATIO_TOLERANCE):
        yield f"peak_flop_per_s.int8 is {ratio:.2f} times {sixteen}, more than {limit:g} (a sparse rate?); {_WAY_OUT}"


def _links(part: Part) -> Iterator[str]:
    links = part.links
    rate = links.bytes_per_s_per_direction if links else None
    if links is None or rate is None or _assumed(part, "links.bytes_per_s_per_direction"):
        return
    allowed = package_data.toml("data/links.toml").get(links.kind, {}).get("bytes_per_s_per_direction")
    if allowed and rate not in allowed:
        rates = " or ".join(f"{value:g}" for value in allowed)
        yield f"links.bytes_per_s_per_direction is {rate:g}; {links.kind} has {rates} in one direction"
    peer, devices = links.bytes_per_s_per_peer, links.domain_devices
    if peer and devices and not 0.99 < peer * (devices - 1) / rate < 1.01:
        yield f"links: {devices - 1} peers at {peer:g} B/s are not {rate:g} B/s per direction"


def _measured_below_peak(part: Part) -> Iterator[str]:
    for name, value, ceiling in _measured_and_ceiling(part):
        allowed = part.exceptions[name].value if name in part.exceptions else 1.0
        if ceiling and value > ceiling * allowed:
            more = f", allowed here {allowed:g} times" if allowed != 1 else ""
            yield f"{name} is {value / ceiling:.3f} times the peak it should stay below{more}; {_WAY_OUT}"


def _measured_and_ceiling(part: Part) -> Iterator[tuple[str, float, float | None]]:
    measured = part.measured
    for name in ("read_bytes_per_s", "read_bytes_per_s_typical", "copy_bytes_per_s", "gemv_bytes_per_s"):
        value = getattr(measured, name)
        if value:
            yield f"measured.{name}", value, part.memory.bytes_per_s
    for name in ("gemm_flop_per_s", "gemm_flop_per_s_sustained", "gemm_flop_per_s_typical"):
        for path, value in getattr(measured, name).items():
            yield f"measured.{name}.{path}", value, part.peak(path)
    if measured.allreduce_bytes_per_s and part.links:
        yield (
            "measured.allreduce_bytes_per_s",
            measured.allreduce_bytes_per_s,
            part.links.bytes_per_s_per_direction,
        )


def _assumed(part: Part, figure: str) -> bool:
    """A what-if figure may break the rules of its family; it is shown as assumed."""
    return matches(figure, part.assumed)
