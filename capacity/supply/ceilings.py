"""What a part can do for a deployment: for a bound its datasheet or, where higher, what somebody reached; measured
ceilings for what is attainable."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

from capacity.demand.collectives import Collective, collectives
from capacity.demand.operators import decoder_terms
from capacity.errors import CapacityError
from capacity.formulas import communication, roofline
from capacity.specs.base import Evidence
from capacity.specs.deployment import Deployment
from capacity.specs.hardware import HardwareSpec
from capacity.specs.model import ModelSpec
from capacity.units import number_format


@dataclass(frozen=True)
class Ceilings:
    """Rates of one device by compute format, the fixed time of one launch, and the cache that may hide weights.

    ``cache_bytes`` is 0 where every weight is charged. ``notes`` say which figure stands in for a missing one,
    ``figures`` are the dotted names of the figures of the part that all this rests on.
    """

    bytes_per_s: float
    flop_per_s: dict[str, float]
    launch_s: float
    cache_bytes: int
    notes: tuple[str, ...] = ()
    figures: tuple[str, ...] = ()


@lru_cache(maxsize=256)
def datasheet(model: ModelSpec, hardware: HardwareSpec, deploy: Deployment) -> Ceilings:
    """Ceilings of a bound for the formats that ``deploy`` computes in.

    Raises
    ------
    CapacityError
        If the part has no path for one of them.
    """
    found = bound_ceilings(hardware, deploy, _formats(model, deploy))
    if _bytes_of_a_token(model, deploy) >= found.cache_bytes * deploy.pipeline_parallel:
        return found
    cache = f"memory.{'last_level_cache' if hardware.memory.last_level_cache_bytes else 'l2'}_bytes"
    return dataclasses.replace(found, figures=(*found.figures, cache))


def bound_ceilings(hardware: HardwareSpec, deploy: Deployment, formats: Iterable[str]) -> Ceilings:
    """Datasheet rates, or the measured ones that stand above them: no engine beats a rate that somebody reached.

    Raises
    ------
    CapacityError
        If the part has no path for one of ``formats``.
    """
    notes, figures, rates = list(measured_ceiling_notes(hardware)), [], {}
    read, reached = hardware.memory.bytes_per_s, _highest(_measured_reads(hardware))
    figures.append("memory.bytes_per_s")
    if reached and reached[1] > read:
        notes.append(_above(hardware, reached, read, "bandwidth"))
        figures[0], read = reached
    for name in sorted(formats):
        rates[name], reached = peak_or_refuse(hardware, deploy, name), _highest(_measured_rates(hardware, name))
        if reached and reached[1] > rates[name]:
            notes.append(_above(hardware, reached, rates[name], f"{name} peak"))
            rates[name] = reached[1]
            figures.append(reached[0])
        else:
            figures.extend(_peak_figures(hardware, [rates[name]]))
    once = tuple(dict.fromkeys(notes)), tuple(dict.fromkeys(figures))
    return Ceilings(read, rates, 0.0, hardware.memory.cache_bytes, *once)


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


def _bytes_of_a_token(model: ModelSpec, deploy: Deployment) -> float:
    """Weights that a decode step of one sequence reads. [B]"""
    terms = decoder_terms(model, deploy)
    return sum(t.weight_bytes + (t.expert_bytes * t.experts_used / t.experts if t.experts else 0) for t in terms)


def _peak_figures(hardware: HardwareSpec, rates: Iterable[float]) -> tuple[str, ...]:
    """Rows of the peak tables that hold one of ``rates``."""
    found, tables = set(rates), ("peak_flop_per_s", "peak_flop_per_s_narrow", "vector_flop_per_s")
    return tuple(f"{t}.{path}" for t in tables for path, rate in getattr(hardware, t).items() if rate in found)


def _formats(model: ModelSpec, deploy: Deployment) -> set[str]:
    return {term.compute_format for term in decoder_terms(model, deploy)}


def peak_or_refuse(hardware: HardwareSpec, deploy: Deployment, name: str) -> float:
    """The highest dense rate for a compute format, or an error that says which paths there are. [FLOP/s]"""
    peak = hardware.peak(name)
    if peak is not None:
        return peak
    if name == deploy.activations:
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


@lru_cache(maxsize=256)
def attainable(model: ModelSpec, hardware: HardwareSpec, deploy: Deployment) -> Ceilings | None:
    """Measured ceilings, or None where nobody measured how fast this part reads.

    Weight streaming follows t0 + bytes / bandwidth where that law was fitted to the part; products take the
    sustained rate, else the typical one, else the best burst, else (with a note) the datasheet peak.
    """
    read = next(_measured_reads(hardware), None)
    if read is None:
        return None
    rates, notes, figures = {}, [], [read[0]]
    for name in _formats(model, deploy):
        achieved = _achieved(hardware, name)
        if achieved is None:
            notes.append(f"no measured {name} rate for {hardware.name}: the datasheet peak stands in")
            rates[name] = peak_or_refuse(hardware, deploy, name)
            figures.extend(_peak_figures(hardware, [rates[name]]))
        else:
            figures.append(achieved[0])
            rates[name] = achieved[1]
    launch = _first(hardware, "gemv_fixed_s")
    figures += [launch[0]] if launch else []
    return Ceilings(read[1], rates, launch[1] if launch else 0.0, 0, tuple(notes), tuple(figures))


def _first(hardware: HardwareSpec, *names: str) -> tuple[str, float] | None:
    """The first of some measured figures that is known, with its dotted name."""
    return next(_known(hardware, *names), None)


def _known(hardware: HardwareSpec, *names: str) -> Iterator[tuple[str, float]]:
    figures = ((f"measured.{name}", getattr(hardware.measured, name)) for name in names)
    return ((figure, value) for figure, value in figures if value)


def _measured_reads(hardware: HardwareSpec) -> Iterator[tuple[str, float]]:
    """Measured rates of reading memory with their dotted names. [B/s]"""
    return _known(hardware, "gemv_bytes_per_s", "read_bytes_per_s", "read_bytes_per_s_typical")


def achieved_flop_per_s(hardware: HardwareSpec, name: str) -> float | None:
    """Measured matrix rate of a compute format: sustained, else typical, else burst; None when never measured."""
    found = _achieved(hardware, name)
    return found[1] if found else None


def _achieved(hardware: HardwareSpec, name: str) -> tuple[str, float] | None:
    """The measured matrix rate of a compute format, with its dotted name; bf16 and fp16 stand in for each other."""
    return next(_measured_rates(hardware, name), None)


def _measured_rates(hardware: HardwareSpec, name: str) -> Iterator[tuple[str, float]]:
    """Measured matrix rates of a compute format with their dotted names, the one that lasts longest first. [FLOP/s]"""
    for table in ("gemm_flop_per_s_sustained", "gemm_flop_per_s_typical", "gemm_flop_per_s"):
        rates = getattr(hardware.measured, table)
        for key in dict.fromkeys((name, {"fp16": "bf16", "bf16": "fp16"}.get(name, name))):
            if key in rates:
                yield f"measured.{table}.{key}", float(rates[key])


def ridge_point(hardware: HardwareSpec, compute_format: str, *, attainable: bool = False) -> float:
    """FLOP per byte at which compute time equals memory time. [FLOP/B]

    Raises
    ------
    CapacityError
        If the part has no path for the format, or measured ceilings are wanted and nobody measured them.
    """
    name = number_format(compute_format).name
    flop_per_s, bytes_per_s = hardware.peak(name), hardware.memory.bytes_per_s
    if flop_per_s is None:
        raise CapacityError(_no_path(hardware, compute_format, "it has:"))
    if attainable:
        read = hardware.measured.read_bytes_per_s or hardware.measured.gemv_bytes_per_s
        flop_per_s = achieved_flop_per_s(hardware, name)
        if flop_per_s is None or read is None:
            raise CapacityError(f"{hardware.name}: no measured {compute_format} rate and read bandwidth to divide")
        bytes_per_s = read
    return float(roofline.ridge_point(flop_per_s=flop_per_s, bytes_per_s=bytes_per_s))


@cache
def _collective_facts() -> dict[str, dict[str, Any]]:
    text = files("capacity").joinpath("data/collectives.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def _fixed_times(kind: str) -> dict[str, Any]:
    facts = _collective_facts()
    matching = [key for key in facts if kind.startswith(key)]
    return facts[max(matching, key=len)] if matching else facts["default"]


def comm_s(
    model: ModelSpec, hardware: HardwareSpec, deploy: Deployment, *, tokens: Any, sequences: Any
) -> tuple[Any, tuple[str, ...]]:
    """Time on links of a pass with ``tokens`` of ``sequences`` on each device, and notes; None where no link fact
    covers it. [s]"""
    found = collectives(model, deploy)
    if not found:
        return 0.0, ()
    links, rate = hardware.links, _link_rate(hardware)
    domain = (links.domain_devices if links else None) or deploy.devices
    if rate is None or deploy.devices > domain:
        reason = "no link rate is known" if rate is None else f"the link joins only {domain} devices"
        return None, (f"time on links is not modelled for {deploy.devices} x {hardware.name}: {reason}",)
    kind, bytes_per_s = _link_kind(hardware), rate[1]
    fixed = _fixed_times(kind)
    peer = (links.bytes_per_s_per_peer if links else None) or bytes_per_s
    total: Any = 0.0
    for item in found:
        message = item.token_bytes * (sequences if item.last_token_only else tokens)
        total = total + item.count * _collective_s(item, message, bytes_per_s, peer, fixed)
    return total, (f"links: fixed times {fixed['evidence']} ({kind})",)


def links_rest_on(hardware: HardwareSpec) -> tuple[tuple[str, ...], Evidence]:
    """The figures of the part that the time on links rests on, and the evidence of its fixed times."""
    rate = _link_rate(hardware)
    stated = [
        f"links.{name}" for name in ("bytes_per_s_per_peer", "domain_devices") if getattr(hardware.links, name, None)
    ]
    return (*([rate[0]] if rate else []), *stated), _fixed_times(_link_kind(hardware))["evidence"]


def _link_kind(hardware: HardwareSpec) -> str:
    links = hardware.links
    return links.kind if links and links.bytes_per_s_per_direction else "PCIe"


def _link_rate(hardware: HardwareSpec) -> tuple[str, float] | None:
    """Measured bus bandwidth where there is one, else the rate of the link, else that of the host link, with the
    dotted name of the figure. [B/s]"""
    if measured := _first(hardware, "allreduce_bytes_per_s"):
        return measured
    for name in ("links", "host_link"):
        link = getattr(hardware, name)
        if link and link.bytes_per_s_per_direction:
            return f"{name}.bytes_per_s_per_direction", link.bytes_per_s_per_direction
    return None


def _collective_s(item: Collective, message: Any, rate: float, peer: float, fixed: dict[str, Any]) -> Any:
    if item.kind == "send":
        return communication.send_s(message, bytes_per_s=peer, fixed_s=fixed["fixed_s"])
    collective = communication.all_reduce_s if item.kind == "all_reduce" else communication.all_to_all_s
    between_two = peer if item.devices == 2 else rate
    return collective(
        message,
        devices=item.devices,
        bytes_per_s=min(rate, between_two),
        fixed_s=fixed["fixed_s"],
        device_s=fixed["device_s"],
    )
