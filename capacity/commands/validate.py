"""`capacity validate`: estimates compared with measured runs or, with --published, with published measurements."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated

import typer

from capacity.commands.app import CommandApp
from capacity.commands.options import Json, Out, file_option
from capacity.commands.output import as_json, write_json
from capacity.errors import CapacityError
from capacity.results import Result

app = CommandApp(add_completion=False)


class Published(StrEnum):
    """Tables that can be validated against."""

    memory = "memory"
    speed = "speed"
    world = "world"


@app.command()
def validate(
    published: Annotated[
        Published | None, typer.Option("--published", help="A published table instead.", show_default=False)
    ] = None,
    runs: Annotated[
        str | None,
        typer.Option("--runs", metavar="JSONL", help="Other runs than the committed ones.", show_default=False),
    ] = None,
    plot: Annotated[
        str | None,
        typer.Option("--plot", metavar="PNG", help="Draw predicted against measured.", show_default=False),
    ] = None,
    rows: Annotated[
        bool, typer.Option("--rows", metavar="", help="Print every run or row, not the summary alone.")
    ] = False,
    file: Annotated[
        str | None,
        typer.Option("--file", metavar="CSV", help="Another table with the same columns.", show_default=False),
    ] = None,
    json: Json = False,
    out: Out = None,
) -> None:
    """Compare estimates with measurements; exit 1 when a bound fails or a target is missed."""
    _check_options(published, file, {"--runs": runs, "--plot": plot, "--rows": rows and published is Published.world})
    answer: Result
    if published is None:
        from capacity.validation import reference

        check = reference.validate(file_option("runs", runs))
        if plot is not None:
            from capacity.presentation.comparison import save_comparison

            save_comparison(check.pairs, plot)
        answer, passed = check, check.passed
    elif published is Published.speed:
        from capacity.validation import published_speed

        speed = published_speed.validate(file_option("file", file))
        answer, passed = speed, speed.bounds_hold
    elif published is Published.memory:
        from capacity.validation import published_memory

        memory = published_memory.validate(file_option("file", file))
        answer, passed = memory, memory.passed
    else:
        from capacity.validation import published_world

        world = published_world.validate(file_option("file", file))
        answer, passed = world, world.passed
    if out is not None:
        write_json(answer.to_dict(), out)
    if json:
        print(as_json(answer.to_dict()))
    else:
        _show(answer, every_run=rows)
    if not passed:
        raise typer.Exit(1)


def _show(answer: Result, *, every_run: bool) -> None:
    from capacity.presentation import terminal
    from capacity.presentation.sheets.published_memory import memory_sheet
    from capacity.presentation.sheets.published_speed import speed_sheet
    from capacity.presentation.sheets.reference import reference_sheet
    from capacity.validation.published_memory import PublishedMemory
    from capacity.validation.published_speed import PublishedSpeed

    if not every_run:
        terminal.show(answer)
    elif isinstance(answer, PublishedSpeed):
        terminal.show(speed_sheet(answer, every_row=True))
    elif isinstance(answer, PublishedMemory):
        terminal.show(memory_sheet(answer, every_row=True))
    else:
        terminal.show(reference_sheet(answer, every_run=True))  # type: ignore[arg-type]  # of measured runs


def _check_options(published: Published | None, file: str | None, of_runs: Mapping[str, object]) -> None:
    """Refuse options that do not go together."""
    if published is None and file is not None:
        raise CapacityError("--file is another published table: say which with --published memory, speed or world")
    set_options = [name for name, value in of_runs.items() if value not in (None, False)]
    if published is not None and set_options:
        raise CapacityError(f"{set_options[0]} goes with measured runs, not with --published")
