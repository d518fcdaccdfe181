"""`capacity validate`: estimates beside the measured runs, or with --published beside published measurements."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from capacity.commands.options import Json, Out
from capacity.commands.output import as_json, write_json
from capacity.errors import CapacityError
from capacity.results import Result

app = typer.Typer(add_completion=False)


class Published(StrEnum):
    """Tables that can be validated against."""

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
    file: Annotated[
        str | None,
        typer.Option("--file", metavar="CSV", help="Another table with the same columns.", show_default=False),
    ] = None,
    json: Json = False,
    out: Out = None,
) -> None:
    """Set estimates beside measurements; exit 1 when a bound fails or a target is missed."""
    _check_options(published, runs, plot, file)
    answer: Result
    if published is None:
        from capacity.validation import reference

        found = reference.validate(runs)
        if plot:
            from capacity.presentation.comparison import save_comparison

            save_comparison([pair for pair in found.pairs if pair.unit == "s"], plot)
        answer, passed = found, found.passed
    elif published is Published.speed:
        from capacity.validation import published_speed

        speed = published_speed.validate(file)
        answer, passed = speed, speed.bounds_hold
    else:
        from capacity.validation import published_world

        world = published_world.validate(file)
        answer, passed = world, world.passed
    if out:
        write_json(answer.to_dict(), out)
    if json:
        print(as_json(answer.to_dict()))
    else:
        from capacity.presentation.tables import show_result

        show_result(answer)
    if not passed:
        raise typer.Exit(1)


def _check_options(published: Published | None, runs: str | None, plot: str | None, file: str | None) -> None:
    """Refuse options that do not go together."""
    if published is None and file is not None:
        raise CapacityError("--file is another published table: say which with --published speed or --published world")
    if published is not None and (runs is not None or plot is not None):
        raise CapacityError("--runs and --plot go with measured runs, not with --published")
