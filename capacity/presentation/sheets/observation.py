"""The sheet of one forward pass of a user's module: what it held, and the estimates it is compared with."""

from __future__ import annotations

from capacity.presentation.sheet import Cell, Column, Line, Section, Sheet
from capacity.validation.observation import Observation

MAX_PARTS = 8


def observation_sheet(seen: Observation) -> Sheet:
    """The sheet of an observed pass."""
    weights = ("weights ", Cell(seen.weight_bytes, "B"), " in ", Cell(seen.parameter_count, "parameter"), " parameters")
    sections = [_held(seen)]
    if seen.estimates:
        sections.append(_estimates(seen))
    if seen.parts:
        sections.append(_outputs(seen))
    return Sheet(
        title="Memory of a forward pass",
        head=(Line((*weights, ", live peak ", Cell(seen.live_peak_bytes, "B"))),),
        sections=tuple(sections),
        assumptions=(),
        notes=(),
        not_modelled=seen.blind_spots,
    )


def _held(seen: Observation) -> Section:
    held = {
        "weights": seen.weight_bytes,
        "buffers": seen.buffer_bytes,
        "inputs": seen.input_bytes,
        "live peak": seen.live_peak_bytes,
    }
    if seen.cuda_peak_bytes is not None:
        held["allocator peak"] = seen.cuda_peak_bytes
    rows = tuple((Cell(name), Cell(count, "B", "measured")) for name, count in held.items())
    return Section("Held", (Column("use", "text"), Column("size")), rows)


def _estimates(seen: Observation) -> Section:
    rows = tuple(
        (
            Cell(item.quantity),
            Cell(item.estimated_bytes, "B"),
            Cell(item.observed_bytes, "B"),
            Cell(item.ratio, "ratio", digits=3),
            Cell(item.counter),
        )
        for item in seen.estimates
    )
    columns = (Column("quantity", "text"), Column("estimated"), Column("observed"), Column("ratio"))
    return Section("Estimates compared with counters", (*columns, Column("counter", "text", 1)), rows)


def _outputs(seen: Observation) -> Section:
    largest = sorted(seen.parts, key=lambda part: -part.output_bytes)[:MAX_PARTS]
    rows = tuple(
        (Cell(part.name or "(whole)"), Cell(part.output_bytes, "B"), Cell(part.calls, "call"), Cell(part.kind))
        for part in largest
    )
    columns = (Column("module", "id"), Column("output"), Column("calls", rank=2), Column("kind", "text", 1))
    return Section("Largest outputs by module", columns, rows)
