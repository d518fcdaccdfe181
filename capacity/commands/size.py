"""`capacity size MODEL [PART]`: one replica on one part, or on all parts."""

from __future__ import annotations

from typing import Annotated

import typer

from capacity.catalog.parts import hardware_ids, load_hardware
from capacity.commands.app import CommandApp
from capacity.commands.names import load_subject
from capacity.commands.options import (
    DeploymentOptions,
    Json,
    OtherParts,
    Out,
    WorkloadOptions,
    bytes_option,
    expand_option_groups,
)
from capacity.commands.output import as_json, write_json
from capacity.errors import CapacityError
from capacity.results import Sizing
from capacity.specs.deployment import Deployment
from capacity.specs.workload import Workload
from capacity.specs.world import Subject, WorldModelSpec
from capacity.studies.parts import PartTable, size_on_all_parts
from capacity.studies.size import OperatingPoint, sized, workload_of
from capacity.studies.size_changes import WhatIf, what_if_at
from capacity.studies.sustained import sustained
from capacity.studies.sustained_result import Sustained
from capacity.studies.what_if import Setup

app = CommandApp(add_completion=False)


@app.command(no_args_is_help=True)
@expand_option_groups
def size(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL", help="A shipped name, its Hub id, a config.json or folder.", show_default=False
        ),
    ],
    work: WorkloadOptions,
    deploy: DeploymentOptions,
    part: Annotated[
        str | None, typer.Argument(metavar="PART", help="A shipped id or a TOML file.", show_default=False)
    ] = None,
    all_parts: Annotated[
        bool, typer.Option("--all-parts", metavar="", help="One row per part, those that fit first.")
    ] = False,
    operators: Annotated[
        bool, typer.Option("--operators", metavar="", help="The operators of a prefill as well.")
    ] = False,
    taken: Annotated[
        str | None, typer.Option("--taken", metavar="SIZE", help="Memory that other programs hold (0).")
    ] = None,
    what_if: Annotated[
        bool, typer.Option("--what-if", metavar="", help="Also size narrower formats and more devices.")
    ] = False,
    other_part: OtherParts = None,
    json: Json = False,
    out: Out = None,
) -> None:
    """Size one replica: does it fit, what limits it, and how fast can it be?

    Memory is judged at prompt + output tokens and TPOT at prompt + output / 2, or both at --context.

    A world model whose answer comes token by token has a prompt and an answer of its own.
    """
    if (part is None) == (not all_parts):
        raise CapacityError("give one PART, or --all-parts" + ("" if part is None else ", not both"))
    if operators and all_parts:
        raise CapacityError("--operators lists those of one part; leave out --all-parts")
    if all_parts and (what_if or other_part):
        raise CapacityError(f"{'--what-if' if what_if else '--other-part'} changes one part; leave out --all-parts")
    (subject, workload), deployment = (
        _subject_and_workload(model, work),
        deploy.build(reserved_bytes=bytes_option("taken", taken)),
    )
    at = work.at(workload)
    answer: Sizing | PartTable | WhatIf
    rates: Sustained | None = None
    if part is None:
        answer = _on_all_parts(subject, workload, at, deployment)
    elif what_if or other_part:
        others = [load_hardware(name) for name in other_part or ()]
        answer = what_if_at(Setup(subject, load_hardware(part), deployment), at, workload, parts=others)
    else:
        hardware = load_hardware(part)
        answer = sized(subject, hardware, deployment, at, workload=workload)
        if answer.fits and answer.ttft.bound is not None and at == OperatingPoint.of(workload):
            rates = sustained(subject, hardware, workload, deployment)
    plain = answer.to_dict() | ({"sustained": rates.to_dict()} if rates else {})
    if out is not None:
        write_json(plain, out)
    if json:
        print(as_json(plain))
    else:
        _show(answer, rates, operators=operators)
    if _falls_short(answer):
        raise typer.Exit(1)


def _show(answer: Sizing | PartTable | WhatIf, rates: Sustained | None, *, operators: bool) -> None:
    from capacity.presentation import terminal
    from capacity.presentation.sheets import sizing

    if operators and isinstance(answer, WhatIf):
        terminal.show(sizing.what_if_sheet(answer, prefill_operators=True))
    elif isinstance(answer, Sizing):
        terminal.show(sizing.sizing_sheet(answer, prefill_operators=operators, rates=rates))
    else:
        terminal.show(answer)


def _on_all_parts(subject: Subject, workload: Workload, at: OperatingPoint, deployment: Deployment) -> PartTable:
    parts = [load_hardware(name) for name in hardware_ids()]
    return size_on_all_parts(subject, parts, deployment, at, workload=workload)


def _subject_and_workload(name: str, work: WorkloadOptions) -> tuple[Subject, Workload]:
    """The model of a name, and the workload of the options; that of a world model is filled in by its own."""
    model = load_subject(name)
    if isinstance(model, WorldModelSpec) and work.context is not None:
        raise CapacityError(f"--context: {name} has a context of its own, its prompt and its answer; leave it out")
    return model, workload_of(model, work.build())


def _falls_short(answer: Sizing | PartTable | WhatIf) -> bool:
    if isinstance(answer, WhatIf):
        return not answer.holds
    if isinstance(answer, Sizing):
        return not answer.fits or answer.missed
    return not any(row.holds for row in answer.rows)
