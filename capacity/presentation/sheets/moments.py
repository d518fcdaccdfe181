"""The sheet of activation moments: what is alive at each moment of a pass, equal layers in one row."""

from __future__ import annotations

from itertools import groupby

from capacity.presentation.sheet import Cell, Column, Line, Section, Sheet, Tone
from capacity.results import ActivationMoments, MomentRow


def moments_sheet(moments: ActivationMoments) -> Sheet:
    """The sheet of the moments of one pass."""
    where = (
        Cell(moments.batch, "sequence"),
        " of ",
        Cell(moments.tokens, "token"),
        " tokens, ",
        Cell(moments.tokens_in_flight, "token"),
        " in flight",
    )
    rows = [_row(run, moments) for run in _runs(moments)]
    return Sheet(
        title=f"Activations of {moments.model}",
        head=(Line(("activation peak ", Cell(moments.peak_bytes, "B"), " per device")), Line(where)),
        sections=(
            Section(
                "Alive at each moment of a pass, per device",
                (
                    Column("moment", "text"),
                    Column("stage", "text", 2),
                    Column("layers", "text"),
                    Column("alive"),
                    Column("tensors", "text", 1),
                ),
                tuple(rows),
            ),
        ),
        assumptions=moments.assumed,
        notes=moments.notes,
        not_modelled=moments.not_modelled,
    )


def _runs(moments: ActivationMoments) -> list[list[MomentRow]]:
    """Rows of one moment whose consecutive layers hold the same."""
    kinds = list(dict.fromkeys((row.stage, row.moment) for row in moments.rows))
    ordered = sorted(moments.rows, key=lambda row: kinds.index((row.stage, row.moment)))
    return [list(run) for _, run in groupby(ordered, key=lambda row: (row.stage, row.moment, row.tensors))]


def _row(run: list[MomentRow], moments: ActivationMoments) -> tuple[Cell, ...]:
    first, last = run[0], run[-1]
    layers = "" if first.layer is None else str(first.layer) if len(run) == 1 else f"{first.layer} to {last.layer}"
    peak: Tone = "doubtful" if first.held_bytes == moments.peak_bytes else ""
    size = Cell(first.held_bytes, "B", tone=peak)
    return (Cell(first.moment), Cell(first.stage), Cell(layers), size, Cell(", ".join(first.tensors)))
