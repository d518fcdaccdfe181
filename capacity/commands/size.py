"""`capacity size MODEL [PART]`: one replica on one part, or on all parts."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from capacity.catalog.parts import hardware_ids, load_hardware
from capacity.commands.names import model_named
from capacity.commands.options import DeploymentOptions, Json, Out, WorkloadOptions, takes_bundles
from capacity.commands.output import as_json, write_json
from capacity.errors import CapacityError
from capacity.results import Sizing
from capacity.specs.deployment import Deployment
from capacity.studies.parts import PartRow, PartTable, size_on_all_parts, size_on_part
from capacity.studies.size import size_at

app = typer.Typer(add_completion=False)


@app.command(no_args_is_help=True)
@takes_bundles
def size(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A shipped name, a config.json or its folder.", show_default=False)
    ],
    work: WorkloadOptions,
    deploy: DeploymentOptions,
    part: Annotated[
        str | None, typer.Argument(metavar="PART", help="A shipped id or a TOML file.", show_default=False)
    ] = None,
    all_parts: Annotated[
        bool, typer.Option("--all-parts", help="One row for each part, those that fit first.")
    ] = False,
    json: Json = False,
    out: Out = None,
) -> None:
    """Size one replica: does it fit, what limits it, and how fast can it be?

    Memory is judged at prompt + output tokens and TPOT at prompt + output / 2, or both at --context.
    """
    if (part is None) == (not all_parts):
        raise CapacityError("give one PART, or --all-parts" + ("" if part is None else ", not both"))
    answer = _on_all_parts(model, work, deploy) if part is None else _on_one_part(model, part, work, deploy)
    if out is not None:
        write_json(answer.to_dict(), out)
    if json:
        print(as_json(answer.to_dict()))
    else:
        _show(answer)
    if _falls_short(answer):
        raise typer.Exit(1)


def _on_one_part(model: str, part: str, work: WorkloadOptions, deploy: DeploymentOptions) -> Sizing:
    workload, deployment = work.build(), deploy.build()
    case = model_named(model), load_hardware(part), deployment, work.at(workload)
    sizing = size_at(*case, workload=workload)
    if sizing.margin_bytes >= 0:
        return sizing
    return replace(
        sizing, verdict=sizing.verdict + _way_out(size_on_part(*case, workload=workload), sizing, deployment)
    )


def _way_out(row: PartRow, sizing: Sizing, deploy: Deployment) -> str:
    """On how many devices a case fits that does not fit as asked; empty where no number of them is known to do."""
    if row.devices is None:
        return ""
    degree = row.devices * deploy.tensor_parallel // sizing.devices
    assumed = "".join(f", assuming {line}" for line in row.assumed)
    return f"; fits on {row.devices} (--tensor-parallel {degree}{assumed})"


def _on_all_parts(model: str, work: WorkloadOptions, deploy: DeploymentOptions) -> PartTable:
    workload, deployment = work.build(), deploy.build()
    parts = [load_hardware(name) for name in hardware_ids()]
    return size_on_all_parts(model_named(model), parts, deployment, work.at(workload), workload=workload)


def _show(answer: Sizing | PartTable) -> None:
    from capacity.presentation import tables

    if isinstance(answer, Sizing):
        tables.show_sizing(answer)
    else:
        tables.show_part_table(answer)


def _falls_short(answer: Sizing | PartTable) -> bool:
    if isinstance(answer, Sizing):
        return not answer.fits or answer.missed
    return not any(row.holds for row in answer.rows)
