"""The changes that a study tried, in the sheet of any study: what each saves, its verdict, and the cheapest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from capacity.inputs import LARGEST_COUNT
from capacity.presentation.sheet import Cell, Column, Section, Tone
from capacity.studies.what_if import Change, NotEvaluated

CAPTION = (
    "Each is computed as a case of its own; a time is the estimate, or the bound where there is none. Cheapest: by "
    "kind of change, then the smallest sufficient saving."
)
TONES: dict[str, Tone] = {"met": "good", "missed": "bad", "does not fit": "bad", "not excluded": "doubtful"}


def change_sections(
    changes: Sequence[Change],
    not_evaluated: Sequence[NotEvaluated],
    *,
    time: str,
    capacity: str,
    words: Mapping[str, str] | None = None,
) -> list[Section]:
    """The tables of a study's changes; ``time`` and ``capacity`` name what it judges and what memory holds."""
    sections = [_answered(changes, time, capacity, words or {})] if changes else []
    if not_evaluated:
        rows = tuple([(Cell(item.what), Cell(item.reason)) for item in not_evaluated])
        columns = (Column("change", "text"), Column("reason", "text"))
        sections.append(Section("Changes without an answer", columns, rows))
    return sections


def described(change: Change | None) -> str:
    """One change in words, with what to give for it."""
    if change is None:
        return "none of those tried"
    return f"{change.what} ({change.given_as})" if change.given_as else change.what


def _answered(changes: Sequence[Change], time: str, capacity: str, words: Mapping[str, str]) -> Section:
    columns = (
        Column("change", "text"),
        Column("given as", "text"),
        Column("time saved"),
        Column("verdict", "id"),
        Column(time, rank=2),
        Column("memory", rank=4),
        Column(capacity, rank=3),
    )
    rows = tuple([_row(change, words) for change in changes])
    return Section("Changes", columns, rows, caption=CAPTION)


def _row(change: Change, words: Mapping[str, str]) -> tuple[Cell, ...]:
    return (
        Cell(change.what),
        Cell(change.given_as),
        Cell(change.saved_s, "s"),
        Cell(words.get(change.state, change.state), tone=TONES[change.state]),
        Cell(change.time_s, "s"),
        Cell(change.needed_bytes, "B"),
        Cell("no limit") if change.max_batch >= LARGEST_COUNT else Cell(change.max_batch, "sequence"),
    )
