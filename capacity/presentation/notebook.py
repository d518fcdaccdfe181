"""A sheet as HTML for a notebook: all of its columns, everything escaped, styled in place for any theme."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

from capacity.presentation.figures import printable, shown, words
from capacity.presentation.sheet import Column, Line, Listing, Section, Sheet, with_remarks
from capacity.presentation.sheets import sheet_of

_COLOURS = {"good": "#2e7d32", "bad": "#c62828", "doubtful": "#b26a00"}
_EDGE = "1px solid rgba(128, 128, 128, 0.45)"
_TABLE = "border-collapse: collapse; margin: 0.2em 0 0.8em 0; font-variant-numeric: tabular-nums"
_TITLE = "font-weight: 600; margin: 0.6em 0 0.2em 0"


def html(answer: Any) -> str:
    """A result or a sheet as one ``<div>``."""
    sheet = answer if isinstance(answer, Sheet) else sheet_of(answer)
    pieces = [
        *(_line(line, verdict=not number) for number, line in enumerate(sheet.head)),
        *(piece for section in sheet.sections for piece in _section(section)),
        *(piece for listing in sheet.lists() for piece in _list(listing)),
    ]
    return f"<div>{''.join(pieces)}</div>"


def _line(line: Line, *, verdict: bool) -> str:
    weight = "font-weight: 600; font-size: 110%; " if verdict else ""
    return f"<div style='{weight}{_colour(line.tone)}'>{escape(words(line.words))}</div>"


def _colour(tone: str) -> str:
    return f"color: {_COLOURS[tone]}" if tone else ""


def _section(section: Section) -> Iterator[str]:
    full = with_remarks(section)
    if full.title:
        yield f"<div style='{_TITLE}'>{escape(printable(full.title))}</div>"
    heads = "".join(_heading(column) for column in full.columns)
    texts = shown(full)
    rows = "".join(_row(full, number, texts[number]) for number in range(len(texts)))
    yield f"<table style='{_TABLE}'><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"
    if full.caption:
        yield f"<div style='opacity: 0.7'>{escape(printable(full.caption))}</div>"


def _row(section: Section, number: int, texts: Sequence[str]) -> str:
    edge = f"border-top: {_EDGE}; " if number in section.rules else ""
    cells = zip(section.columns, section.rows[number], texts, strict=True)
    return f"<tr>{''.join(_cell(column, cell.tone, text, edge) for column, cell, text in cells)}</tr>"


def _heading(column: Column) -> str:
    return f"<th style='border-bottom: {_EDGE}; {_place(column)}'>{escape(printable(column.name))}</th>"


def _cell(column: Column, tone: str, text: str, edge: str) -> str:
    return f"<td style='{edge}{_place(column)}; {_colour(tone)}'>{escape(text)}</td>"


def _place(column: Column) -> str:
    """Alignment of a column; only text may run over several lines."""
    side = "right" if column.kind == "number" else "left"
    wrapping = "normal" if column.kind == "text" else "nowrap"
    return f"text-align: {side}; vertical-align: top; padding: 0.15em 0.8em; white-space: {wrapping}"


def _list(listing: Listing) -> Iterator[str]:
    yield f"<div style='{_TITLE}'>{escape(printable(listing.title))}</div>"
    if not listing.lines:
        yield "<div>none</div>"
        return
    items = "".join(f"<li>{escape(printable(line))}</li>" for line in listing.lines)
    yield f"<ul style='margin: 0; padding-left: 1.4em'>{items}</ul>"
