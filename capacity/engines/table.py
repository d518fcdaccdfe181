"""The memory table: uses of the memory of one device, as rows of coefficients. Evaluated it is a ledger, solved a
limit.

A row holds ``fixed_bytes``, ``sequence_bytes`` per sequence, ``in_flight_bytes`` per token of one pass and
``cache_token_bytes`` per token held, in whole blocks and at most ``window_tokens`` (0: no window). Rows that name the
same ``alternative`` are not alive together: the largest counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from capacity.arrays import IntArray

MAX_BYTES = 2**62  # one bit below int64, for sums of two


@dataclass(frozen=True, slots=True)
class MemoryRow:
    """One use of memory on a device of pipeline ``rank``. [B]"""

    name: str
    rank: int
    evidence: str = "computed"
    alternative: str = ""
    fixed_bytes: int = 0
    sequence_bytes: int = 0
    in_flight_bytes: int = 0
    cache_token_bytes: int = 0
    window_tokens: int = 0


@dataclass(frozen=True, slots=True)
class RankMemory:
    """The rows of one pipeline rank, added up: what a limit is solved from. [B], [token]

    ``peaks`` are pairs of bytes per token in flight and per sequence, of which the largest counts.
    """

    fixed_bytes: int
    sequence_bytes: int
    cache_token_bytes: tuple[int, ...]
    window_tokens: tuple[int, ...]
    peaks: tuple[tuple[int, int], ...]


@dataclass(frozen=True, eq=False)
class MemoryTable:
    """Rows of every pipeline rank, the size of a cache block and the most tokens of one prefill pass. [token]"""

    rows: tuple[MemoryRow, ...]
    ranks: int
    block_tokens: int
    chunk_tokens: int

    def column(self, name: str) -> IntArray:
        """One coefficient of every row. [B] or [token]"""
        return np.array([getattr(row, name) for row in self.rows], dtype=np.int64)

    def of_rank(self, rank: int) -> tuple[MemoryRow, ...]:
        """The rows of one pipeline rank."""
        return tuple(row for row in self.rows if row.rank == rank)

    @cached_property
    def steepest_bytes(self) -> tuple[float, float]:
        """Upper limits of what one more token and one more sequence hold on all ranks together. [B]"""
        peaks = [peak for rank in self.by_rank for peak in rank.peaks]
        in_flight, sampled = (max(peak[i] for peak in peaks) for i in (0, 1))
        cached = sum(sum(rank.cache_token_bytes) for rank in self.by_rank)
        constant = sum(rank.sequence_bytes for rank in self.by_rank)
        return float(max(cached, in_flight, 1)), float(constant + in_flight + sampled)

    @cached_property
    def by_rank(self) -> tuple[RankMemory, ...]:
        """The rows of each pipeline rank, added up."""
        return tuple(_added(self.of_rank(rank)) for rank in range(self.ranks))


def _added(rows: Iterable[MemoryRow]) -> RankMemory:
    always = [row for row in rows if not row.alternative]
    caches = [row for row in always if row.cache_token_bytes]
    peaks = tuple((row.in_flight_bytes, row.sequence_bytes) for row in rows if row.alternative)
    return RankMemory(
        fixed_bytes=sum(row.fixed_bytes for row in always),
        sequence_bytes=sum(row.sequence_bytes for row in always),
        cache_token_bytes=tuple(row.cache_token_bytes for row in caches),
        window_tokens=tuple(row.window_tokens for row in caches),
        peaks=peaks or ((0, 0),),
    )
