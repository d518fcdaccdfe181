"""The sheet of one forward pass of a user's module: what it held, and the estimates it is compared with."""

from __future__ import annotations

from capacity.presentation.sheet import Cell, Column, Line, Section, Sheet
from capacity.validation.observation import Observation

MAX_PARTS = 8


def observation_sheet(result: Observation) -> Sheet:
    """The sheet of an observed pass."""
    parameters = Cell(result.parameter_count, "parameter")
    weights = ("weights ", Cell(result.weight_bytes, "B"), " in ", parameters, " parameters")
    sections = [_held(result)]
    if result.estimates:
        sections.append(_estimates(result))
    if result.parts:
        sections.append(_outputs(result))
    return Sheet(
        title="Memory of a forward pass",
        head=(Line((*weights, ", live peak ", Cell(result.live_peak_bytes, "B"))),),
        sections=tuple(sections),
        assumptions=(),
        notes=(),
        not_modelled=result.blind_spots,
    )


def _held(result: Observation) -> Section:
    sizes = {
        "weights": result.weight_bytes,
        "buffers": result.buffer_bytes,
        "inputs": result.input_bytes,
        "live peak": result.live_peak_bytes,
    }
    if result.cuda_peak_bytes is not None:
        sizes["allocator peak"] = result.cuda_peak_bytes
    rows = tuple((Cell(name), Cell(count, "B", "measured")) for name, count in sizes.items())
    return Section("Held", (Column("use", "text"), Column("size")), rows)


def _estimates(result: Observation) -> Section:
    rows = tuple(
        (
            Cell(item.quantity),
            Cell(item.estimated_bytes, "B"),
            Cell(item.observed_bytes, "B"),
            Cell(item.ratio, "ratio", digits=3),
            Cell(item.counter),
        )
        for item in result.estimates
    )
    columns = (Column("quantity", "text"), Column("estimated"), Column("observed"), Column("ratio"))
    return Section("Estimates compared with counters", (*columns, Column("counter", "text", 1)), rows)


def _outputs(result: Observation) -> Section:
    largest = sorted(result.parts, key=lambda part: -part.output_bytes)[:MAX_PARTS]
    rows = tuple(
        (Cell(part.name or "(whole)"), Cell(part.output_bytes, "B"), Cell(part.calls, "call"), Cell(part.kind))
        for part in largest
    )
    columns = (Column("module", "id"), Column("output"), Column("calls", rank=2), Column("kind", "text", 1))
    return Section("Largest outputs by module", columns, rows)
