"""A sheet: sections of typed cells. It holds numbers and units; a view decides how they are written."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Tone = Literal["", "good", "bad", "doubtful"]
Kind = Literal["id", "text", "number"]


@dataclass(frozen=True)
class Cell:
    """One value in its ``unit``, the kind of knowledge it is, and what to know about it.

    Units are those of `capacity.presentation.figures`: "B", "s", "FLOP", a rate of them, "1" for a share, or the word
    for what is counted. ``digits`` are those after the point, where the unit does not decide them. The value None is
    one that does not exist.
    """

    value: str | int | float | None
    unit: str = ""
    evidence: str = ""
    note: Words = ""
    tone: Tone = ""
    digits: int | None = None


Parts = tuple[str | Cell, ...]
Words = str | Parts
"""A sentence, with cells for the numbers in it."""


@dataclass(frozen=True)
class Line:
    """One sentence at the head of a sheet."""

    words: Words
    tone: Tone = ""


@dataclass(frozen=True)
class Column:
    """A column of one kind. A narrow view drops the column with the highest ``rank`` first, and none of rank 0.

    An "id" is never broken, a "number" is never broken and stands on the right, "text" may run over several lines.
    """

    name: str
    kind: Kind = "number"
    rank: int = 0


@dataclass(frozen=True)
class Section:
    """A table. Evidence and notes of the cells become columns of their own where a row has any.

    Without a column of ``evidence`` a question mark stands behind each number that is assumed.
    ``rules`` are numbers of rows above which a line is drawn; ``caption`` explains the columns in a sentence.
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    rules: tuple[int, ...] = ()
    caption: str = ""
    evidence: Column | None = Column("evidence", "id", 2)
    notes: Column = Column("note", "text", 1)


@dataclass(frozen=True)
class Listing:
    """Sentences under a heading."""

    title: str
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Sheet:
    """A result: the head with its verdict first, tables, and lists.

    ``assumptions``, ``notes`` and ``not_modelled`` are shown with every result, empty or not. A page of the catalogue
    is no result: what is None there has no heading.
    """

    title: str
    head: tuple[Line, ...]
    sections: tuple[Section, ...]
    listings: tuple[Listing, ...] = ()
    assumptions: tuple[str, ...] | None = None
    notes: tuple[str, ...] | None = None
    not_modelled: tuple[str, ...] | None = None

    def lists(self) -> tuple[Listing, ...]:
        """All lists, those that every result has last, empty or not."""
        always = (("Assumptions", self.assumptions), ("Notes", self.notes), ("Not modelled", self.not_modelled))
        return (
            *(listing for listing in self.listings if listing.lines),
            *(Listing(title, lines) for title, lines in always if lines is not None),
        )


def with_remarks(section: Section) -> Section:
    """The section with the evidence and the notes of its cells as columns; the first of a row that has one is taken."""
    rows = section.rows
    columns = list(section.columns)
    remarks = [(section.evidence, [_evidence(row) for row in rows]), (section.notes, [_note(row) for row in rows])]
    for column, cells in remarks:
        if column is not None and any(cell.value or cell.note for cell in cells):
            columns.append(column)
            rows = tuple((*row, cell) for row, cell in zip(rows, cells, strict=True))
    return Section(section.title, tuple(columns), rows, section.rules, section.caption, section.evidence)


def _evidence(row: Iterable[Cell]) -> Cell:
    kind = next((cell.evidence for cell in row if cell.evidence), "")
    return Cell(kind, tone="doubtful" if kind == "assumed" else "")


def _note(row: Iterable[Cell]) -> Cell:
    """A cell that shows the note of a row; a cell without a value shows its note itself."""
    return Cell("", note=next((cell.note for cell in row if cell.note and cell.value != ""), ""))


def unique(lines: Iterable[str]) -> tuple[str, ...]:
    """Each line once, in order of first appearance."""
    return tuple(dict.fromkeys(lines))
