"""Memory that an engine may plan with on one device: policies of what it takes of the capacity."""

from __future__ import annotations

from collections.abc import Callable

from capacity.errors import DoesNotFit
from capacity.specs.deployment import Deployment
from capacity.specs.hardware import HardwareSpec


def fraction_of_capacity(hardware: HardwareSpec, deploy: Deployment) -> int:
    """``memory_fraction`` of what programs can have, less ``reserved_bytes``. [B]

    Raises
    ------
    DoesNotFit
        If more is reserved than there is.
    """
    share = int(hardware.usable_bytes * deploy.memory_fraction)
    if deploy.reserved_bytes > share:
        raise DoesNotFit(
            f"reserved_bytes = {deploy.reserved_bytes:,} is more than the {share:,} bytes that memory_fraction = "
            f"{deploy.memory_fraction:g} takes of {hardware.name}"
        )
    return share - deploy.reserved_bytes


BUDGETS: dict[str, Callable[[HardwareSpec, Deployment], int]] = {"fraction_of_capacity": fraction_of_capacity}
