"""`capacity validate --published speed|world`: predictions beside published measurements."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from capacity.commands.options import Json, Out
from capacity.commands.output import as_json, write_json

app = typer.Typer(add_completion=False)


class Published(StrEnum):
    """Tables that can be validated against."""

    speed = "speed"
    world = "world"


@app.command(no_args_is_help=True)
def validate(
    published: Annotated[Published, typer.Option("--published", help="Which table.", show_default=False)],
    file: Annotated[
        str | None,
        typer.Option("--file", metavar="CSV", help="Another table with the same columns.", show_default=False),
    ] = None,
    json: Json = False,
    out: Out = None,
) -> None:
    """Set bounds and estimates beside published measurements; exit 1 when a bound fails or a target is missed."""
    if published is Published.speed:
        from capacity.validation import published_speed

        speed = published_speed.validate(file)
        answer, passed = speed, speed.bounds_hold
    else:
        from capacity.validation import published_world

        world = published_world.validate(file)
        answer, passed = world, world.passed  # type: ignore[assignment]
    if out:
        write_json(answer.to_dict(), out)
    if json:
        print(as_json(answer.to_dict()))
    else:
        from capacity.presentation.tables import show_result

        show_result(answer)
    if not passed:
        raise typer.Exit(1)
