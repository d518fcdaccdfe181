"""What a part can do for a deployment: datasheet ceilings for a bound, measured ceilings for what is attainable."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

from capacity.errors import CapacityError
from capacity.estimators import communication, roofline
from capacity.estimators.collectives import Collective, collectives
from capacity.estimators.terms import decoder_terms
from capacity.specs.deployment import Deployment
from capacity.specs.hardware import HardwareSpec
from capacity.specs.model import ModelSpec
from capacity.units import number_format


@dataclass(frozen=True)
class Ceilings:
    """Rates of one device by compute format, the fixed time of one launch, and the cache that may hide weights.

    ``cache_bytes`` is 0 where every weight is charged. ``notes`` say which figure stands in for a missing one.
    """

    bytes_per_s: float
    flop_per_s: dict[str, float]
    launch_s: float
    cache_bytes: int
    notes: tuple[str, ...] = ()


@lru_cache(maxsize=256)
def datasheet(model: ModelSpec, hardware: HardwareSpec, deploy: Deployment) -> Ceilings:
    """Datasheet ceilings for the formats that ``deploy`` computes in.

    Raises
    ------
    CapacityError
        If the part has no path for one of them.
    """
    peaks = {name: peak_or_refuse(hardware, deploy, name) for name in _formats(model, deploy)}
    cache = hardware.memory.last_level_cache_bytes or hardware.memory.l2_bytes
    return Ceilings(hardware.memory.bytes_per_s, peaks, 0.0, cache or 0)


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
    measured = hardware.measured
    bytes_per_s = measured.gemv_bytes_per_s or measured.read_bytes_per_s or measured.read_bytes_per_s_typical
    if bytes_per_s is None:
        return None
    rates, notes = {}, []
    for name in _formats(model, deploy):
        rate = achieved_flop_per_s(hardware, name)
        if rate is None:
            notes.append(f"no measured {name} rate for {hardware.name}: the datasheet peak stands in")
        rates[name] = rate or peak_or_refuse(hardware, deploy, name)
    return Ceilings(bytes_per_s, rates, measured.gemv_fixed_s or 0.0, 0, tuple(notes))


def achieved_flop_per_s(hardware: HardwareSpec, name: str) -> float | None:
    """Measured matrix rate of a compute format: sustained, else typical, else burst; None when never measured."""
    measured = hardware.measured
    for table in (
        measured.gemm_flop_per_s_sustained,
        measured.gemm_flop_per_s_typical,
        measured.gemm_flop_per_s,
    ):
        for key in (name, "bf16" if name == "fp16" else "fp16" if name == "bf16" else name):
            if key in table:
                return float(table[key])
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


def comm_s(model: ModelSpec, hardware: HardwareSpec, deploy: Deployment, tokens: Any) -> tuple[Any, tuple[str, ...]]:
    """Time on links of a step with ``tokens`` on each device, and notes; None where no link fact covers it. [s]"""
    found = collectives(model, deploy)
    if not found:
        return 0.0, ()
    links = hardware.links
    kind = links.kind if links and links.bytes_per_s_per_direction else "PCIe"
    rate = _link_bytes_per_s(hardware)
    domain = (links.domain_devices if links else None) or deploy.devices
    if rate is None or deploy.devices > domain:
        reason = "no link rate is known" if rate is None else f"the link joins only {domain} devices"
        return None, (f"time on links is not modelled for {deploy.devices} x {hardware.name}: {reason}",)
    fixed = _fixed_times(kind)
    peer = (links.bytes_per_s_per_peer if links else None) or rate
    total: Any = 0.0
    for item in found:
        total = total + item.count * _collective_s(item, tokens, rate, peer, fixed)
    return total, (f"links: fixed times {fixed['evidence']} ({kind})",)


def _link_bytes_per_s(hardware: HardwareSpec) -> float | None:
    """Measured bus bandwidth where there is one, else the rate of the link, else that of the host link. [B/s]"""
    if hardware.measured.allreduce_bytes_per_s:
        return hardware.measured.allreduce_bytes_per_s
    if hardware.links and hardware.links.bytes_per_s_per_direction:
        return hardware.links.bytes_per_s_per_direction
    return hardware.host_link.bytes_per_s_per_direction if hardware.host_link else None


def _collective_s(item: Collective, tokens: Any, rate: float, peer: float, fixed: dict[str, Any]) -> Any:
    message = item.token_bytes * tokens
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
