"""Memory of a process in addition to the rows of the memory table: context, libraries, and a system that shares it."""

from __future__ import annotations

from functools import lru_cache

from capacity.engines.settings import engine_of
from capacity.files import package_data
from capacity.specs.deployment import Deployment
from capacity.specs.hardware import HardwareSpec


@lru_cache(maxsize=512)
def runtime_bytes(hardware: HardwareSpec, deploy: Deployment, *, taken_bytes: int = 0) -> int:
    """Memory per device outside the memory table; 0 for an engine that counts it among its rows. [B]

    Parameters
    ----------
    hardware : HardwareSpec
        The part: of a memory that it shares, the system keeps some, unless its file or the deployment reserves it.
    deploy : Deployment
        The engine, and tensor parallelism, whose collectives take memory too.
    taken_bytes : int
        What other programs hold. [B]
    """
    if engine_of(deploy).counts_runtime:
        return 0
    table = package_data.toml("data/runtime.toml")
    process = table["process"]
    libraries = process["libraries_bytes" if deploy.tensor_parallel == 1 else "tensor_parallel_bytes"]
    return int(process["context_bytes"] + libraries) + system_bytes(hardware, deploy, taken_bytes=taken_bytes)


def system_bytes(hardware: HardwareSpec, deploy: Deployment, *, taken_bytes: int = 0) -> int:
    """What the system is expected to keep of a memory that it shares, beyond what is reserved already. [B]

    Parameters
    ----------
    hardware : HardwareSpec
        The part, whose file may reserve some.
    deploy : Deployment
        What the operator reserves.
    taken_bytes : int
        What other programs hold, the system among them. [B]
    """
    if not hardware.memory.unified or hardware.memory.reserve_bytes:
        return 0
    system = int(package_data.toml("data/runtime.toml")["shared_memory"]["system_bytes"])
    return max(0, system - deploy.reserved_bytes - taken_bytes)
