"""The rows of one kind of device, added up: the coefficients from which memory is evaluated and limits are solved."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from capacity.formulas.blocks import BlockRule
from capacity.specs.engine import Pool

Rows = npt.NDArray[Any]
Peak = tuple[int, int, int]
"""Bytes per token in flight, per sequence, and fixed. [B]"""


@dataclass(frozen=True)
class CacheBlocks:
    """A cache held in blocks of ``bytes``, counted by a named function and its numbers. [B]"""

    name: str
    bytes: int
    blocks: str
    rule: BlockRule

    @cached_property
    def content(self) -> CacheBlocks:
        """The tokens in the blocks, without what is left empty, spare or reserved."""
        return CacheBlocks(self.name, self.bytes // self.rule.block_tokens, self.blocks, self.rule.by_token())


@dataclass(frozen=True)
class RowTotals:
    """Rows added up; of each tuple of ``alternatives`` the largest peak counts. [B], [token]"""

    fixed_bytes: int = 0
    sequence_bytes: int = 0
    in_flight_bytes: int = 0
    caches: tuple[CacheBlocks, ...] = ()
    alternatives: tuple[tuple[Peak, ...], ...] = ()
    chunk_tokens: int = 0

    @cached_property
    def all_peaks(self) -> tuple[Peak, ...]:
        """The peaks of all alternatives."""
        return tuple(peak for peaks in self.alternatives for peak in peaks)

    @cached_property
    def content(self) -> RowTotals:
        """The same rows with the content of their caches."""
        return replace(self, caches=tuple(cache.content for cache in self.caches))

    @cached_property
    def caches_by_name(self) -> dict[str, list[CacheBlocks]]:
        """Caches of the same name together."""
        caches: dict[str, list[CacheBlocks]] = {}
        for cache in self.caches:
            caches.setdefault(cache.name, []).append(cache)
        return caches


@dataclass(frozen=True, slots=True)
class StaticRow:
    """A row that is always alive: fixed, or of each sequence; inside what the engine plans with, or not. [B]"""

    name: str
    evidence: str
    fixed_bytes: int
    sequence_bytes: int
    inside: bool = True


@dataclass(frozen=True, slots=True)
class PoolRow:
    """A row of a pool that shares it by ratio. [B]"""

    totals: RowTotals
    block_bytes: int
    ratio: int


@dataclass(frozen=True, slots=True)
class PoolTotals:
    """What a pool holds, and its share: ``parts`` of ``all_parts`` of what is left for pools. [B]

    ``unit_bytes`` is what its size is rounded to; ``by_ratio`` are its rows where they share it by ratio.
    """

    pool: Pool
    all_parts: int
    totals: RowTotals
    unit_bytes: int
    by_ratio: tuple[PoolRow, ...]


@dataclass(frozen=True)
class DeviceKind:
    """Devices of pipeline ``ranks`` that hold the same: everything, what is taken from the budget before the ``pools``
    share the rest, what lies outside the budget, and what is loaded before free memory is measured. [B]

    ``static_rows`` are the rows that are always alive, caches and what a pass takes left out.
    """

    ranks: tuple[int, ...]
    totals: RowTotals
    before_pools: RowTotals
    outside_budget: RowTotals | None
    pools: tuple[PoolTotals, ...]
    loaded_bytes: int
    static_rows: tuple[StaticRow, ...]
    peak_evidence: str

    @cached_property
    def is_linear(self) -> bool:
        """Whether `capacity.formulas.limits` solves it in closed form: one sum, whose caches are contexts or windows in
        blocks of one size, and one set of alternatives.
        """
        totals = self.totals
        if self.pools or self.outside_budget or totals.in_flight_bytes or len(totals.alternatives) > 1:
            return False
        if any(fixed for _, _, fixed in totals.all_peaks) or len({c.rule.block_tokens for c in totals.caches}) > 1:
            return False
        return all(_is_plain(cache) for cache in totals.caches)


def _is_plain(cache: CacheBlocks) -> bool:
    rule = cache.rule
    plain = {
        "all": BlockRule(rule.block_tokens),
        "windowed": BlockRule(rule.block_tokens, rule.window_tokens, rule.extra_tokens),
    }
    return rule == plain.get(cache.blocks) and cache.bytes % rule.block_tokens == 0


def device_kind(
    rows: Rows, ranks: tuple[int, ...], pools: tuple[Pool, ...], *, chunk_tokens: int, images: int
) -> DeviceKind:
    """Add up the rows of one kind of device.

    Parameters
    ----------
    rows : ndarray
        Rows of the memory table of one rank.
    ranks : tuple of int
        The pipeline ranks that hold them.
    pools : tuple of Pool
        Pools of the engine.
    chunk_tokens : int
        Most tokens of one pass. [token]
    images : int
        Images of a sequence. [image]
    """

    def added(which: Any) -> RowTotals:
        return _added(rows[which], chunk_tokens, images)

    total, pooled = added(slice(None)), rows["pool"] != ""
    unpooled = added(rows["inside"] & ~pooled)
    pools = tuple(pool for pool in pools if (rows["pool"] == pool.name).any())  # an empty one takes no share
    all_parts = sum(pool.parts for pool in pools)
    return DeviceKind(
        ranks=ranks,
        totals=total,
        before_pools=total if unpooled == total else unpooled,
        outside_budget=None if rows["inside"].all() else added(~rows["inside"]),
        pools=tuple(
            _pool_totals(pool, rows[rows["pool"] == pool.name], all_parts, chunk_tokens, images) for pool in pools
        ),
        loaded_bytes=int(rows["fixed_bytes"][rows["loaded"]].sum()),
        static_rows=tuple(_static_rows(rows, chunk_tokens, images)),
        peak_evidence=next(iter(rows["evidence"][rows["alternative"] != ""]), "computed"),
    )


def _static_rows(rows: Rows, chunk_tokens: int, images: int) -> Iterator[StaticRow]:
    for row in rows[rows["alternative"] == ""]:
        fixed = row["fixed_bytes"] + chunk_tokens * row["chunk_bytes"]
        sequence = row["sequence_bytes"] + images * row["image_bytes"]
        inside = bool(row["inside"])
        yield StaticRow(str(row["name"]), str(row["evidence"]), int(fixed), int(sequence), inside)


def _pool_totals(pool: Pool, rows: Rows, all_parts: int, chunk_tokens: int, images: int) -> PoolTotals:
    by_ratio = tuple(
        PoolRow(_added(rows[i : i + 1], chunk_tokens, images), int(rows["block_bytes"][i]), int(rows["ratio"][i]))
        for i in range(len(rows) if pool.ratios else 0)
    )
    unit = int(np.gcd.reduce(rows["block_bytes"])) if len(rows) else 0
    return PoolTotals(pool, all_parts, _added(rows, chunk_tokens, images), max(unit, 1), by_ratio)


def _added(rows: Rows, chunk_tokens: int, images: int) -> RowTotals:
    in_flight = rows["in_flight_bytes"]
    sequence = rows["sequence_bytes"] + images * rows["image_bytes"]
    fixed = rows["fixed_bytes"] + chunk_tokens * rows["chunk_bytes"]
    always = rows["alternative"] == ""
    peaks: dict[str, list[Peak]] = {}
    for i in np.flatnonzero(~always):
        peaks.setdefault(rows["alternative"][i], []).append((int(in_flight[i]), int(sequence[i]), int(fixed[i])))
    return RowTotals(
        fixed_bytes=int(fixed[always].sum()),
        sequence_bytes=int(sequence[always].sum()),
        in_flight_bytes=int(in_flight[always].sum()),
        caches=tuple(_cache(row) for row in rows[always] if row["block_bytes"]),
        alternatives=tuple(tuple(members) for members in peaks.values()),
        chunk_tokens=chunk_tokens,
    )


def _cache(row: Any) -> CacheBlocks:
    rule = BlockRule(*[int(row[name]) for name in BlockRule._fields])
    return CacheBlocks(str(row["name"]), int(row["block_bytes"]), str(row["blocks"]), rule)
