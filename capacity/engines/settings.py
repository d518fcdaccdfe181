"""What an engine does where the operator states nothing: a deployment with its settings filled in."""

from __future__ import annotations

from functools import lru_cache

from capacity.catalog.engines import load_engine
from capacity.demand.memory import keeps_latents
from capacity.specs.deployment import Deployment
from capacity.specs.engine import EngineSpec, Settings
from capacity.specs.hardware import HardwareSpec
from capacity.specs.world import Subject, network

REFERENCE = "reference"
SETTINGS = ("memory_fraction", "block_tokens", "prefill_chunk_tokens", "max_sequences")


def engine_of(deploy: Deployment) -> EngineSpec:
    """The engine of a deployment, by the rules of its version.

    Raises
    ------
    CapacityError
        If the engine or its version is unknown.
    """
    return load_engine(deploy.engine, deploy.engine_version)


def with_settings(subject: Subject, deploy: Deployment, hardware: HardwareSpec | None = None) -> Deployment:
    """The deployment with what was not stated as its engine has it, for this network and part where it depends on them.

    Raises
    ------
    CapacityError
        If the engine or its version is unknown.
    """
    if deploy.engine == REFERENCE and deploy.engine_version is None:
        return deploy
    return _with_settings(subject, deploy, frozenset(deploy.model_fields_set), hardware)


@lru_cache(maxsize=512)
def _with_settings(
    subject: Subject, deploy: Deployment, stated: frozenset[str], hardware: HardwareSpec | None
) -> Deployment:
    engine = engine_of(deploy)
    chosen: dict[str, object] = {}
    for settings in (engine.defaults, *_of_part(engine, hardware)):
        chosen |= {name: value for name in SETTINGS if (value := getattr(settings, name)) is not None}
    if engine.defaults.latent_block_tokens is not None and keeps_latents(network(subject), deploy):
        chosen["block_tokens"] = engine.defaults.latent_block_tokens
    unstated = {name: value for name, value in chosen.items() if name not in stated}
    values = {name: getattr(deploy, name) for name in Deployment.model_fields} | unstated
    return Deployment.model_construct(_fields_set=set(stated), **values)


def _of_part(engine: EngineSpec, hardware: HardwareSpec | None) -> tuple[Settings, ...]:
    capacity_bytes = hardware.memory.capacity_bytes if hardware else None
    if hardware is None or capacity_bytes is None:
        return ()
    return tuple(one for one in engine.part_defaults if one.covers(hardware.id, capacity_bytes))
