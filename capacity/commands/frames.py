"""`capacity frames MODEL PART`: is the frame rate of an interactive world model met, and for how many sessions?"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from capacity.catalog.parts import load_hardware
from capacity.catalog.worlds import load_world_model
from capacity.commands.app import CommandApp
from capacity.commands.options import (
    DeploymentOptions,
    Json,
    OtherParts,
    Out,
    Part,
    WorldModel,
    bytes_option,
    expand_option_groups,
    number_option,
    seconds_option,
    whole_option,
)
from capacity.commands.output import as_json, write_json
from capacity.studies.frames import frames as study

app = CommandApp(add_completion=False)


def _session_option(name: str, metavar: str, about: str) -> Any:
    return typer.Option(name, metavar=metavar, help=about, rich_help_panel="Sessions", show_default=False)


@app.command(no_args_is_help=True, options_metavar="--frames-per-s N [OPTIONS]")
@expand_option_groups
def frames(
    model: WorldModel,
    part: Part,
    *,
    frames_per_s: Annotated[str, _session_option("--frames-per-s", "N", "Frames per second of each session.")],
    sessions: Annotated[
        str | None, _session_option("--sessions", "N", "Sessions in one batch, started together (1).")
    ] = None,
    elapsed: Annotated[
        str | None, _session_option("--elapsed", "TIME", 'Age at which frame and memory are judged, as in "60 s".')
    ] = None,
    window: Annotated[
        str | None, _session_option("--window", "TOKENS", "Maximum cached context, prompt included; all by default.")
    ] = None,
    taken: Annotated[str | None, _session_option("--taken", "SIZE", "Memory that other programs hold.")] = None,
    bound_only: Annotated[bool, _session_option("--bound-only", "", "Judge the bound alone.")] = False,
    deploy: DeploymentOptions,
    other_part: OtherParts = None,
    json: Json = False,
    out: Out = None,
) -> None:
    """Judge a frame budget: met or not, how many sessions fit per device, and when their caches fill its memory.

    The launch mode is how the model runs: see capacity control --help. Graph is
    assumed.
    """
    answer = study(
        load_world_model(model),
        load_hardware(part),
        deploy.build(),
        frames_per_s=number_option("frames_per_s", frames_per_s) or 0.0,
        sessions=whole_option("sessions", sessions) or 1,
        elapsed_s=seconds_option("elapsed", elapsed) or 0.0,
        window_tokens=whole_option("window", window),
        bound_only=bound_only,
        taken_bytes=bytes_option("taken", taken) or 0,
        parts=tuple(load_hardware(name) for name in other_part or ()),
    )
    if out is not None:
        write_json(answer.to_dict(), out)
    if json:
        print(as_json(answer.to_dict()))
    else:
        from capacity.presentation import terminal

        terminal.show(answer)
    if not answer.met:
        raise typer.Exit(1)
