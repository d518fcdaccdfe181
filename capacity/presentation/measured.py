"""Estimates beside measured runs in the terminal: targets first, then errors, ratios by model, or every run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

from rich.console import Console
from rich.table import Table
from rich.text import Text

from capacity.presentation.tables import bullets, table
from capacity.units import format_seconds
from capacity.validation.compare import by_group, summarise
from capacity.validation.reference import ReferenceCheck
from capacity.validation.targets import DEVICES, RunPair, Target

MOST_REASONS = 8
VERDICTS = {"kept": "green", "MISSED": "bold red", "not judged": "yellow"}


def show_reference(found: ReferenceCheck, console: Console | None = None, *, every_run: bool = False) -> None:
    """Print targets, errors by quantity and ratios by model; with ``every_run`` each run instead of the last two."""
    screen = console or Console(highlight=False)
    _targets(screen, found.targets)
    shown = _every_run if every_run else _summaries
    for title, rows in shown(found.pairs) if found.pairs else ():
        _titled(screen, title, rows)
    if not every_run:
        _titled(screen, "What each estimate rests on", _evidence(found))
    bullets(screen, "Runs of another kernel", found.other_kernels)
    bullets(screen, "Accepted runs without an estimate", _first(found.not_compared))
    bullets(screen, "Rejected runs", _first(found.rejected))


def _titled(screen: Console, title: str, shown: Table) -> None:
    screen.print(Text(f"\n{title}", style="bold"))
    screen.print(shown)


def _first(lines: Sequence[str]) -> list[str]:
    more = [f"and {len(lines) - MOST_REASONS} more; --json lists all"] if len(lines) > MOST_REASONS else []
    return [*lines[:MOST_REASONS], *more]


def _targets(screen: Console, targets: Sequence[Target]) -> None:
    count = {word: sum(target.word == word for target in targets) for word in VERDICTS}
    head = Text(f"{count['kept']} targets kept, {count['MISSED']} missed, {count['not judged']} not judged")
    head.stylize("bold red" if count["MISSED"] else "bold green")
    screen.print(head)
    shown = table(("target", "left"), ("verdict", "left"), ("judged on", "left"))
    unmeasured = []
    for device, mine in by_group(targets, lambda target: target.name.split(":")[0]).items():
        if all(target.kept is None for target in mine) and mine[0].shown == "no run yet":
            unmeasured.append(device)
            continue
        for target in mine:
            shown.add_row(target.name, Text(target.word, style=VERDICTS[target.word]), target.shown)
    screen.print(shown)
    for device in unmeasured:
        screen.print(Text(f"{device}: no run yet; its targets are neither kept nor missed", style="yellow"))


def _summaries(pairs: Sequence[RunPair]) -> Iterable[tuple[str, Table]]:
    """Errors by quantity and device, then ratios by model."""
    yield from _errors(pairs)
    yield _models(pairs)


def _errors(pairs: Sequence[RunPair]) -> Iterable[tuple[str, Table]]:
    """One table a device: ratio and error of each quantity."""
    ratios = ("least", "median", "most")
    for source, mine in by_group(pairs, lambda pair: pair.source).items():
        columns = [("quantity", "left"), ("runs", "right"), *((name, "right") for name in ratios)]
        shown = table(*columns, *((name, "right") for name in ("mean |error|", "p90", "worst", "in band")))
        for quantity, rows in by_group(mine, lambda pair: pair.group).items():
            error = summarise(rows)
            errors = [f"{value:.1%}" for value in (error.mean_absolute, error.p90, error.worst)]
            band = "" if error.in_band is None else f"{error.in_band:.0%}"
            shown.add_row(quantity, f"{error.rows}", *_span(rows), *errors, band)
        yield f"Predicted / measured on {DEVICES[source]}, by quantity", shown


def _models(pairs: Sequence[RunPair]) -> tuple[str, Table]:
    """One table: ratio of each quantity by model."""
    columns = [("model", "left"), ("quantity", "left"), ("runs", "right"), ("least", "right"), ("median", "right")]
    shown = table(*columns, ("most", "right"), ("in band", "right"))
    for rows in by_group(sorted(pairs, key=_order), lambda pair: f"{pair.source} {pair.model} {pair.group}").values():
        banded = [pair.in_band for pair in rows if pair.in_band is not None]
        inside = f"{sum(banded)} of {len(banded)}" if banded else ""
        shown.add_row(rows[0].model, rows[0].group, f"{len(rows)}", *_span(rows), inside)
    return "Predicted / measured by model; --rows shows every run", shown


def _order(pair: RunPair) -> tuple[str, str]:
    return pair.source, pair.model


def _span(rows: Sequence[RunPair]) -> list[str]:
    ratios = [pair.ratio for pair in rows]
    return [f"{value:.3f}" for value in (min(ratios), median(ratios), max(ratios))]


def _every_run(pairs: Sequence[RunPair]) -> Iterable[tuple[str, Table]]:
    """One table a quantity and device: each run with its prediction, measurement, ratio and verdict."""
    for rows in by_group(pairs, lambda pair: f"{pair.source} {pair.group}").values():
        columns = [("model", "left"), ("batch", "right"), ("tokens", "right"), ("predicted", "right")]
        shown = table(*columns, ("measured", "right"), ("ratio", "right"), ("verdict", "left"))
        for pair in rows:
            figures = [_figure(pair, pair.predicted), _figure(pair, pair.measured), f"{pair.ratio:.3f}"]
            shown.add_row(pair.model, f"{pair.batch}", f"{pair.tokens:,}", *figures, _verdict(pair))
        unit = ", in bytes" if rows[0].unit == "B" else ""
        yield f"{rows[0].group}, {DEVICES[rows[0].source]}{unit}", shown


def _figure(pair: RunPair, value: float) -> str:
    return format_seconds(value) if pair.unit == "s" else f"{value:,.0f}"


def _verdict(pair: RunPair) -> Text:
    if pair.bound_holds is not None:
        good, words = pair.bound_holds, ("below", "ABOVE")
    elif pair.in_band is not None:
        good, words = pair.in_band, ("in band", "outside")
    else:
        good, words = pair.predicted == pair.measured, ("equal", "differs")
    return Text(words[0] if good else words[1], style="" if good else "bold red")


def _evidence(found: ReferenceCheck) -> Table:
    kinds = list(next(iter(found.matrix.values())))
    shown = table(("quantity", "left"), *((kind, "left") for kind in kinds))
    for name, row in found.matrix.items():
        shown.add_row(name, *(row[kind] for kind in kinds))
    return shown
