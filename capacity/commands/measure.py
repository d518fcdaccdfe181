"""`capacity measure KIND`: runs of the reference decoder and of micro-benchmarks on this computer."""

from __future__ import annotations

from typing import Annotated

import typer

from capacity.commands.app import CommandApp
from capacity.commands.options import file_option

app = CommandApp(add_completion=False)


@app.command(no_args_is_help=True)
def measure(
    kind: Annotated[
        str,
        typer.Argument(metavar="KIND", help="ceilings, decode, memory, prefill or all.", show_default=False),
    ],
    device: Annotated[str, typer.Option("--device", metavar="cpu|cuda", help="Where to run.")] = "cpu",
    quick: Annotated[
        bool,
        typer.Option("--quick", metavar="", help="One small shape and few cases, to see whether everything works."),
    ] = False,
    out: Annotated[
        str | None,
        typer.Option("--out", metavar="FILE", help="File of the records.", show_default="DEVICE-KIND.jsonl"),
    ] = None,
) -> None:
    """Measure, and write one record per line; `capacity validate --runs FILE` compares the estimates with them."""
    from capacity.measure.campaigns import campaign

    outcome = campaign.run(kind, device, quick=quick, out=file_option("out", out))
    print(f"wrote {outcome.path}" if outcome.runs else "nothing was written")
    if outcome.failed:
        raise typer.Exit(1)
