"""`capacity engines list|show|command`: engines and their rules, and whether a command line of one starts."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from capacity.catalog.engines import engine_ids, load_engine
from capacity.catalog.models import load_model
from capacity.catalog.parts import load_hardware
from capacity.commands.app import CommandApp
from capacity.commands.options import Json
from capacity.commands.output import as_json
from capacity.errors import CapacityError
from capacity.importers.launch import read_launch

app = CommandApp(
    no_args_is_help=True,
    add_completion=False,
    help="Serving engines: list them, show the rules of one, ask whether a command line starts.",
)
Version = Annotated[str | None, typer.Option("--engine-version", metavar="VERSION", help="The newest known.")]


@app.command("list")
def list_engines(json: Json = False) -> None:
    """List the engines whose allocation is known."""
    engines = [load_engine(name) for name in engine_ids()]
    if json:
        print(as_json([{"id": one.name, "version": one.version, "description": one.description} for one in engines]))
        return
    from capacity.presentation import terminal
    from capacity.presentation.sheets.engine import engines_sheet

    terminal.show(engines_sheet(engines))


@app.command("show", no_args_is_help=True)
def show_engine(
    engine: Annotated[str, typer.Argument(metavar="ENGINE", help="Its name.", show_default=False)],
    engine_version: Version = None,
    json: Json = False,
) -> None:
    """Show policies, settings and constants of one engine in one version, with their sources."""
    spec = load_engine(engine, engine_version)
    if json:
        print(as_json(spec.model_dump(mode="json")))
        return
    from capacity.presentation import terminal
    from capacity.presentation.sheets.engine import engine_sheet

    terminal.show(engine_sheet(spec))


@app.command("command", no_args_is_help=True)
def read_command(
    line: Annotated[
        str, typer.Argument(metavar="LINE", help='As in "vllm serve MODEL --max-model-len 32k".', show_default=False)
    ],
    part: Annotated[
        str | None, typer.Option("--part", metavar="PART", help="Does it start on this part?", show_default=False)
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", metavar="MODEL", help="The model, where the line names none that is shipped."),
    ] = None,
    engine_version: Version = None,
    json: Json = False,
) -> None:
    """Read a command line of an engine flag by flag; with a part, say whether it starts. Nothing is executed."""
    launch = read_launch(line)
    if model is not None and part is None:
        raise CapacityError("--model goes with --part: without a part only the flags are read")
    answer = None
    if part is not None:
        from capacity.studies.start import start

        deploy = launch.deployment.replace(engine_version=engine_version) if engine_version else launch.deployment
        network = load_model(model or launch.model)
        answer = start(network, load_hardware(part), deploy, context_tokens=launch.context_tokens)
    if json:
        flags = {**asdict(launch), "deployment": launch.deployment.model_dump(mode="json")}
        print(as_json({"command": flags, "start": answer.to_dict() if answer else None}))
    else:
        from capacity.presentation import terminal
        from capacity.presentation.sheets.engine import launch_sheet

        if answer is not None:
            terminal.show(answer)
        terminal.show(launch_sheet(launch))
    if answer is not None and not answer.starts:
        raise typer.Exit(1)
