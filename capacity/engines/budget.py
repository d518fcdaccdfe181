"""Memory that an engine may plan with on one device: policies of what it takes of the capacity."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from capacity.errors import DoesNotFit
from capacity.specs.deployment import Deployment
from capacity.specs.engine import EngineSpec
from capacity.specs.hardware import HardwareSpec

Of = Literal["total", "free before load", "free after load"]


@dataclass(frozen=True, slots=True)
class Budget:
    """A ``fraction`` of the capacity, or of what is free before or after weights are loaded.

    ``reserved_bytes`` are taken by others; they leave a fraction of the total after it, and free memory before it. [B]
    """

    capacity_bytes: int
    fraction: float = 1.0
    of: Of = "total"
    reserved_bytes: int = 0

    def planned_bytes(self, loaded_bytes: int = 0) -> int:
        """Memory for all rows inside the fraction, the loaded ones included. [B]

        Parameters
        ----------
        loaded_bytes : int
            What is loaded before the engine measures what is free. [B]
        """
        if self.of == "total":
            return int(self.capacity_bytes * self.fraction) - self.reserved_bytes
        free = self.capacity_bytes - self.reserved_bytes
        if self.of == "free before load":
            return int(free * self.fraction)
        return loaded_bytes + int((free - loaded_bytes) * self.fraction)

    def outside_bytes(self, planned_bytes: int) -> int:
        """What the plan leaves of the capacity, for rows outside the fraction. [B]

        Parameters
        ----------
        planned_bytes : int
            Memory for the rows inside. [B]
        """
        return self.capacity_bytes - self.reserved_bytes - planned_bytes

    def less(self, taken_bytes: int) -> Budget:
        """The budget where ``taken_bytes`` more are taken by others. [B]"""
        return replace(self, reserved_bytes=self.reserved_bytes + taken_bytes)


def fraction_of_capacity(engine: EngineSpec, hardware: HardwareSpec, deploy: Deployment) -> Budget:
    """``memory_fraction`` of what programs can have, less ``reserved_bytes``.

    Raises
    ------
    DoesNotFit
        If more is reserved than there is.
    """
    seen_bytes = hardware.usable_bytes - engine.driver_bytes
    share = int(seen_bytes * deploy.memory_fraction)
    if deploy.reserved_bytes > share:
        raise DoesNotFit(
            f"reserved_bytes = {deploy.reserved_bytes:,} is more than the {share:,} bytes that memory_fraction = "
            f"{deploy.memory_fraction:g} takes of {hardware.name}"
        )
    return Budget(seen_bytes, deploy.memory_fraction, "total", deploy.reserved_bytes)


def fraction_of_free_before_load(engine: EngineSpec, hardware: HardwareSpec, deploy: Deployment) -> Budget:
    """``memory_fraction`` of what is free before weights are loaded: what is reserved leaves first.

    Raises
    ------
    DoesNotFit
        If more is reserved than there is.
    """
    return _of_free(engine, hardware, deploy, "free before load")


def fraction_of_free_after_load(engine: EngineSpec, hardware: HardwareSpec, deploy: Deployment) -> Budget:
    """``memory_fraction`` of what is free once weights are loaded: what is reserved and what is loaded leave first.

    Raises
    ------
    DoesNotFit
        If more is reserved than there is.
    """
    return _of_free(engine, hardware, deploy, "free after load")


def _of_free(engine: EngineSpec, hardware: HardwareSpec, deploy: Deployment, of: Of) -> Budget:
    seen_bytes = hardware.usable_bytes - engine.driver_bytes
    if deploy.reserved_bytes > seen_bytes:
        raise DoesNotFit(
            f"reserved_bytes = {deploy.reserved_bytes:,} is more than the {seen_bytes:,} bytes of {hardware.name}"
        )
    return Budget(seen_bytes, deploy.memory_fraction, of, deploy.reserved_bytes)


BUDGETS: dict[str, Callable[[EngineSpec, HardwareSpec, Deployment], Budget]] = {
    "fraction_of_capacity": fraction_of_capacity,
    "fraction_of_free_before_load": fraction_of_free_before_load,
    "fraction_of_free_after_load": fraction_of_free_after_load,
}
