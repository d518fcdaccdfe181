"""`capacity control MODEL PART`: is the control period of a robot or world model met, and what would meet it?"""

from __future__ import annotations

import re
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
from capacity.errors import CapacityError
from capacity.specs.world import WorldModelSpec
from capacity.studies.control import control as study
from capacity.studies.deadline import check_present

app = CommandApp(add_completion=False)
_TIMES, _CYCLE = "Times, all required", "Control cycle"
_RATE = re.compile(r"\s*([0-9]*\.?[0-9]+)\s*(k?)hz\s*", re.IGNORECASE)


def _cycle_option(name: str, metavar: str, about: str, panel: str = _CYCLE) -> Any:
    return typer.Option(name, metavar=metavar, help=about, rich_help_panel=panel, show_default=False)


def _time_option(name: str, about: str) -> Any:
    return _cycle_option(name, "TIME", about, _TIMES)


# The times are required but None by default: all that are missing are then named in one sentence.
@app.command(
    no_args_is_help=True, options_metavar="--period TIME --sensing TIME --preprocessing TIME --network TIME [OPTIONS]"
)
@expand_option_groups
def control(
    model: WorldModel,
    part: Part,
    *,
    period: Annotated[str | None, _time_option("--period", 'Between two actions at the robot, as in "50 ms".')] = None,
    sensing: Annotated[str | None, _time_option("--sensing", "From camera to memory, or 0.")] = None,
    preprocessing: Annotated[str | None, _time_option("--preprocessing", "Image preprocessing, or 0.")] = None,
    network: Annotated[str | None, _time_option("--network", "Round trip, or 0.")] = None,
    schedule: Annotated[
        str | None, _cycle_option("--schedule", "NAME", "synchronous, chunked or asynchronous.")
    ] = None,
    executed_actions: Annotated[
        str | None, _cycle_option("--executed-actions", "N", "Actions played of each chunk.")
    ] = None,
    percentile: Annotated[
        str | None, _cycle_option("--percentile", "P", "Share of decisions in time, in % (99).")
    ] = None,
    jitter: Annotated[
        str | None, _cycle_option("--jitter", "RATIO", "p99 over median of a decision; 1.1 is assumed.")
    ] = None,
    taken: Annotated[str | None, _cycle_option("--taken", "SIZE", "Memory that other programs hold.")] = None,
    power_mode: Annotated[str | None, _cycle_option("--power-mode", "NAME", "A power mode of the part.")] = None,
    robots: Annotated[str | None, _cycle_option("--robots", "N", "Robots per batch (1).")] = None,
    views: Annotated[str | None, _cycle_option("--views", "N", "Camera views of a decision (of the model).")] = None,
    text_tokens: Annotated[str | None, _cycle_option("--text-tokens", "N", "Text tokens of a decision.")] = None,
    steps: Annotated[str | None, _cycle_option("--steps", "N", "Steps of a flow, diffusion or planner head.")] = None,
    bound_only: Annotated[bool, _cycle_option("--bound-only", "", "Judge the bound alone.")] = False,
    deploy: DeploymentOptions,
    other_part: OtherParts = None,
    json: Json = False,
    out: Out = None,
) -> None:
    """Judge a control period: met or not, by what margin, what binds, and the cheapest change that would meet it.

    The launch mode is how the model runs, and the verdict depends on it; take
    that of the software on the robot. Graph is assumed; a --deployment file may
    give one per phase:

    \b
    eager     kernels launched one by one by Python
    compiled  compiled kernels, launched one by one
    graph     a captured graph of a general compiler
    tuned     an engine written for this model family
    """
    times = {"period": period, "sensing": sensing, "preprocessing": preprocessing, "network": network}
    check_present({f"--{name}": text for name, text in times.items()})
    answer = study(
        _with_inputs(load_world_model(model), views=views, text_tokens=text_tokens, steps=steps),
        load_hardware(part),
        deploy.build(),
        period_s=_period_s(period),
        sensing_s=seconds_option("sensing", sensing),
        preprocessing_s=seconds_option("preprocessing", preprocessing),
        network_s=seconds_option("network", network),
        schedule=schedule,  # type: ignore[arg-type]  # its name is checked by the study
        executed_actions=whole_option("executed_actions", executed_actions),
        percentile=99.0 if percentile is None else number_option("percentile", percentile) or 0.0,
        p99_over_p50=number_option("jitter", jitter),
        taken_bytes=bytes_option("taken", taken) or 0,
        power_mode=power_mode,
        robots=whole_option("robots", robots) or 1,
        bound_only=bound_only,
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


def _with_inputs(world: WorldModelSpec, **texts: str | None) -> WorldModelSpec:
    """The model with the inputs of a decision that options set."""
    fewest = {"text_tokens": 0}
    parsed = {name: whole_option(name, text, minimum=fewest.get(name, 1)) for name, text in texts.items()}
    counts = {name: count for name, count in parsed.items() if count is not None}
    if "views" in counts and not world.encoders:
        raise CapacityError(f"--views: {world.name} has no encoder of images")
    if "steps" in counts and world.head.kind in ("autoregressive", "parallel", "none"):
        raise CapacityError(f"--steps: the {world.head.kind} head of {world.name} has no steps; leave it out")
    fields = {"head.steps" if name == "steps" else name: count for name, count in counts.items()}
    return world.replace(**fields) if fields else world


def _period_s(text: str | None) -> float | None:
    """The period of an option; a rate is refused, because "Hz" is ambiguous among the rates of a robot. [s]"""
    if text is None or (rate := _RATE.fullmatch(text)) is None:
        return seconds_option("period", text)
    per_s = float(rate[1]) * (1000 if rate[2] else 1)
    advice = f"give the period, {1000 / per_s:g} ms" if per_s else "give a period"
    raise CapacityError(f"--period: {text.strip()[:40]} is a rate; {advice}")
