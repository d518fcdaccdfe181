"""One machine or rack unit: devices, links between and out of it, host memory, wall power, space."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import ClassVar, Self

from pydantic import model_validator

from capacity.specs.base import Count, Evidence, Patterns, Source, Spec, WrittenBytes
from capacity.specs.provenance import cited, figures, matches, require_sources
from capacity.specs.ranges import BytesPerS, RackUnits, Watts


class Network(Spec):
    """The network out of the server, as one device's share of it in one direction."""

    kind: str
    bytes_per_s_per_device: BytesPerS | None = None

    @model_validator(mode="after")
    def bits_are_not_bytes(self) -> Self:
        """A port of "400 Gb/s" carries at most 50e9 bytes per second."""
        port = re.search(r"([0-9.]+) Gb/s", self.kind)
        if port and self.bytes_per_s_per_device and self.bytes_per_s_per_device > float(port[1]) * 1e9 / 8 * 1.001:
            raise ValueError(
                f"bytes_per_s_per_device is {self.bytes_per_s_per_device:g}, but {port[0]} is "
                f"{float(port[1]) * 1e9 / 8:g} bytes per second"
            )
        return self


class AllReduce(Spec):
    """Bus bandwidth of a large all-reduce among ``devices`` devices of this server."""

    devices: Count
    bytes_per_s: BytesPerS


class ServerSpec(Spec):
    """One unit that is bought: ``devices`` parts called ``device``.

    ``scale_up_devices`` share the fast link, which may span several servers (a rack) or only pairs of devices.
    ``idle_w`` and ``full_w`` are wall power of the whole unit. None means that no source is known.
    """

    obtained_by: ClassVar[str] = "load it with load_server"

    name: str
    id: str = ""
    device: str
    devices: Count
    scale_up_devices: Count | None = None
    all_reduce: tuple[AllReduce, ...] = ()
    network: Network | None = None
    host_memory_bytes: WrittenBytes | None = None
    idle_w: Watts | None = None
    full_w: Watts | None = None
    rack_units: RackUnits | None = None
    sources: tuple[Source, ...] = ()
    unverified: Patterns = ()
    assumed: Patterns = ()
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Name, devices, scale-up domain, power and space, in two lines."""
        facts = [f"{self.devices:,} x {self.device}"]
        facts += [f"scale-up domain of {self.scale_up_devices:,}"] if self.scale_up_devices else []
        facts += [f"{self.full_w:,.0f} W"] if self.full_w else []
        facts += [f"{self.rack_units:g} rack units"] if self.rack_units else []
        name = f"{self.name} ({self.id})" if self.id else self.name
        return f"{name}\n  {', '.join(facts)}"

    def figures(self) -> Iterator[str]:
        """Dotted names of every number this spec states."""
        return figures(self.model_dump(exclude={"sources"}, exclude_none=True))

    def evidence(self, figure: str) -> Evidence:
        """``assumed`` for a figure that is unverified or replaced, else ``published``."""
        return "assumed" if matches(figure, (*self.unverified, *self.assumed)) else "published"

    @model_validator(mode="after")
    def figures_have_a_source_and_agree(self) -> Self:
        """Each figure has a source; idle power is below full power; no all-reduce has more devices than there are."""
        require_sources(self.figures(), (*cited(self.sources), *self.unverified, *self.assumed))
        if self.idle_w and self.full_w and self.idle_w >= self.full_w:
            raise ValueError(f"idle_w ({self.idle_w:g}) must be below full_w ({self.full_w:g})")
        for row in self.all_reduce:
            if row.devices > max(self.devices, self.scale_up_devices or 0):
                raise ValueError(f"all_reduce among {row.devices} devices, but there are {self.devices}")
        return self
