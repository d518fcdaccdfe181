"""Memory that start-up logs of serving engines print, compared with the rules of the engine: every row that is read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from capacity.errors import CapacityError
from capacity.files import package_data
from capacity.results import Result
from capacity.validation.compare import Errors, Pair, by_group, share_within, summarise
from capacity.validation.memory_figures import predicted
from capacity.validation.memory_rows import COLUMNS, Row, memory_case, unit_size
from capacity.validation.published_names import LeftOut
from capacity.validation.published_table import read_table

TABLES = ("memory.csv", "memory_2.csv")
JUDGED = "test"  # use of the rows that are judged; others have inferred inputs or no rule
MIN_WITHIN_TOLERANCE, MIN_WITHIN_WIDE, MAX_UNSUPPORTED = 0.94, 0.99, 0.10
WIDE = 0.04
UNITS = {"tokens": "token", "requests": "request"}
ASSUMED = (
    "what a row states as input (a pool in bytes, weights, free memory) is taken from it: a rule is judged by itself",
    "tolerance of a row: what its table states, half of its last digit, or the rounding of its inputs, the largest",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPair(Pair):
    """One figure, how far it may be off, and what is known of the cause where it is farther. [1]"""

    DERIVED: ClassVar[tuple[str, ...]] = (*Pair.DERIVED, "within")

    row_id: str
    kind: str
    tolerance: float
    explanation: str = ""

    @property
    def within(self) -> bool:
        """Whether the prediction is as near as the row allows."""
        return self.error <= self.tolerance


@dataclass(frozen=True)
class MemoryAgreement:
    """Errors of the rows of one engine, and the share within their tolerance. [1]"""

    group: str
    errors: Errors
    within: float


@dataclass(frozen=True)
class MemoryTarget:
    """One promise: what is counted, what it must reach, and whether it does. [1]"""

    name: str
    value: float
    limit: float
    met: bool


@dataclass(frozen=True, repr=False, eq=False)
class PublishedMemory(Result):
    """Published memory figures compared with engine rules; ``left_out`` are ids of rows by reason."""

    DERIVED: ClassVar = ("passed",)

    pairs: tuple[MemoryPair, ...]
    agreements: tuple[MemoryAgreement, ...]
    targets: tuple[MemoryTarget, ...]
    left_out: dict[str, tuple[str, ...]]
    assumed: tuple[str, ...] = ASSUMED
    notes: tuple[str, ...] = ()
    not_modelled: tuple[str, ...] = ("peaks of loading and repacking weights", "memory of other processes")

    @property
    def misses(self) -> tuple[MemoryPair, ...]:
        """Rows whose prediction is farther off than they allow."""
        return tuple(pair for pair in self.pairs if not pair.within)

    @property
    def passed(self) -> bool:
        """Whether every target is met."""
        return all(target.met for target in self.targets)


def validate(file: str | Path | None = None) -> PublishedMemory:
    """Compare the shipped tables, or another with the same columns.

    Models that are not shipped are looked for as JSON in a folder ``geometry`` next to that table.

    Raises
    ------
    CapacityError
        If the file cannot be read, lacks a column, or no row can be compared.
    """
    names = TABLES if file is None else (TABLES[0],)
    rows = [row for name in names for row in read_table(file, shipped=name, columns=COLUMNS)]
    folder = None if file is None else Path(file).parent / "geometry"
    pairs, left_out = _compared([row for row in rows if row["use"] == JUDGED], folder)
    if not pairs:
        raise CapacityError(f"{file or 'the shipped tables'}: no row can be compared ({'; '.join(list(left_out)[:3])})")
    return PublishedMemory(
        pairs=tuple(pairs),
        agreements=tuple(_agreements(pairs)),
        targets=tuple(_targets(pairs, sum(map(len, left_out.values())))),
        left_out=left_out,
    )


def _compared(rows: Sequence[Row], folder: Path | None) -> tuple[list[MemoryPair], dict[str, tuple[str, ...]]]:
    pairs, left_out = [], defaultdict(list)
    explained = package_data.toml("data/published/memory_words.toml")["explained"]
    for row in rows:
        try:
            pairs.append(_pair(row, folder, explained))
        except LeftOut as reason:
            left_out[str(reason)].append(row["id"])
    return pairs, {reason: tuple(ids) for reason, ids in left_out.items()}


def _pair(row: Row, folder: Path | None, explained: Mapping[str, str]) -> MemoryPair:
    case, unit = memory_case(row, folder), unit_size(row)
    return MemoryPair(
        name=f"{row['id']}: {row['kind']} of {row['model_config']}, {row['engine']} {row['engine_version']}".rstrip(),
        unit=UNITS.get(row["observed_unit"], "B"),
        predicted=predicted(case),
        measured=case.measured * unit,
        group=case.engine.name,
        note=row["source"],
        row_id=row["id"],
        kind=row["kind"],
        tolerance=case.tolerance,
        explanation=explained.get(row["id"], ""),
    )


def _agreements(pairs: Sequence[MemoryPair]) -> Iterator[MemoryAgreement]:
    for name, group in {"all": list(pairs), **by_group(pairs, lambda pair: pair.group)}.items():
        within = sum(pair.within for pair in group) / len(group)
        yield MemoryAgreement(name, summarise(group), within)


def _targets(pairs: Sequence[MemoryPair], unsupported: int) -> Iterator[MemoryTarget]:
    within = sum(pair.within for pair in pairs) / len(pairs)
    wide = share_within(pairs, WIDE)
    left = unsupported / (len(pairs) + unsupported)
    yield MemoryTarget("rows within their tolerance", within, MIN_WITHIN_TOLERANCE, within >= MIN_WITHIN_TOLERANCE)
    yield MemoryTarget("rows within 4 %", wide, MIN_WITHIN_WIDE, wide >= MIN_WITHIN_WIDE)
    yield MemoryTarget("rows that no rule reads", left, MAX_UNSUPPORTED, left <= MAX_UNSUPPORTED)
