"""A table as lines of text of a given width: columns that do not fit are dropped, and only text is wrapped."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from capacity.presentation.figures import printable, shown
from capacity.presentation.sheet import Column, Section, with_remarks

GAP = "  "
MIN_TEXT = 24  # characters of a column of text, where its longest cell has as many
MAX_WORD = 32  # of a column of text that is not broken


@dataclass(frozen=True)
class Span:
    """A piece of a line in one style: a tone of the sheet, "heading" or "quiet"."""

    text: str
    style: str = ""


Spans = tuple[Span, ...]


@dataclass(frozen=True)
class Table:
    """The lines of a table, and the names of the columns that were dropped."""

    lines: tuple[Spans, ...]
    left_out: tuple[str, ...]


def table(section: Section, width: int, rule: str = "-") -> Table:
    """Lay a section out in ``width`` characters; ``rule`` is the letter that lines are drawn with."""
    full = with_remarks(section)
    texts = shown(full)
    visible = _visible_columns(full.columns, texts, width)
    columns = [full.columns[i] for i in visible]
    texts = [[row[i] for i in visible] for row in texts]
    widths = _widths(columns, texts, width)
    line = (Span(GAP.join(rule * size for size in widths), "quiet"),)
    lines = [*_header(columns, widths), line]
    for number, row in enumerate(full.rows):
        if number in full.rules:
            lines.append(line)
        lines.extend(_row(columns, widths, texts[number], [row[i].tone for i in visible]))
    left_out = tuple(column.name for i, column in enumerate(full.columns) if i not in visible)
    return Table(tuple(lines), left_out)


def paragraph(text: str, width: int, bullet: str = "") -> list[str]:
    """Lines of a sentence, those after the first indented below the text of the first; words are left whole."""
    lines = textwrap.wrap(
        printable(text),
        max(width, 20),
        initial_indent=bullet,
        subsequent_indent=" " * len(bullet),
        break_on_hyphens=False,
    )
    return lines or [bullet.rstrip()]


def _visible_columns(columns: Sequence[Column], texts: Sequence[Sequence[str]], width: int) -> list[int]:
    """Numbers of the columns that fit at their minimum widths; the least useful goes first, of equals the last."""
    min_widths = [_min_width(column, [row[i] for row in texts]) for i, column in enumerate(columns)]
    visible = list(range(len(columns)))
    while _total(min_widths[i] for i in visible) > width and (free := [i for i in visible if columns[i].rank]):
        visible.remove(max(free, key=lambda i: (columns[i].rank, i)))
    return visible


def _total(widths: Iterable[int]) -> int:
    """Width of columns with the gaps between them."""
    sizes = list(widths)
    return sum(sizes) + len(GAP) * max(0, len(sizes) - 1)


def _min_width(column: Column, cells: Sequence[str]) -> int:
    """Minimum width of a column: of all of its cells, or of the words of text."""
    heading = _max_word([column.name])
    longest = max(map(len, cells), default=0)
    if column.kind != "text":
        return max(heading, longest)
    return max(heading, min(longest, max(MIN_TEXT, min(_max_word(cells), MAX_WORD))))


def _max_word(texts: Sequence[str]) -> int:
    return max((len(word) for text in texts for word in text.split()), default=0)


def _widths(columns: Sequence[Column], texts: Sequence[Sequence[str]], width: int) -> list[int]:
    """Width of each column: its minimum, and of the room left as much as headings and then text can use."""
    cells = [[row[i] for row in texts] for i in range(len(columns))]
    widths = [_min_width(column, own) for column, own in zip(columns, cells, strict=True)]
    for i, column in enumerate(columns):
        widths[i] += max(0, min(len(column.name) - widths[i], width - _total(widths)))
    natural = [max(map(len, [column.name, *own])) for column, own in zip(columns, cells, strict=True)]
    while (room := width - _total(widths)) > 0 and (
        narrow := [i for i in range(len(widths)) if widths[i] < natural[i]]
    ):
        for i in narrow:
            widths[i] += min(natural[i] - widths[i], max(1, room // len(narrow)), max(0, width - _total(widths)))
    return widths if _total(widths) <= width else _squeezed(columns, widths, width)


def _squeezed(columns: Sequence[Column], widths: list[int], width: int) -> list[int]:
    """Narrower columns of text, where even the columns that cannot be left out are too wide."""
    for i, column in enumerate(columns):
        if column.kind == "text":
            widths[i] = max(12, widths[i] - max(0, _total(widths) - width))
    return widths


def _header(columns: Sequence[Column], widths: Sequence[int]) -> list[Spans]:
    return _row(columns, widths, [column.name for column in columns], ["heading"] * len(columns), low=True)


def _row(
    columns: Sequence[Column], widths: Sequence[int], texts: Sequence[str], styles: Sequence[str], *, low: bool = False
) -> list[Spans]:
    """Lines of one row; a cell of several lines begins at the top, a heading ends at the bottom (``low``)."""
    cells = [
        textwrap.wrap(text, size, break_on_hyphens=False) if low or column.kind == "text" else [text]
        for column, size, text in zip(columns, widths, texts, strict=True)
    ]
    height = max(map(len, cells), default=1) or 1
    lines = []
    for number in range(height):
        spans = []
        for column, size, cell, style in zip(columns, widths, cells, styles, strict=True):
            place = number - (height - len(cell) if low else 0)
            text = cell[place] if 0 <= place < len(cell) else ""
            spans.append(Span(text.rjust(size) if column.kind == "number" else text.ljust(size), style))
            spans.append(Span(GAP))
        lines.append(tuple(spans[:-1]))
    return lines
