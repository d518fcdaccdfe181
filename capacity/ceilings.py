"""What a part can do for a deployment: datasheet ceilings for a bound, measured ceilings for what is attainable."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

from capacity.errors import CapacityError
from capacity.estimators import communication, roofline
from capacity.estimators.collectives import Collective, collectives
from capacity.estimators.terms import decoder_terms
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
    """Datasheet ceilings for the formats that ``deploy`` computes in.

    Raises
    ------
    CapacityError
        If the part has no path for one of them.
    """
    peaks = {name: peak_or_refuse(hardware, deploy, name) for name in _formats(model, deploy)}
    figures = ["memory.bytes_per_s", *_peak_figures(hardware, peaks.values())]
    cache = hardware.memory.cache_bytes
    if _bytes_of_a_token(model, deploy) < cache * deploy.pipeline_parallel:
        figures.append(f"memory.{'last_level_cache' if hardware.memory.last_level_cache_bytes else 'l2'}_bytes")
    return Ceilings(hardware.memory.bytes_per_s, peaks, 0.0, cache, figures=tuple(figures))


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
    paths = ", ".join(hardware.peak_flop_per_s) or "none"
    if name == deploy.activations:
        advice = f"choose activations among: {paths}"
        if number_format(name).element_bits < 16:
            advice += "; weights stored in this format are then dequantised"
        raise CapacityError(f"{hardware.name} has no {name} path ({advice})")
    raise CapacityError(
        f"{hardware.name} has no {name} path, which weights or cache of this deployment need; it has: {paths}"
    )


@lru_cache(maxsize=256)
def attainable(model: ModelSpec, hardware: HardwareSpec, deploy: Deployment) -> Ceilings | None:
    """Measured ceilings, or None where nobody measured how fast this part reads.

    Weight streaming follows t0 + bytes / bandwidth where that law was fitted to the part; products take the
    sustained rate, else the typical one, else the best burst, else (with a note) the datasheet peak.
    """
    read = _first(hardware, "gemv_bytes_per_s", "read_bytes_per_s", "read_bytes_per_s_typical")
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
    known = ((f"measured.{name}", getattr(hardware.measured, name)) for name in names)
    return next(((figure, value) for figure, value in known if value), None)


def achieved_flop_per_s(hardware: HardwareSpec, name: str) -> float | None:
    """Measured matrix rate of a compute format: sustained, else typical, else burst; None when never measured."""
    found = _achieved(hardware, name)
    return found[1] if found else None


def _achieved(hardware: HardwareSpec, name: str) -> tuple[str, float] | None:
    """The measured matrix rate of a compute format, with its dotted name; bf16 and fp16 stand in for each other."""
    for table in ("gemm_flop_per_s_sustained", "gemm_flop_per_s_typical", "gemm_flop_per_s"):
        rates = getattr(hardware.measured, table)
        for key in (name, {"fp16": "bf16", "bf16": "fp16"}.get(name, name)):
            if key in rates:
                return f"measured.{table}.{key}", float(rates[key])
    return None


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
        paths = ", ".join(hardware.peak_flop_per_s) or "none"
        raise CapacityError(f"{hardware.name} has no {compute_format} path; it has: {paths}")
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
