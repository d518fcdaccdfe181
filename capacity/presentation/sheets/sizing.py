"""The sheet of a sizing: verdict, memory of each device, limits and times, the operators of a decode step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from capacity.presentation.sheet import Cell, Column, Line, Parts, Section, Sheet, Tone, unique
from capacity.presentation.sheets.changes import change_sections, described
from capacity.presentation.sheets.estimate import ROOFLINE, operator_section
from capacity.presentation.sheets.limits import binding_words, runtime_words, shared_words, verdict_words
from capacity.presentation.sheets.pool import pool_rows
from capacity.presentation.sheets.sustained import sustained_sections
from capacity.results import Ledger, Objective, Sizing
from capacity.studies.size_changes import WhatIf
from capacity.studies.sustained_result import Sustained

Row = tuple[Cell, ...]

CONTEXT_ENDS = {
    "memory": "limited by memory",
    "positions": "limited by the positions of the model",
    "max_sequences": "limited by max_sequences",
    "nothing": "no limit",
}
VERDICT_TONES: dict[str, Tone] = {"fits": "good", "tight": "doubtful", "does not fit": "bad"}


def sizing_sheet(sizing: Sizing, *, prefill_operators: bool = False, rates: Sustained | None = None) -> Sheet:
    """The sheet of one replica, on request with the operators of a prefill and with its sustained rates."""
    where = f"batch {sizing.batch:,} at {sizing.memory_tokens:,} tokens"
    return Sheet(
        title=f"{sizing.model} on {sizing.devices} x {sizing.part}",
        head=tuple(_head(sizing)),
        sections=(
            *(
                ledger_section(ledger, where, stages=len(sizing.ledger))
                for ledger in sorted(sizing.ledger, key=lambda ledger: ledger.rank)
            ),
            _limits_and_times(sizing),
            *(sustained_sections(rates) if rates else ()),
            *([operator_section(sizing.tpot)] if sizing.tpot.rows else []),
            *([operator_section(sizing.ttft)] if prefill_operators and sizing.ttft.rows else []),
        ),
        assumptions=sizing.assumed,
        notes=unique((*sizing.notes, *sizing.ttft.notes, *sizing.tpot.notes)),
        not_modelled=unique((*sizing.not_modelled, *(rates.not_modelled if rates else ()))),
    )


def ledger_sheet(ledger: Ledger) -> Sheet:
    """The sheet of one device's memory."""
    fits = ledger.margin_bytes >= 0
    margin = Cell(abs(ledger.margin_bytes), "B")
    verdict: Parts = ("fits, ", margin, " to spare") if fits else ("does not fit: ", margin, " missing")
    if ledger.tight:
        verdict = ("tight, ", margin, " to spare: ", *runtime_words(ledger.left_bytes, ledger.runtime_bytes))
    return Sheet(
        title="Memory per device",
        head=(Line(verdict, "doubtful" if ledger.tight else "good" if fits else "bad"),),
        sections=(ledger_section(ledger, "", stages=1),),
        assumptions=ledger.assumed,
        notes=ledger.notes,
        not_modelled=ledger.not_modelled,
    )


def _head(sizing: Sizing) -> Iterator[Line]:
    count: Parts = (Cell(sizing.parameters, "parameter"), " parameters")
    if sizing.active_parameters != sizing.parameters:
        count = (*count, ", ", Cell(sizing.active_parameters, "parameter"), " active")
    yield Line(verdict_words(sizing), VERDICT_TONES[sizing.verdict])
    if sizing.shared is not None:
        yield Line(shared_words(sizing.shared), "doubtful")
    yield Line((f"{sizing.model} (", *count, ") on ", Cell(sizing.devices, "device"), f" x {sizing.part}"))
    yield Line(("binding constraint: ", *binding_words(sizing)))
    yield from map(_objective, sizing.objectives)


def _objective(objective: Objective) -> Line:
    limit, bound = Cell(objective.limit_s, "s"), Cell(objective.bound_s, "s")
    if objective.bound_s is None:
        return Line((f"objective {objective.name} <= ", limit, ": unknown, for no peak of the part is recorded"), "bad")
    state = "missed even at the bound" if objective.missed else "not excluded by the bound"
    words = (f"objective {objective.name} <= ", limit, f": {state} (", bound, ")")
    return Line(words, "bad" if objective.missed else "good")


def ledger_section(ledger: Ledger, where: str, *, stages: int) -> Section:
    """Memory of one device of a stage, and its sum against what is usable."""
    devices = f" ({ledger.devices} devices)" if ledger.devices > 1 else ""
    rank = f", pipeline stage {ledger.rank + 1}" if stages > 1 else ""
    inside = [line for line in ledger.lines if line.inside]
    rows = [(Cell(line.name), Cell(line.held_bytes, "B", line.evidence), _share(line.held_bytes, ledger))
            for line in inside]  # fmt: skip
    tone: Tone = "good" if ledger.margin_bytes >= 0 else "bad"
    rows += [
        (Cell("total"), Cell(ledger.total_bytes, "B"), _share(ledger.total_bytes, ledger)),
        (Cell("usable"), Cell(ledger.usable_bytes, "B"), _share(ledger.usable_bytes, ledger)),
        (Cell("margin"), Cell(ledger.margin_bytes, "B", tone=tone), _share(ledger.margin_bytes, ledger)),
    ]
    rows += [
        (Cell(f"{line.name} (not in total)"), Cell(line.held_bytes, "B", line.evidence), Cell(""))
        for line in ledger.lines
        if not line.inside
    ]
    if ledger.runtime_bytes:
        rest_tone: Tone = "good" if ledger.left_bytes >= ledger.runtime_bytes else "bad"
        rows.append((Cell("runtime (not in total)"), Cell(ledger.runtime_bytes, "B", "assumed"), Cell("")))
        rows.append((Cell("left for the runtime"), Cell(ledger.left_bytes, "B", tone=rest_tone), Cell("")))
    rows.append((Cell("capacity of the device"), Cell(ledger.capacity_bytes, "B"), Cell("")))
    return Section(
        title=f"Memory per device{devices}{rank}" + (f", {where}" if where else ""),
        columns=(Column("use", "text"), Column("size"), Column("share of usable", rank=2)),
        rows=tuple(rows),
        rules=(len(inside),),
        evidence=Column("evidence", "id", 1),
    )


def _share(count: int, ledger: Ledger) -> Cell:
    return Cell(count / ledger.usable_bytes, "1") if ledger.usable_bytes > 0 else Cell("")


def _limits_and_times(sizing: Sizing) -> Section:
    limits, times = list(_limits(sizing)), list(_times(sizing))
    return Section(
        title="Limits and times" if sizing.fits else "Limits, and times that memory does not allow",
        columns=(Column("figure", "text"), Column("value")),
        rows=(*limits, *times, *_derived(sizing)),
        rules=(len(limits),),
        evidence=Column("evidence", "id", 2),
        notes=Column("condition", "text", 1),
    )


def _limits(sizing: Sizing) -> Iterator[Row]:
    evidence = sizing.evidence
    batch = ("sequences of ", Cell(sizing.memory_tokens, "token"), " tokens")
    ends = CONTEXT_ENDS[sizing.max_context_bound_by]
    context = ("tokens at batch ", Cell(sizing.batch, "sequence"), f"; {ends}")
    yield Cell("max batch"), Cell(sizing.max_batch, "sequence", evidence["max_batch"], batch)
    yield Cell("max context"), Cell(sizing.max_context_tokens, "token", evidence["max_context"], context)
    if sizing.pool is not None:
        yield from pool_rows(sizing.pool)


def _times(sizing: Sizing) -> Iterator[Row]:
    prompt = ("one prompt of ", Cell(sizing.prompt_tokens, "token"), " tokens on an idle device; ")
    step = ("batch ", Cell(sizing.batch, "sequence"), " at ", Cell(sizing.tpot_context_tokens, "token"), " tokens; ")
    for estimate, condition in ((sizing.ttft, prompt), (sizing.tpot, step)):
        name = estimate.quantity
        kinds = {side: sizing.evidence.get(f"{name.lower()}.{side}", "") for side in ("bound", "attainable", "value")}
        bound_by = (*condition, f"bound by {estimate.bound_by}, largest operator {estimate.largest_operator}")
        if estimate.roofline is None:
            bound_by = (*condition, "memory side; compute unknown" if estimate.bound else "unknown: no peak recorded")
        yield Cell(f"{name} bound"), Cell(estimate.bound, "s", kinds["bound"], bound_by)
        if estimate.roofline is not None:
            yield Cell(f"{name} roofline"), Cell(estimate.roofline, "s", kinds["bound"], ROOFLINE)
        if estimate.attainable is not None:
            ceilings = "from measured ceilings; not a bound"
            yield Cell(f"{name} attainable"), Cell(estimate.attainable, "s", kinds["attainable"], ceilings)
        if estimate.value is not None:
            band = ("band ", Cell(estimate.low, "s"), " to ", Cell(estimate.high, "s"))
            yield Cell(f"{name} estimate"), Cell(estimate.value, "s", kinds["value"], band)


def _derived(sizing: Sizing) -> Iterator[Row]:
    kind = sizing.evidence["tpot.bound"]
    output = ("TTFT + (N - 1) TPOT, N = ", Cell(sizing.workload["output_tokens"], "token"))
    yield Cell("request bound"), Cell(sizing.request_bound_s, "s", kind, output)
    rate = Cell(sizing.tokens_per_s_bound, "token/s", kind, "per replica, decode only", digits=0)
    yield Cell("throughput bound"), rate
    where = "decode step"
    if sizing.ridge_flop_per_byte is not None:
        side = "memory" if sizing.intensity_flop_per_byte < sizing.ridge_flop_per_byte else "compute"
        where = f"decode step, on the {side} side of the ridge"
    yield Cell("intensity"), Cell(sizing.intensity_flop_per_byte, "FLOP/B", "computed", where, digits=1)
    ridge = Cell(
        sizing.ridge_flop_per_byte,
        "FLOP/B",
        sizing.evidence["ridge point"],
        sizing.ridge_format or "no peak recorded",
        digits=1,
    )
    yield Cell("ridge point"), ridge


def what_if_sheet(answer: WhatIf, *, prefill_operators: bool = False) -> Sheet:
    """The sheet of a sizing with the changes tried; of those that no bound excludes the cheapest is named."""
    sheet, objectives = sizing_sheet(answer.sizing, prefill_operators=prefill_operators), answer.sizing.objectives
    words = {} if objectives else {"met": "fits"}
    tables = change_sections(answer.changes, answer.not_evaluated, time="TPOT", capacity="max batch", words=words)
    enough = "fits and that no bound excludes" if objectives else "fits"
    line = Line(f"cheapest change that {enough}: {described(answer.cheapest)}")
    head = sheet.head if answer.holds else (*sheet.head, line)
    return replace(sheet, head=head, sections=(*sheet.sections, *tables))
