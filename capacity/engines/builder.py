"""The memory table of a model under a deployment, by the policies of its engine: the one place where rows are made."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from capacity.catalog.engines import load_engine
from capacity.demand.memory import sequence_state_bytes
from capacity.demand.modules import modules
from capacity.demand.placement import stored_bytes
from capacity.engines.activations import ACTIVATION_PEAKS
from capacity.engines.budget import BUDGETS
from capacity.engines.cache import CACHES
from capacity.engines.table import MAX_BYTES, MemoryRow, MemoryTable
from capacity.errors import CapacityError
from capacity.specs.deployment import Deployment
from capacity.specs.hardware import HardwareSpec
from capacity.specs.model import ModelSpec
from capacity.specs.world import Resident, WorldModelSpec


@lru_cache(maxsize=512)
def memory_table(subject: ModelSpec | WorldModelSpec, deploy: Deployment) -> MemoryTable:
    """The rows of one device of each pipeline rank.

    Raises
    ------
    CapacityError
        If the engine is unknown, the deployment is impossible for the model, or weights exceed 2^62 bytes.
    """
    policies = load_engine(deploy.engine).policies
    world = subject if isinstance(subject, WorldModelSpec) else None
    model = subject.model if isinstance(subject, WorldModelSpec) else subject
    rows = [*_weights(model, world, deploy)]
    if world is None or world.core is not None:
        rows += CACHES[policies.cache](model, deploy)
    rows += _state(model, deploy)
    rows += ACTIVATION_PEAKS[policies.activations](model, world, deploy)
    rows += [MemoryRow(part.name, 0, fixed_bytes=part.held_bytes) for part in _residents(world)]
    block_tokens = deploy.block_tokens if world is None else 1  # a session's cache is one growing buffer
    table = MemoryTable(tuple(rows), deploy.pipeline_parallel, block_tokens, deploy.prefill_chunk_tokens)
    if any(rank.fixed_bytes >= MAX_BYTES for rank in table.by_rank):
        raise CapacityError(f"{subject.name}: the weights of one device are more than 2^62 bytes")
    return table


def _weights(model: ModelSpec, world: WorldModelSpec | None, deploy: Deployment) -> Iterator[MemoryRow]:
    offloaded = _offloaded(model, world)
    for rank in range(deploy.pipeline_parallel):
        for part, size in stored_bytes(model, deploy, rank, offloaded).items():
            yield MemoryRow(f"weights: {part}", rank, fixed_bytes=size)


def _offloaded(model: ModelSpec, world: WorldModelSpec | None) -> frozenset[tuple[str, str]]:
    """Stages and modules that lie in host memory."""
    if world is None or not world.offloaded:
        return frozenset()
    pairs = ((module.stage, module.name) for module in modules(model))
    return frozenset(pair for pair in pairs if not world.on_device(*pair))


def _state(model: ModelSpec, deploy: Deployment) -> Iterator[MemoryRow]:
    for rank in range(deploy.pipeline_parallel):
        if size := sequence_state_bytes(model, deploy, rank):
            yield MemoryRow("state", rank, sequence_bytes=size)


def _residents(world: WorldModelSpec | None) -> Iterator[Resident]:
    return (part for part in world.residents if not part.offloaded) if world else iter(())


def budget_bytes(hardware: HardwareSpec, deploy: Deployment) -> int:
    """Memory that the engine may plan with on one device. [B]

    Raises
    ------
    DoesNotFit
        If more is reserved than there is.
    """
    return BUDGETS[load_engine(deploy.engine).policies.budget](hardware, deploy)
