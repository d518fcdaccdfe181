"""Capacity planning for autoregressive inference, in closed form.

>>> import capacity as cap
>>> model, part = cap.load_model("llama-3.1-8b"), cap.load_hardware("nvidia-h100-sxm5-80gb")
>>> cap.size(model, part, cap.Workload(prompt_tokens=2048, output_tokens=256)).fits
True
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "Checkpoint": "capacity.specs.checkpoint",
    "Deployment": "capacity.specs.deployment",
    "HardwareSpec": "capacity.specs.hardware",
    "ModelSpec": "capacity.specs.model",
    "ServerSpec": "capacity.specs.server",
    "Workload": "capacity.specs.workload",
    "WorldModelSpec": "capacity.specs.world",
    "CapacityError": "capacity.errors",
    "DoesNotFit": "capacity.errors",
    "SpecError": "capacity.errors",
    "Estimate": "capacity.results",
    "Ledger": "capacity.results",
    "Sizing": "capacity.results",
    "load_hardware": "capacity.catalog.parts",
    "load_model": "capacity.catalog.parts",
    "load_server": "capacity.catalog.parts",
    "hardware_ids": "capacity.catalog.parts",
    "model_ids": "capacity.catalog.parts",
    "load_world_model": "capacity.catalog.worlds",
    "world_model_ids": "capacity.catalog.worlds",
    "activation_bytes": "capacity.api",
    "control": "capacity.studies.control",
    "kv_cache_bytes": "capacity.api",
    "max_batch": "capacity.api",
    "max_context": "capacity.api",
    "parameter_count": "capacity.api",
    "request_latency": "capacity.api",
    "ridge_point": "capacity.api",
    "size": "capacity.api",
    "state_bytes": "capacity.api",
    "tpot": "capacity.api",
    "ttft": "capacity.api",
    "weight_bytes": "capacity.api",
}

__all__ = [*sorted(_HOMES), "__version__"]

if TYPE_CHECKING:
    from capacity.api import (
        activation_bytes,
        kv_cache_bytes,
        max_batch,
        max_context,
        parameter_count,
        request_latency,
        ridge_point,
        size,
        state_bytes,
        tpot,
        ttft,
        weight_bytes,
    )
    from capacity.catalog.parts import hardware_ids, load_hardware, load_model, load_server, model_ids
    from capacity.catalog.worlds import load_world_model, world_model_ids
    from capacity.errors import CapacityError, DoesNotFit, SpecError
    from capacity.results import Estimate, Ledger, Sizing
    from capacity.specs.checkpoint import Checkpoint
    from capacity.specs.deployment import Deployment
    from capacity.specs.hardware import HardwareSpec
    from capacity.specs.model import ModelSpec
    from capacity.specs.server import ServerSpec
    from capacity.specs.workload import Workload
    from capacity.specs.world import WorldModelSpec
    from capacity.studies.control import control


def __getattr__(name: str) -> Any:
    """Load a public name on first use, so that importing the package costs almost nothing."""
    if name not in _HOMES:
        raise AttributeError(f"module 'capacity' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
