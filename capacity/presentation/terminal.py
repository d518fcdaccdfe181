"""A sheet as text: for the terminal in colours, or plain for ``print`` and pipes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from capacity.presentation import layout
from capacity.presentation.figures import words
from capacity.presentation.layout import Span, Spans
from capacity.presentation.sheet import Listing, Section, Sheet
from capacity.presentation.sheets import sheet_of

if TYPE_CHECKING:
    from rich.console import Console

STYLES = {
    "good": "green",
    "bad": "bold red",
    "doubtful": "yellow",
    "heading": "bold",
    "quiet": "dim",
    "verdict": "bold",
    "verdict good": "bold green",
    "verdict bad": "bold red",
    "verdict doubtful": "bold yellow",
}
MIN_WIDTH = 20
UNKNOWN_WIDTH = 100  # where no terminal says how wide it is


def show(answer: Any, console: Console | None = None) -> None:
    """Print a result or a sheet in the width and with the colours of the console."""
    from rich.console import Console
    from rich.text import Text

    screen = console or Console(highlight=False)
    if screen.width < MIN_WIDTH:  # COLUMNS=0, and terminals that do not know their width
        screen.width = MIN_WIDTH
    rule = "─" if screen.encoding.lower().startswith("utf") else "-"
    for spans in lines(_sheet(answer), screen.width, rule):
        text = Text()
        for span in spans:
            text.append(span.text, STYLES.get(span.style, ""))
        text.rstrip()
        screen.print(text, no_wrap=True, overflow="ignore", crop=False)


def text(answer: Any, width: int | None = None) -> str:
    """A result or a sheet as plain text, by default as wide as the terminal."""
    size = width or shutil.get_terminal_size((UNKNOWN_WIDTH, 0)).columns
    return "\n".join("".join(span.text for span in spans).rstrip() for spans in lines(_sheet(answer), size, "─"))


def _sheet(answer: Any) -> Sheet:
    return answer if isinstance(answer, Sheet) else sheet_of(answer)


def lines(sheet: Sheet, width: int, rule: str) -> Iterator[Spans]:
    """The head, the tables, the lists, and the columns that were dropped."""
    for number, line in enumerate(sheet.head):
        style = line.tone if number else f"verdict {line.tone}".rstrip()
        for piece in layout.paragraph(words(line.words), width):
            yield (Span(piece, style),)
    left_out: dict[str, None] = {}
    for section in sheet.sections:
        laid = layout.table(section, width, rule)
        yield from _titled(section, laid.lines, width)
        left_out |= dict.fromkeys(laid.left_out)
    for listing in sheet.lists():
        yield from _listed(listing, width)
    if left_out:
        yield ()
        for piece in layout.paragraph(f"Columns left out at a width of {width}: {', '.join(left_out)}", width):
            yield (Span(piece, "quiet"),)


def _titled(section: Section, table: tuple[Spans, ...], width: int) -> Iterator[Spans]:
    yield ()
    if section.title:
        yield (Span(section.title, "heading"),)
    yield from table
    if section.caption:
        for piece in layout.paragraph(section.caption, width):
            yield (Span(piece, "quiet"),)


def _listed(listing: Listing, width: int) -> Iterator[Spans]:
    yield ()
    yield (Span(listing.title, "heading"),)
    if not listing.lines:
        yield (Span("none"),)
    for sentence in listing.lines:
        for piece in layout.paragraph(sentence, width, "- "):
            yield (Span(piece),)
