"""`capacity control MODEL PART`: is the control period of a robot or world model met, and what would meet it?"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from capacity.catalog import load_hardware
from capacity.catalog_world import load_world_model
from capacity.commands.options import (
    DeploymentOptions,
    Json,
    Out,
    bytes_option,
    number_option,
    seconds_option,
    takes_bundles,
    whole_option,
)
from capacity.commands.output import as_json, write_json
from capacity.studies.control import control as study

app = typer.Typer(add_completion=False)
_CYCLE = "Control cycle"


def _cycle_option(name: str, metavar: str, about: str) -> Any:
    return typer.Option(name, metavar=metavar, help=about, rich_help_panel=_CYCLE, show_default=False)


@app.command(no_args_is_help=True)
@takes_bundles
def control(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A shipped world model or a file.", show_default=False)],
    part: Annotated[str, typer.Argument(metavar="PART", help="A shipped id or a TOML file.", show_default=False)],
    deploy: DeploymentOptions,
    period: Annotated[str | None, _cycle_option("--period", "TIME", 'Between two actions, "50 ms"; required.')] = None,
    sensing: Annotated[str | None, _cycle_option("--sensing", "TIME", "Camera to memory; required, may be 0.")] = None,
    preprocessing: Annotated[
        str | None, _cycle_option("--preprocessing", "TIME", "Before the model; required, may be 0.")
    ] = None,
    network: Annotated[str | None, _cycle_option("--network", "TIME", "Both ways; required, may be 0.")] = None,
    schedule: Annotated[
        str | None, _cycle_option("--schedule", "NAME", "synchronous, chunked or asynchronous.")
    ] = None,
    executed_actions: Annotated[
        str | None, _cycle_option("--executed-actions", "N", "Actions played of each chunk.")
    ] = None,
    launch_mode: Annotated[
        str, _cycle_option("--launch-mode", "NAME", "eager, compiled, graph (default) or tuned: see above.")
    ] = "graph",
    percentile: Annotated[
        str | None, _cycle_option("--percentile", "P", "Share of decisions in time, in % (99).")
    ] = None,
    jitter: Annotated[
        str | None, _cycle_option("--jitter", "RATIO", "p99 over median of a decision; 1.1 is assumed.")
    ] = None,
    taken: Annotated[str | None, _cycle_option("--taken", "SIZE", "Memory that other programs hold.")] = None,
    power_mode: Annotated[str | None, _cycle_option("--power-mode", "NAME", "A power mode of the part.")] = None,
    robots: Annotated[str | None, _cycle_option("--robots", "N", "Decided for in one batch (1).")] = None,
    other_part: Annotated[list[str] | None, _cycle_option("--other-part", "PART", "A part to try; repeats.")] = None,
    json: Json = False,
    out: Out = None,
) -> None:
    """Judge a control period: met or not, by what margin, what binds, and the cheapest change that would meet it.

    The launch mode is how the model runs, and the verdict depends on it; take that of the software on the robot:

    \b
    eager     kernels launched one by one by Python
    compiled  compiled kernels, launched one by one
    graph     a captured graph of a general compiler
    tuned     an engine written for this model family
    """
    answer = study(
        load_world_model(model),
        load_hardware(part),
        deploy.build(),
        period_s=seconds_option("period", period),
        sensing_s=seconds_option("sensing", sensing),
        preprocessing_s=seconds_option("preprocessing", preprocessing),
        network_s=seconds_option("network", network),
        schedule=schedule,  # type: ignore[arg-type]  # its name is checked by the study
        executed_actions=whole_option("executed_actions", executed_actions),
        launch_mode=launch_mode,
        percentile=99.0 if percentile is None else number_option("percentile", percentile) or 0.0,
        p99_over_p50=number_option("jitter", jitter),
        taken_bytes=bytes_option("taken", taken) or 0,
        power_mode=power_mode,
        robots=whole_option("robots", robots) or 1,
        parts=tuple(load_hardware(name) for name in other_part or ()),
    )
    if out is not None:
        write_json(answer.to_dict(), out)
    if json:
        print(as_json(answer.to_dict()))
    else:
        from capacity.presentation.tables import show_result

        show_result(answer)
    if not answer.met:
        raise typer.Exit(1)
