"""The sheet of the measured runs: targets first, then errors by quantity and ratios by model, or every run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from capacity.presentation.sheet import Cell, Column, Line, Listing, Section, Sheet, Tone
from capacity.validation.compare import by_group, summarise
from capacity.validation.reference import ReferenceCheck
from capacity.validation.targets import DEVICES, NO_RUN, RunPair, Target

Row = tuple[Cell, ...]
MAX_REASONS = 8
VERDICTS: dict[bool | None, tuple[str, Tone]] = {
    True: ("kept", "good"),
    False: ("MISSED", "bad"),
    None: ("not judged", "doubtful"),
}


def reference_sheet(result: ReferenceCheck, *, every_run: bool = False) -> Sheet:
    """The sheet of all comparisons; with ``every_run`` each run instead of their summaries."""
    blank = [device for device in DEVICES.values() if _unmeasured(result.targets, device)]
    sections = [_targets([target for target in result.targets if target.device not in blank])]
    if every_run:
        sections += _every_run(result.pairs)
    else:
        sections += [*_errors(result.pairs), *_models(result.pairs), _evidence(result)]
    return Sheet(
        title="Estimates compared with measured runs",
        head=(_verdict(result.targets), *(_blank(device) for device in blank)),
        sections=tuple(sections),
        listings=(
            Listing("Runs of another kernel", result.other_kernels),
            Listing("Accepted runs without an estimate", _first(result.not_compared)),
            Listing("Rejected runs", _first(result.rejected)),
        ),
        assumptions=result.assumed,
        notes=result.notes,
        not_modelled=result.not_modelled,
    )


def _verdict(targets: Sequence[Target]) -> Line:
    met, missed, unjudged = (sum(target.kept is verdict for target in targets) for verdict in (True, False, None))
    words = (Cell(met), " targets kept, ", Cell(missed), " missed, ", Cell(unjudged), " not judged")
    return Line(words, "bad" if missed else "good")


def _unmeasured(targets: Sequence[Target], device: str) -> bool:
    of_device = [target for target in targets if target.device == device]
    return bool(of_device) and all(target.reason == NO_RUN for target in of_device)


def _blank(device: str) -> Line:
    return Line(f"{device}: {NO_RUN}; its targets are neither kept nor missed", "doubtful")


def _first(lines: Sequence[str]) -> tuple[str, ...]:
    more = [f"and {len(lines) - MAX_REASONS} more; --json lists all"] if len(lines) > MAX_REASONS else []
    return (*lines[:MAX_REASONS], *more)


def _targets(targets: Sequence[Target]) -> Section:
    columns = (Column("target", "text"), Column("verdict", "id"), Column("judged on", "text"))
    return Section("Targets", columns, tuple(_target(target) for target in targets))


def _target(target: Target) -> Row:
    word, tone = VERDICTS[target.kept]
    judged: list[str | Cell] = []
    for item in target.figures:
        cell = Cell(item.value, item.unit, digits={"ratio": 2}.get(item.unit))
        lead = ", " if judged else ""
        judged += [f"{lead}{item.name} ", cell] if item.unit else [lead, cell, f" {item.name}"]
    cases = "".join(f"; {case}" for case in target.cases)
    return Cell(target.name), Cell(word, tone=tone), Cell("", note=(*judged, cases, target.reason))


def _errors(pairs: Sequence[RunPair]) -> Iterator[Section]:
    """One table per device: ratio and error of each quantity."""
    columns = (
        Column("quantity", "text"),
        Column("runs"),
        *_span_columns(),
        Column("mean |error|"),
        Column("p90", rank=2),
        Column("worst", rank=1),
        Column("in band", rank=1),
    )
    for source, of_source in by_group(pairs, lambda pair: pair.source).items():
        rows = []
        for quantity, group in by_group(of_source, lambda pair: pair.group).items():
            error = summarise(group)
            errors = (Cell(value, "1") for value in (error.mean_absolute, error.p90, error.worst))
            inside = Cell("") if error.in_band is None else Cell(error.in_band, "1", digits=0)
            rows.append((Cell(quantity), Cell(error.rows, "run"), *_span(group), *errors, inside))
        yield Section(f"Predicted / measured on {DEVICES[source]}, by quantity", columns, tuple(rows))


def _models(pairs: Sequence[RunPair]) -> Iterator[Section]:
    """One table: ratio of each quantity by model."""
    columns = (
        Column("model", "id"),
        Column("quantity", "text"),
        Column("runs"),
        *_span_columns(),
        Column("in band", rank=1),
    )
    rows = []
    ordered = sorted(pairs, key=lambda pair: (pair.source, pair.model))
    for group in by_group(ordered, lambda pair: f"{pair.source} {pair.model} {pair.group}").values():
        banded = [pair.in_band for pair in group if pair.in_band is not None]
        inside = Cell(sum(banded) / len(banded), "1", digits=0) if banded else Cell("")
        rows.append((Cell(group[0].model), Cell(group[0].group), Cell(len(group), "run"), *_span(group), inside))
    if rows:
        yield Section("Predicted / measured by model", columns, tuple(rows), caption="--rows shows every run")


def _span_columns() -> tuple[Column, ...]:
    return Column("min", rank=3), Column("median"), Column("max", rank=3)


def _span(pairs: Sequence[RunPair]) -> Row:
    ratios = [pair.ratio for pair in pairs]
    return tuple(Cell(value, "ratio", digits=3) for value in (min(ratios), median(ratios), max(ratios)))


def _every_run(pairs: Sequence[RunPair]) -> Iterator[Section]:
    """One table per quantity and device: each run with its prediction, measurement, ratio and verdict."""
    columns = (
        Column("model", "id"),
        Column("batch"),
        Column("tokens"),
        Column("predicted"),
        Column("measured"),
        Column("ratio"),
        Column("verdict", "id"),
    )
    for group in by_group(pairs, lambda pair: f"{pair.source} {pair.group}").values():
        unit = ", in bytes" if group[0].unit == "B" else ""
        title = f"{group[0].group}, {DEVICES[group[0].source]}{unit}"
        yield Section(title, columns, tuple(_run(pair) for pair in group))


def _run(pair: RunPair) -> Row:
    unit = "byte" if pair.unit == "B" else pair.unit  # to the last byte, which GiB would hide
    digits = 0 if unit != "s" else None
    return (
        Cell(pair.model),
        Cell(pair.batch, "sequence"),
        Cell(pair.tokens, "token"),
        Cell(pair.predicted, unit, digits=digits),
        Cell(pair.measured, unit, digits=digits),
        Cell(pair.ratio, "ratio", digits=3),
        _run_verdict(pair),
    )


def _run_verdict(pair: RunPair) -> Cell:
    if pair.bound_holds is not None:
        good, words = pair.bound_holds, ("below", "ABOVE")
    elif pair.in_band is not None:
        good, words = pair.in_band, ("in band", "outside")
    else:
        good, words = pair.predicted == pair.measured, ("equal", "differs")
    return Cell(words[0] if good else words[1], tone="" if good else "bad")


def _evidence(result: ReferenceCheck) -> Section:
    """What each quantity rests on, by kind of evidence."""
    kinds = list(next(iter(result.matrix.values())))
    counted = {"computed": "", "published": " (rows)", "calibrated": " (fits)"}
    columns = (Column("quantity", "text"), *(Column(kind + counted.get(kind, " (runs)")) for kind in kinds))
    rows = tuple((Cell(name), *(_support(row[kind]) for kind in kinds)) for name, row in result.matrix.items())
    return Section("Evidence of each estimate", columns, rows)


def _support(entry: int | bool | str) -> Cell:
    """Whether, how many, or why none."""
    if isinstance(entry, str):
        return Cell(entry, tone="doubtful")
    return Cell(entry) if entry else Cell(None)
