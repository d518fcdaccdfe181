"""The fewest devices of a part on which a case fits that does not fit as given."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from capacity.errors import CapacityError
from capacity.results import Enough
from capacity.specs.deployment import Deployment
from capacity.specs.hardware import HardwareSpec

MAX_TENSOR_PARALLEL = 64
ASSUMED_DOMAIN = 8  # where no source says how many devices a link joins


def fewest_devices(part: HardwareSpec, deploy: Deployment, fits: Callable[[Deployment], bool]) -> Enough | None:
    """The first tensor-parallel degree, doubled from the one given, on which a case fits; None where none does.

    Parameters
    ----------
    part : HardwareSpec
        Its link says how far a replica may reach.
    deploy : Deployment
        The deployment as given, which is tried first.
    fits : callable
        Whether the case fits under a deployment.

    Raises
    ------
    CapacityError
        If the deployment as given is impossible; impossible larger degrees are passed over.
    """
    degrees = _degrees(part, deploy)
    if fits(deploy):
        return Enough(deploy.devices, deploy.tensor_parallel)
    for degree in degrees[1:]:
        candidate = deploy.replace(tensor_parallel=degree)
        with suppress(CapacityError):
            if fits(candidate):
                return Enough(candidate.devices, degree, assumed_domain(part))
    return None


def _degrees(part: HardwareSpec, deploy: Deployment) -> list[int]:
    """The degree given, then its doubles as far as the link of the part reaches."""
    if part.memory.unified and part.links is None:  # a module or a desktop: nothing joins two
        return [deploy.tensor_parallel]
    others = deploy.pipeline_parallel * deploy.data_parallel
    domain = _known_domain(part) or ASSUMED_DOMAIN
    degrees, degree = [deploy.tensor_parallel], deploy.tensor_parallel * 2
    while degree <= MAX_TENSOR_PARALLEL and degree * others <= domain:
        degrees.append(degree)
        degree *= 2
    return degrees


def _known_domain(part: HardwareSpec) -> int | None:
    return part.links.domain_devices if part.links else None


def assumed_domain(part: HardwareSpec) -> tuple[str, ...]:
    """What is assumed of the link of a part that no source describes."""
    return () if _known_domain(part) else (f"{ASSUMED_DOMAIN} devices in one link domain",)
