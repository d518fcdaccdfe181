"""What the links between devices of one part give, and the time of one message on them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from capacity.arrays import ArrayLike, FloatArray
from capacity.errors import CapacityError
from capacity.files import package_data
from capacity.formulas import communication
from capacity.specs.base import Evidence
from capacity.specs.hardware import HardwareSpec
from capacity.supply.ceilings import first_measured

FACTS = "data/collectives.toml"


@dataclass(frozen=True, slots=True)
class Link:
    """A link between like devices: bus bandwidth per direction, rate to a single peer, fixed times. [B/s], [s]

    ``figures`` are the dotted names of the figures of the part that it rests on, ``evidence`` that of the fixed times.
    """

    kind: str
    bytes_per_s: float
    peer_bytes_per_s: float
    fixed_s: float
    device_s: float
    evidence: Evidence
    figures: tuple[str, ...]


@lru_cache(maxsize=256)
def link_between(hardware: HardwareSpec, devices: int) -> Link:
    """The link that joins ``devices`` of this part.

    Bus bandwidth is the measured one where there is one, else the rate of the link, else that of the host link.

    Raises
    ------
    CapacityError
        If no rate is known, or the link joins fewer devices.
    """
    links, rate = hardware.links, _bus_rate(hardware)
    domain = (links.domain_devices if links else None) or devices
    if rate is None or devices > domain:
        reason = "no link rate is known" if rate is None else f"the link joins only {domain} devices"
        raise CapacityError(f"time on links is not modelled for {devices} x {hardware.name}: {reason}")
    kind = links.kind if links and links.bytes_per_s_per_direction else "PCIe"
    fixed = _fixed_times(kind)
    stated = [f"links.{name}" for name in ("bytes_per_s_per_peer", "domain_devices") if getattr(links, name, None)]
    return Link(
        kind=kind,
        bytes_per_s=rate[1],
        peer_bytes_per_s=(links.bytes_per_s_per_peer if links else None) or rate[1],
        fixed_s=fixed["fixed_s"],
        device_s=fixed["device_s"],
        evidence=fixed["evidence"],
        figures=(rate[0], *stated),
    )


def _bus_rate(hardware: HardwareSpec) -> tuple[str, float] | None:
    """The dotted name of the figure and its value. [B/s]"""
    if measured := first_measured(hardware, "allreduce_bytes_per_s"):
        return measured
    for name in ("links", "host_link"):
        link = getattr(hardware, name)
        if link and link.bytes_per_s_per_direction:
            return f"{name}.bytes_per_s_per_direction", link.bytes_per_s_per_direction
    return None


def _fixed_times(kind: str) -> dict[str, Any]:
    """Fixed times of a kind of link: the entry with the longest key that its name starts with."""
    facts = package_data.toml(FACTS)
    matching = [key for key in facts if kind.startswith(key)]
    return dict(facts[max(matching, key=len)] if matching else facts["default"])


def message_s(
    link: Link, kind: Literal["all_reduce", "all_to_all", "send"], *, devices: int, message_bytes: ArrayLike
) -> FloatArray:
    """Time of one collective or one send; between two devices no more than the rate to a single peer is used.

    Parameters
    ----------
    link : Link
        What joins the devices.
    kind : str
        ``all_reduce``, ``all_to_all`` or ``send``.
    devices : int
        Devices that take part. [device]
    message_bytes : array_like
        Message of one device. [B]

    Returns
    -------
    ndarray
        In the shape of ``message_bytes``. [s]
    """
    if kind == "send":
        return communication.send_s(message_bytes, bytes_per_s=link.peer_bytes_per_s, fixed_s=link.fixed_s)
    collective = communication.all_reduce_s if kind == "all_reduce" else communication.all_to_all_s
    rate = min(link.bytes_per_s, link.peer_bytes_per_s) if devices == 2 else link.bytes_per_s
    return collective(message_bytes, devices=devices, bytes_per_s=rate, fixed_s=link.fixed_s, device_s=link.device_s)
