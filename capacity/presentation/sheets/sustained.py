"""The sheet of sustained rates: at the given concurrency, at the largest within objectives, and at an arrival rate."""

from __future__ import annotations

from collections.abc import Iterator

from capacity.presentation.sheet import Cell, Column, Line, Section, Sheet, Tone, unique
from capacity.studies.sustained_result import Arrivals, Figure, Rates, Sustained

Row = tuple[Cell, ...]

SIDES = {"bound": "bound", "roofline": "roofline", "attainable": "attainable", "value": "estimate"}
ENDS = {
    "memory": "limited by memory",
    "max_sequences": "limited by max_sequences",
    "TPOT": "limited by the objective of TPOT",
    "TTFT": "limited by the objective of TTFT",
}


def sustained_sheet(result: Sustained) -> Sheet:
    """The sheet of a replica in steady state."""
    return Sheet(
        title=f"{result.model} on {result.devices} x {result.part}, sustained",
        head=tuple(_head(result)),
        sections=sustained_sections(result),
        assumptions=result.assumed,
        notes=unique(result.notes),
        not_modelled=result.not_modelled,
    )


def sustained_sections(result: Sustained) -> tuple[Section, ...]:
    """Tables of rates; prefill and decode of the same requests share the device."""
    now = result.at_concurrency
    many = "requests" if now.concurrency > 1 else "request"
    sections = [_rates(result, now, f"Sustained with {now.concurrency:,} {many} in flight, per replica")]
    if result.largest is not None and result.largest.concurrency != now.concurrency:
        ends = ENDS[result.ended_by]
        sections.append(_rates(result, result.largest, f"At most {result.largest.concurrency:,} in flight, {ends}"))
    if result.arrivals is not None:
        sections.append(_arrivals(result, result.arrivals))
    return tuple(sections)


def _head(result: Sustained) -> Iterator[Line]:
    largest, side = result.largest, SIDES[result.rests_on]
    if largest is None:
        words = "memory holds no request" if result.ended_by == "memory" else "no request keeps the objectives"
        yield Line(words, "bad")
        return
    rate = Cell(largest.tokens_per_s.best, "token/s", digits=0)
    at = ("sustains up to ", rate, " with ", Cell(largest.concurrency, "request"), " requests in flight")
    yield Line((*at, f" ({side}; {ENDS[result.ended_by]})"))
    if result.arrivals is not None:
        yield _verdict(result.arrivals)


def _verdict(arrivals: Arrivals) -> Line:
    count = f"{arrivals.replicas:,} replica{'s' if arrivals.replicas > 1 else ''}"
    rate = Cell(arrivals.requests_per_s, "request/s", digits=2)
    words = (rate, f" need {count}, each at a utilisation of ", Cell(arrivals.utilisation, "1"))
    if arrivals.within is None:
        return Line(words)
    return Line((*words, "; objectives kept" if arrivals.within else "; objectives missed"), _tone(arrivals.within))


def _tone(objectives_met: bool) -> Tone:
    return "good" if objectives_met else "bad"


def _rates(result: Sustained, rates: Rates, title: str) -> Section:
    rows = (
        ("requests", rates.requests_per_s, "request/s", 2),
        ("output tokens", rates.tokens_per_s, "token/s", 0),
        ("TPOT with prefill of others", rates.tpot_s, "s", None),
        ("TTFT without a queue", rates.ttft_s, "s", None),
    )
    sides = [side for side in SIDES if getattr(rates.requests_per_s, side) is not None]
    return Section(
        title=title,
        columns=(Column("figure", "text"), *(Column(SIDES[side]) for side in sides)),
        rows=tuple(_row(row, sides, result.evidence) for row in rows if row[1] is not None),
        caption="Prompts are prefilled alone, between the decode steps of the others.",
        evidence=None,
    )


def _row(row: tuple[str, Figure | None, str, int | None], sides: list[str], evidence: dict[str, str]) -> Row:
    name, figure, unit, digits = row
    cells = [Cell(getattr(figure, side), unit, evidence.get(side, ""), digits=digits) for side in sides]
    return (Cell(name), *cells)


def _arrivals(result: Sustained, arrivals: Arrivals) -> Section:
    side = SIDES[result.rests_on]
    rows: list[Row] = [
        (Cell("arrivals"), Cell(arrivals.requests_per_s, "request/s", digits=2)),
        (Cell("one replica keeps up"), Cell(arrivals.max_requests_per_s, "request/s", digits=2, note=side)),
        (Cell("replicas needed"), Cell(arrivals.replicas, "replica")),
        (Cell("utilisation of each"), Cell(arrivals.utilisation, "1")),
        (Cell("requests in flight on each"), Cell(arrivals.concurrency, "request")),
        (Cell("TPOT, mean"), Cell(arrivals.tpot_s, "s", note=side)),
        (Cell("TTFT, mean"), Cell(arrivals.ttft_s, "s", note=(side, ", with the wait for prompts ahead"))),
    ]
    if arrivals.ttft_percentile_s is not None:
        rows.append((Cell(f"TTFT, p{arrivals.percentile:g}"), Cell(arrivals.ttft_percentile_s, "s", note=side)))
    return Section(
        title="Requests that arrive at random",
        columns=(Column("figure", "text"), Column("value")),
        rows=tuple(rows),
        evidence=None,
        notes=Column("condition", "text", 1),
    )
