"""Memory of one device: its ledger, what is alive at each moment of a pass, and what is shared with the system."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

from capacity.results.base import Result
from capacity.results.not_modelled import OUTSIDE_MEMORY

MemoryVerdict = Literal["fits", "tight", "does not fit"]


@dataclass(frozen=True)
class MomentRow:
    """What is alive at one moment of a pass, by tensor; ``layer`` is None outside the layers. [B]"""

    DERIVED: ClassVar = ("held_bytes",)

    moment: str
    stage: str
    layer: int | None
    rank: int
    tensors: dict[str, int]

    @property
    def held_bytes(self) -> int:
        """Of all tensors. [B]"""
        return sum(self.tensors.values())


@dataclass(frozen=True, repr=False, eq=False)
class ActivationMoments(Result):
    """What is alive on one device at each moment of the widest pass, of ``tokens_in_flight`` tokens. [B], [token]"""

    DERIVED: ClassVar = ("peak_bytes",)

    model: str
    batch: int
    tokens: int
    tokens_in_flight: int
    rows: tuple[MomentRow, ...]
    assumed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    not_modelled: tuple[str, ...] = OUTSIDE_MEMORY

    @property
    def peak_bytes(self) -> int:
        """Of the moment at which most is alive. [B]"""
        return max([row.held_bytes for row in self.rows], default=0)


@dataclass(frozen=True)
class LedgerLine:
    """One use of a device's memory, ``inside`` what the engine plans with or in the rest. [B]"""

    name: str
    held_bytes: int
    evidence: str
    inside: bool = True


@dataclass(frozen=True, repr=False, eq=False)
class Ledger(Result):
    """The memory of one device of pipeline ``rank``; ``devices`` of the replica are equal. [B]

    ``total_bytes`` is the sum of the lines inside ``usable_bytes``, what the engine plans with; ``outside_bytes`` is
    what it does not plan with; ``runtime_bytes`` what a process takes that no line holds.
    """

    DERIVED: ClassVar = ("margin_bytes", "left_bytes", "tight")

    rank: int
    devices: int
    lines: tuple[LedgerLine, ...]
    total_bytes: int
    usable_bytes: int
    capacity_bytes: int
    outside_bytes: int = 0
    runtime_bytes: int = 0
    assumed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    not_modelled: tuple[str, ...] = OUTSIDE_MEMORY

    @cached_property
    def margin_bytes(self) -> int:
        """What is left of the usable memory; negative when it does not fit, there or in the rest of the device. [B]"""
        left, outside_left = self.usable_bytes - self.total_bytes, self.outside_bytes - self._held_outside_bytes
        return min(left, outside_left) if outside_left < 0 else left

    @property
    def left_bytes(self) -> int:
        """What no line takes of the device, within the plan of the engine or outside it. [B]"""
        return self.usable_bytes - self.total_bytes + self.outside_bytes - self._held_outside_bytes

    @cached_property
    def _held_outside_bytes(self) -> int:
        return sum([line.held_bytes for line in self.lines if not line.inside])

    @property
    def tight(self) -> bool:
        """Whether all lines fit, and the rest is less than the runtime needs."""
        return self.margin_bytes >= 0 and self.left_bytes < self.runtime_bytes

    def line(self, name: str) -> int:
        """Bytes of the lines called ``name``. [B]"""
        return sum(line.held_bytes for line in self.lines if line.name == name)


@dataclass(frozen=True, repr=False, eq=False)
class CachePool(Result):
    """The key-value cache that an engine sets apart on each device, in the units of its log. [B], [block], [token]

    ``requests`` of ``context_tokens`` fit it at once, each of ``request_bytes``; ``tokens`` is the figure that this
    version prints, None where it prints none.
    """

    engine: str
    version: str
    pool_bytes: int
    block_bytes: int
    blocks: int
    tokens: int | None
    context_tokens: int
    request_bytes: int
    requests: float
    evidence: str


@dataclass(frozen=True)
class SharedMemory:
    """Memory shared with the system: how much is set aside, and how much more the system is expected to keep. [B]"""

    set_aside_bytes: int
    expected_bytes: int
