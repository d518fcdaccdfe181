"""What the links between devices of one part give, and the time of one message on them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, Literal

import numpy as np

from capacity.arrays import ArrayLike, FloatArray
from capacity.errors import CapacityError
from capacity.files import package_data
from capacity.formulas import communication
from capacity.specs.base import Evidence
from capacity.specs.hardware import HardwareSpec
from capacity.specs.server import ServerSpec
from capacity.supply.ceilings import first_measured

FACTS = "data/collectives.toml"


@dataclass(frozen=True, slots=True)
class Link:
    """A link between like devices: bus bandwidth per direction, rate to a single peer, fixed times. [B/s], [s]

    ``figures`` are the dotted names of the figures of the part that it rests on, ``evidence`` that of the fixed times.
    ``network`` joins domains of ``domain_devices`` where the devices are more than the link joins.
    """

    kind: str
    bytes_per_s: float
    peer_bytes_per_s: float
    fixed_s: float
    device_s: float
    evidence: Evidence
    figures: tuple[str, ...]
    domain_devices: int
    network: NetworkRate | None = None


@dataclass(frozen=True, slots=True)
class NetworkRate:
    """The network out of a server: one device's share of it per direction, and fixed times. [B/s], [s]"""

    server: str
    kind: str
    bytes_per_s: float
    fixed_s: float
    server_s: float


def network_of(server: ServerSpec) -> NetworkRate | None:
    """The network of a server; None where no source states its rate."""
    network = server.network
    if network is None or network.bytes_per_s_per_device is None:
        return None
    fixed = _fixed_times("network")
    return NetworkRate(server.name, network.kind, network.bytes_per_s_per_device, fixed["fixed_s"], fixed["device_s"])


@lru_cache(maxsize=256)
def link_between(hardware: HardwareSpec, devices: int, network: NetworkRate | None = None) -> Link:
    """The link that joins ``devices`` of this part, with the network between servers where it joins fewer.

    Bus bandwidth is the measured one where there is one, else the rate of the link, else that of the host link.

    Raises
    ------
    CapacityError
        If no rate is known, or the link joins fewer devices and no network is given.
    """
    links, rate = hardware.links, _bus_rate(hardware)
    domain = (links.domain_devices if links else None) or devices
    if rate is None or (devices > domain and network is None):
        reason = "no link rate is known" if rate is None else f"the link joins only {domain} devices"
        raise CapacityError(f"time on links is not modelled for {devices} x {hardware.name}: {reason}")
    kind = links.kind if links and links.bytes_per_s_per_direction else "PCIe"
    fixed = _fixed_times(kind)
    figures = [f"links.{name}" for name in ("bytes_per_s_per_peer", "domain_devices") if getattr(links, name, None)]
    return Link(
        kind=kind,
        bytes_per_s=rate[1],
        peer_bytes_per_s=(links.bytes_per_s_per_peer if links else None) or rate[1],
        fixed_s=fixed["fixed_s"],
        device_s=fixed["device_s"],
        evidence=fixed["evidence"],
        figures=(rate[0], *figures),
        domain_devices=min(domain, devices),
        network=network if devices > domain else None,
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

    Beyond the domain of the link an all-reduce sums within each server, then the share of each device between servers;
    an all-to-all uses link and network at once, and a send goes over the network.

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
    network = link.network
    if kind == "send":
        rate, fixed_s = (network.bytes_per_s, network.fixed_s) if network else (link.peer_bytes_per_s, link.fixed_s)
        return communication.send_s(message_bytes, bytes_per_s=rate, fixed_s=fixed_s)
    collective = communication.all_reduce_s if kind == "all_reduce" else communication.all_to_all_s
    within = min(devices, link.domain_devices)
    rate = min(link.bytes_per_s, link.peer_bytes_per_s) if within == 2 else link.bytes_per_s
    inside = collective(message_bytes, devices=within, bytes_per_s=rate, fixed_s=link.fixed_s, device_s=link.device_s)
    if network is None or devices <= within:
        return inside
    between = partial(
        collective,
        devices=-(-devices // within),
        bytes_per_s=network.bytes_per_s,
        fixed_s=network.fixed_s,
        device_s=network.server_s,
    )
    if kind == "all_reduce":
        return inside + between(np.divide(message_bytes, within))
    return np.maximum(inside, between(message_bytes))


def to_experts_s(
    link: Link, *, devices: int, groups: int, group_devices: int, choices: int, token_bytes: ArrayLike
) -> FloatArray:
    """Time to send tokens to their experts, or results back: one copy to each group of devices that holds some of them.

    Beyond the domain of the link one copy goes to each such server over the network and is passed on inside it.

    Parameters
    ----------
    link : Link
        What joins the devices.
    devices : int
        Devices that take part. [device]
    groups, group_devices : int
        Groups that hold the experts of a layer, and devices in each. [1], [device]
    choices : int
        Experts that a token visits. [expert]
    token_bytes : array_like
        All tokens of one device, one copy of each. [B]

    Returns
    -------
    ndarray
        In the shape of ``token_bytes``. [s]
    """
    servers = -(-devices // link.domain_devices)
    of_group = min(servers, -(-group_devices // link.domain_devices))
    copies = communication.expert_copies(groups, choices, group_devices=group_devices)
    inside = message_s(
        replace(link, network=None),
        "all_to_all",
        devices=min(devices, link.domain_devices),
        message_bytes=np.multiply(copies, token_bytes),
    )
    if link.network is None or servers == 1:
        return inside
    sent = communication.expert_copies(servers // of_group, choices, group_devices=of_group)
    between = communication.all_to_all_s(
        np.multiply(sent, token_bytes),
        devices=servers,
        bytes_per_s=link.network.bytes_per_s,
        fixed_s=link.network.fixed_s,
        device_s=link.network.server_s,
    )
    return np.maximum(inside, between)
