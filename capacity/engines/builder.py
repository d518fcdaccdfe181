"""The memory table of a model under a deployment, by the policies of its engine: the one place where rows are made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import TypeVar

from capacity.demand.modules import modules
from capacity.demand.placement import stored_bytes
from capacity.engines.activations import ACTIVATION_PEAKS
from capacity.engines.budget import BUDGETS, Budget
from capacity.engines.cache import CACHES
from capacity.engines.overheads import OVERHEADS
from capacity.engines.settings import engine_of
from capacity.engines.table import MAX_BYTES, MemoryRow, MemoryTable, memory_table_of
from capacity.errors import CapacityError, unknown_name
from capacity.specs.deployment import Deployment
from capacity.specs.engine import EngineSpec
from capacity.specs.hardware import HardwareSpec
from capacity.specs.model import ModelSpec
from capacity.specs.world import Resident, WorldModelSpec

T = TypeVar("T")


@lru_cache(maxsize=512)
def memory_table(subject: ModelSpec | WorldModelSpec, deploy: Deployment) -> MemoryTable:
    """The rows of one device of each kind, by the engine of a deployment whose settings are filled in.

    Raises
    ------
    CapacityError
        If the engine is unknown, the deployment is impossible for the model, or one use takes 2^62 bytes.
    """
    return table_of_engine(engine_of(deploy), subject, deploy)


def table_of_engine(engine: EngineSpec, subject: ModelSpec | WorldModelSpec, deploy: Deployment) -> MemoryTable:
    """The rows of one device of each kind, by the policies of an engine.

    Parameters
    ----------
    engine : EngineSpec
        Names of policies, and pools.
    subject : ModelSpec or WorldModelSpec
        The network.
    deploy : Deployment
        Number formats, parallelism and limits.

    Raises
    ------
    CapacityError
        If the deployment is impossible for the model, or one use takes 2^62 bytes.
    """
    model, world = (subject.model, subject) if isinstance(subject, WorldModelSpec) else (subject, None)
    rows = [*_rows(engine, model, world, deploy)]
    _refuse_overflow(subject.name, rows)
    if engine.pools or engine.outside_fraction:
        rows = [_placed(row, engine) for row in rows]
    images = world.views if world else 0
    return memory_table_of(rows, chunk_tokens=deploy.prefill_chunk_tokens, images=images, pools=engine.pools)


def cache_table_of_engine(engine: EngineSpec, model: ModelSpec, deploy: Deployment) -> MemoryTable:
    """Only the rows of what sequences keep, whatever the weights.

    Parameters
    ----------
    engine : EngineSpec
        Names of policies, and pools.
    model : ModelSpec
        The network.
    deploy : Deployment
        Cache formats and parallelism.
    """
    rows = [_placed(row, engine) for row in policy(CACHES, "cache", engine.policies.cache)(engine, model, deploy)]
    return memory_table_of(rows, chunk_tokens=deploy.prefill_chunk_tokens, pools=engine.pools)


def policy(policies: Mapping[str, T], kind: str, name: str) -> T:
    """The policy of one kind that an engine names.

    Raises
    ------
    CapacityError
        With the nearest names, if there is none of this name.
    """
    if name not in policies:
        raise CapacityError(unknown_name(f"{kind} policy", name, policies))
    return policies[name]


def _rows(
    engine: EngineSpec, model: ModelSpec, world: WorldModelSpec | None, deploy: Deployment
) -> Iterator[MemoryRow]:
    policies = engine.policies
    yield from _weights(model, world, deploy)
    if world is None:
        yield from policy(CACHES, "cache", policies.cache)(engine, model, deploy)
    elif world.core is not None:
        yield from policy(CACHES, "session_cache", policies.session_cache)(engine, model, deploy)
    yield from policy(ACTIVATION_PEAKS, "activations", policies.activations)(engine, model, world, deploy)
    for name in policies.overheads:
        yield from policy(OVERHEADS, "overhead", name)(engine, model, deploy)
    for part in _residents(world):
        yield MemoryRow(part.name, 0, loaded=True, fixed_bytes=part.held_bytes)


def _refuse_overflow(name: str, rows: list[MemoryRow]) -> None:
    """Whole numbers of 64 bits hold every coefficient, and the weights of one device together."""
    fixed: Counter[int] = Counter()
    for row in rows:
        fixed[row.rank] += row.fixed_bytes
        if max(row.sequence_bytes, row.image_bytes, row.in_flight_bytes, row.block_bytes) >= MAX_BYTES:
            raise CapacityError(f"{name}: {row.name} of one sequence or token takes more than 2^62 bytes on one device")
    if any(size >= MAX_BYTES for size in fixed.values()):
        raise CapacityError(f"{name}: the weights of one device are more than 2^62 bytes")


def _placed(row: MemoryRow, engine: EngineSpec) -> MemoryRow:
    """The row in its pool, or outside the fraction that the engine plans with."""
    for pool in engine.pools:
        if row.name in pool.rows:
            ratio = pool.ratios[pool.rows.index(row.name)] if pool.ratios else 0
            return replace(row, pool=pool.name, ratio=ratio)
    return replace(row, inside=row.inside and row.name not in engine.outside_fraction)


def _weights(model: ModelSpec, world: WorldModelSpec | None, deploy: Deployment) -> Iterator[MemoryRow]:
    for rank, sizes in enumerate(stored_bytes(model, deploy, _offloaded(model, world))):
        for part, size in sizes.items():
            yield MemoryRow(f"weights: {part}", rank, loaded=True, fixed_bytes=size)


def _offloaded(model: ModelSpec, world: WorldModelSpec | None) -> frozenset[tuple[str, str]]:
    """Stages and modules offloaded to host memory."""
    if world is None or not world.offloaded:
        return frozenset()
    pairs = ((module.stage, module.name) for module in modules(model))
    return frozenset(pair for pair in pairs if not world.on_device(*pair))


def _residents(world: WorldModelSpec | None) -> Iterator[Resident]:
    return (part for part in world.residents if not part.offloaded) if world else iter(())


def budget(hardware: HardwareSpec, deploy: Deployment) -> Budget:
    """Memory that the engine may plan with on one device.

    Raises
    ------
    DoesNotFit
        If more is reserved than there is.
    """
    engine = engine_of(deploy)
    return policy(BUDGETS, "budget", engine.policies.budget)(engine, hardware, deploy)
