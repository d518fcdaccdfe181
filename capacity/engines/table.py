"""The memory table: uses of the memory of each kind of device, as numpy columns of coefficients. Evaluated it is a
ledger, solved a limit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import cached_property
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from capacity.engines.kinds import DeviceKind, device_kind
from capacity.specs.engine import Pool

MAX_BYTES = 2**62  # one bit below int64, for sums of two


@dataclass(frozen=True, slots=True)
class MemoryRow:
    """One use of memory on a device of pipeline ``rank``. [B], and [token] where the name says so

    It takes ``fixed_bytes``; ``sequence_bytes`` of each sequence and ``image_bytes`` of each of its images;
    ``in_flight_bytes`` of each token of one pass, max(min(n t, chunk), n), or ``chunk_bytes`` of each token of the
    largest pass; and ``block_bytes`` of each block that ``blocks`` (a name of `capacity.formulas.blocks`) counts by the
    numbers that follow it. Rows that name the same ``alternative`` are not alive together: the largest counts. A row
    that is not ``inside`` the fraction of the memory that the engine plans with lies in the remainder; what is
    ``loaded`` is there before an engine measures what is free. Of a ``pool`` whose rows have a ``ratio`` a sequence
    takes the largest of their needs divided by their ratios.
    """

    name: str
    rank: int
    evidence: str = "computed"
    alternative: str = ""
    inside: bool = True
    loaded: bool = False
    pool: str = ""
    ratio: int = 0
    fixed_bytes: int = 0
    sequence_bytes: int = 0
    image_bytes: int = 0
    in_flight_bytes: int = 0
    chunk_bytes: int = 0
    blocks: str = ""
    block_bytes: int = 0
    block_tokens: int = 1
    window_tokens: int = 0
    extra_tokens: int = 0
    spare_blocks: int = 0
    slots: int = 0
    slot_tokens: int = 0
    shared_tokens: int = 0

    def __post_init__(self) -> None:
        """Refuse what the sums would drop."""
        if self.alternative and self.block_bytes:
            raise ValueError(f"{self.name}: the blocks of a cache are no alternative of a pass")


_COLUMNS = [field.name for field in fields(MemoryRow)]
_WITHOUT_RANK = attrgetter(*[name for name in _COLUMNS if name != "rank"])
_AS_ROW = attrgetter(*_COLUMNS)
_TYPES: dict[Any, Any] = {"str": np.object_, "int": np.int64, "bool": np.bool_}
ROW = np.dtype([(field.name, _TYPES[field.type]) for field in fields(MemoryRow)])


@dataclass(frozen=True, eq=False)
class MemoryTable:
    """Rows of each kind of device, the equal ranks of a group under its first; the maximum tokens per pass, the images
    per sequence, and the pools of the engine. [token], [image]
    """

    rows: npt.NDArray[Any]
    rank_groups: tuple[tuple[int, ...], ...]
    chunk_tokens: int
    images: int = 0
    pools: tuple[Pool, ...] = ()

    @cached_property
    def kinds(self) -> tuple[DeviceKind, ...]:
        """The rows of each kind of device, added up."""
        return tuple(
            device_kind(self.of_rank(ranks[0]), ranks, self.pools, chunk_tokens=self.chunk_tokens, images=self.images)
            for ranks in self.rank_groups
        )

    def kind_of(self, rank: int) -> DeviceKind:
        """The kind of device of one pipeline rank."""
        return next(kind for kind in self.kinds if rank in kind.ranks)

    def of_rank(self, rank: int) -> npt.NDArray[Any]:
        """The rows of one pipeline rank, as they stand under the first rank of its group."""
        first = next(ranks[0] for ranks in self.rank_groups if rank in ranks)
        return self.rows[self.rows["rank"] == first]

    @cached_property
    def steepest_bytes(self) -> tuple[int, float, float]:
        """Largest block, and upper limits of what one more token and one more sequence hold on all ranks together.
        [token], [B], [B]
        """
        peaks = [peak for kind in self.kinds for peak in kind.totals.all_peaks]
        in_flight, sampled = (max([peak[i] for peak in peaks], default=0) for i in (0, 1))
        cached = constant = 0.0
        for kind in self.kinds:
            cached += len(kind.ranks) * sum(cache.bytes / cache.rule.block_tokens for cache in kind.totals.caches)
            spare = sum(cache.bytes * cache.rule.spare_blocks for cache in kind.totals.caches)
            constant += len(kind.ranks) * (kind.totals.sequence_bytes + spare)
            in_flight = max(in_flight, kind.totals.in_flight_bytes)
        block = max([cache.rule.block_tokens for kind in self.kinds for cache in kind.totals.caches], default=1)
        return block, float(max(cached, in_flight, 1)), float(constant + in_flight + sampled)


def memory_table_of(
    rows: Iterable[MemoryRow], *, chunk_tokens: int, images: int = 0, pools: tuple[Pool, ...] = ()
) -> MemoryTable:
    """The table of these rows; ranks that hold the same are kept once.

    Parameters
    ----------
    rows : iterable of MemoryRow
        Of every pipeline rank.
    chunk_tokens : int
        Most tokens of one pass. [token]
    images : int
        Images of a sequence. [image]
    pools : tuple of Pool
        Pools of the engine.
    """
    of_rank: dict[int, list[MemoryRow]] = defaultdict(list)
    for row in rows:
        of_rank[row.rank].append(row)
    groups: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for rank, rank_rows in sorted(of_rank.items()):
        groups[tuple(map(_WITHOUT_RANK, rank_rows))].append(rank)
    kinds = tuple(tuple(ranks) for ranks in groups.values())
    distinct = [_AS_ROW(row) for ranks in kinds for row in of_rank[ranks[0]]]
    return MemoryTable(np.array(distinct, dtype=ROW), kinds, chunk_tokens, images, pools)
