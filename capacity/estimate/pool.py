"""The cache that an engine sets apart, in its own units: bytes, blocks, tokens and requests as its log prints them."""

from __future__ import annotations

from typing import Any

from capacity.engines.kinds import DeviceKind, PoolTotals
from capacity.engines.settings import engine_of
from capacity.estimate.case import Case
from capacity.estimate.usage import total_bytes
from capacity.results import CachePool
from capacity.specs.engine import EngineSpec


def cache_pool(case: Case, *, context_tokens: int) -> CachePool | None:
    """The pool of key-value caches of the device that has the fewest blocks; None for an engine that sets none apart.

    Parameters
    ----------
    case : Case
        Model, part and deployment.
    context_tokens : int
        Longest sequence that the engine admits. [token]
    """
    engine, pools = engine_of(case.deploy), []
    for kind in case.memory.kinds:
        for pool in kind.pools:
            if pool.totals.caches:
                pools.append(pool_of_bytes(engine, pool, _pool_bytes(case, kind, pool), context_tokens=context_tokens))
    return min(pools, key=lambda pool: pool.blocks) if pools else None


def pool_of_bytes(engine: EngineSpec, pool: PoolTotals, pool_bytes: int, *, context_tokens: int) -> CachePool:
    """A pool of so many bytes.

    Parameters
    ----------
    engine : EngineSpec
        How it prints its cache as tokens.
    pool : PoolTotals
        The pool of one kind of device.
    pool_bytes : int
        What is left for it. [B]
    context_tokens : int
        Longest sequence that the engine admits. [token]
    """
    blocks = max(_blocks(pool, pool_bytes), 0)
    requests = _requests(pool, blocks, context_tokens)
    return CachePool(
        engine=engine.name,
        version=engine.version,
        pool_bytes=max(pool_bytes, 0),
        block_bytes=_block_bytes(pool),
        blocks=blocks,
        tokens=printed_tokens(engine, pool, blocks, context_tokens=context_tokens),
        context_tokens=context_tokens,
        request_bytes=request_cache_bytes(pool, context_tokens=context_tokens),
        requests=requests,
        evidence="calibrated" if engine.activation_terms else "assumed",
    )


def _blocks(pool: PoolTotals, pool_bytes: int) -> int:
    """Blocks in so many bytes; where rows share them by ratio, those of the row that has most. [block]"""
    size = _block_bytes(pool)
    if pool.by_ratio:
        largest = max(row.ratio for row in pool.by_ratio)
        pool_bytes, size = pool_bytes * largest, sum(row.ratio * row.block_bytes for row in pool.by_ratio)
    return -(-pool_bytes // size) if pool.pool.rounding == "ceil" else pool_bytes // size


def _block_bytes(pool: PoolTotals) -> int:
    if not pool.by_ratio:
        return pool.unit_bytes
    return max(pool.by_ratio, key=lambda row: row.ratio).block_bytes


def _requests(pool: PoolTotals, blocks: int, context_tokens: int) -> float:
    """Sequences that the blocks hold; where rows share them by ratio, the row that holds fewest decides. [sequence]"""
    at: dict[str, Any] = {"sequences": 1, "context_tokens": context_tokens}
    if not pool.by_ratio:
        return blocks * pool.unit_bytes / int(total_bytes(pool.totals, **at))
    largest = max(row.ratio for row in pool.by_ratio)
    return min(
        blocks * row.ratio // largest * row.block_bytes / int(total_bytes(row.totals, **at)) for row in pool.by_ratio
    )


def request_cache_bytes(pool: PoolTotals, *, context_tokens: int) -> int:
    """What one sequence takes of a pool, in whole blocks.

    Parameters
    ----------
    pool : PoolTotals
        The pool of one kind of device.
    context_tokens : int
        Tokens of the sequence. [token]

    Returns
    -------
    int
        Per device. [B]
    """
    return int(total_bytes(pool.totals, sequences=1, context_tokens=context_tokens))


def printed_tokens(engine: EngineSpec, pool: PoolTotals, blocks: int, *, context_tokens: int) -> int | None:
    """The pool as tokens, as the engine prints it; None where it prints none.

    "blocks" are shared out to the groups of layers; "concurrency" is requests of the longest context times its length;
    "tokens" is what a pool of one kind of layer holds.

    Parameters
    ----------
    engine : EngineSpec
        How it prints its cache.
    pool : PoolTotals
        The pool of one kind of device.
    blocks : int
        Blocks of the pool. [block]
    context_tokens : int
        Longest sequence that the engine admits. [token]

    Returns
    -------
    int or None
        Of the whole pool. [token]
    """
    if engine.tokens_line == "none":
        return None
    if engine.tokens_line == "concurrency":
        return int(_requests(pool, blocks, context_tokens) * context_tokens)
    shortest = min(cache.rule.block_tokens for cache in pool.totals.caches)
    groups = groups_of(engine, pool) if engine.tokens_line == "blocks" else 1
    return blocks // groups * shortest


def groups_of(engine: EngineSpec, pool: PoolTotals) -> int:
    """Groups of layers that share the blocks of a pool.

    Parameters
    ----------
    engine : EngineSpec
        Pages that a state takes.
    pool : PoolTotals
        The pool of one kind of device.

    Returns
    -------
    int
        Groups of caches and of states. [1]
    """
    state_groups = pool.totals.sequence_bytes // (engine.cache_rules.state_pages * pool.unit_bytes)
    return max(len(pool.totals.caches), 1) + state_groups


def _pool_bytes(case: Case, kind: DeviceKind, pool: PoolTotals) -> int:
    rest: Any = case.budget.planned_bytes(kind.loaded_bytes) - total_bytes(
        kind.before_pools, sequences=1, context_tokens=1
    )
    return int(rest) * pool.pool.parts // pool.all_parts
