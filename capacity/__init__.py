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
    "Calibration": "capacity.specs.calibration",
    "Checkpoint": "capacity.specs.checkpoint",
    "Deployment": "capacity.specs.deployment",
    "Draft": "capacity.specs.deployment",
    "EngineSpec": "capacity.specs.engine",
    "HardwareSpec": "capacity.specs.hardware",
    "MeasuredRun": "capacity.specs.measured_run",
    "ModelSpec": "capacity.specs.model",
    "ServerSpec": "capacity.specs.server",
    "Workload": "capacity.specs.workload",
    "WorldModelSpec": "capacity.specs.world",
    "CapacityError": "capacity.errors",
    "DoesNotFit": "capacity.errors",
    "SpecError": "capacity.errors",
    "Unsupported": "capacity.errors",
    "Estimate": "capacity.results",
    "Ledger": "capacity.results",
    "Sizing": "capacity.results",
    "load_deployment": "capacity.catalog.cases",
    "load_workload": "capacity.catalog.cases",
    "load_hardware": "capacity.catalog.parts",
    "load_model": "capacity.catalog.models",
    "load_server": "capacity.catalog.servers",
    "hardware_ids": "capacity.catalog.parts",
    "model_ids": "capacity.catalog.models",
    "server_ids": "capacity.catalog.servers",
    "load_world_model": "capacity.catalog.worlds",
    "world_model_ids": "capacity.catalog.worlds",
    "activation_bytes": "capacity.api.memory",
    "activation_moments": "capacity.api.memory",
    "control": "capacity.studies.control",
    "frames": "capacity.studies.frames",
    "kv_cache_bytes": "capacity.api.memory",
    "max_batch": "capacity.api.limits",
    "max_context": "capacity.api.limits",
    "observe": "capacity.validation.observation",
    "parameter_count": "capacity.api.memory",
    "request_latency": "capacity.api.times",
    "ridge_point": "capacity.api.times",
    "size": "capacity.api.sizing",
    "state_bytes": "capacity.api.memory",
    "sustained": "capacity.studies.sustained",
    "tpot": "capacity.api.times",
    "ttft": "capacity.api.times",
    "what_if": "capacity.studies.size_changes",
    "weight_bytes": "capacity.api.memory",
}

__all__ = [*sorted(_HOMES), "__version__"]

if TYPE_CHECKING:
    from capacity.api.limits import max_batch, max_context
    from capacity.api.memory import (
        activation_bytes,
        activation_moments,
        kv_cache_bytes,
        parameter_count,
        state_bytes,
        weight_bytes,
    )
    from capacity.api.sizing import size
    from capacity.api.times import request_latency, ridge_point, tpot, ttft
    from capacity.catalog.cases import load_deployment, load_workload
    from capacity.catalog.models import load_model, model_ids
    from capacity.catalog.parts import hardware_ids, load_hardware
    from capacity.catalog.servers import load_server, server_ids
    from capacity.catalog.worlds import load_world_model, world_model_ids
    from capacity.errors import CapacityError, DoesNotFit, SpecError, Unsupported
    from capacity.results import Estimate, Ledger, Sizing
    from capacity.specs.calibration import Calibration
    from capacity.specs.checkpoint import Checkpoint
    from capacity.specs.deployment import Deployment, Draft
    from capacity.specs.engine import EngineSpec
    from capacity.specs.hardware import HardwareSpec
    from capacity.specs.measured_run import MeasuredRun
    from capacity.specs.model import ModelSpec
    from capacity.specs.server import ServerSpec
    from capacity.specs.workload import Workload
    from capacity.specs.world import WorldModelSpec
    from capacity.studies.control import control
    from capacity.studies.frames import frames
    from capacity.studies.size_changes import what_if
    from capacity.studies.sustained import sustained
    from capacity.validation.observation import observe


def __getattr__(name: str) -> Any:
    """Load a public name on first use, so that importing the package costs almost nothing."""
    if name not in _HOMES:
        raise AttributeError(f"module 'capacity' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
