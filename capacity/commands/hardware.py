"""`capacity hardware list|show|check`: the parts that can be named, what is known of one, and whether a file holds."""

from __future__ import annotations

from typing import Annotated

import typer

from capacity.catalog.parts import hardware_ids, load_hardware
from capacity.commands.options import Json, Part, bytes_option
from capacity.commands.output import as_json
from capacity.errors import CapacityError, unknown_name
from capacity.presentation.figures import printable
from capacity.specs.hardware import HardwareSpec
from capacity.units import number_format

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Parts: list them, show one with its sources, check a file of yours.",
)
Words = Annotated[list[str] | None, typer.Argument(help="Only ids with all of these words.", show_default=False)]


@app.command("list")
def list_parts(
    words: Words = None,
    vendor: Annotated[str | None, typer.Option("--vendor", help="Only this vendor.", show_default=False)] = None,
    least_memory: Annotated[
        str | None, typer.Option("--memory", metavar="SIZE", help='At least this much, "80 GiB".', show_default=False)
    ] = None,
    computes: Annotated[
        str | None, typer.Option("--format", help="Only parts with a matrix path for this format.", show_default=False)
    ] = None,
    json: Json = False,
) -> None:
    """List parts with memory, bandwidth, peak and ridge point."""
    parts = [load_hardware(name) for name in hardware_ids() if all(word.lower() in name for word in words or ())]
    if vendor is not None:
        parts = _of_vendor(parts, vendor)
    least = bytes_option("memory", least_memory)
    if least is not None:
        parts = [part for part in parts if (part.memory.capacity_bytes or 0) >= least]
    if computes is not None:
        number_format(computes)
        parts = [part for part in parts if part.peak(computes) is not None]
    if json:
        print(as_json([_row(part, computes or "bf16") for part in parts]))
        return
    from capacity.presentation import terminal
    from capacity.presentation.sheets.hardware import parts_sheet

    terminal.show(parts_sheet(parts, computes or "bf16"))


def _of_vendor(parts: list[HardwareSpec], vendor: str) -> list[HardwareSpec]:
    """The parts of one vendor; one that makes none of the catalogue is an error."""
    known = sorted({load_hardware(name).vendor.lower() for name in hardware_ids()})
    if vendor.lower() not in known:
        raise CapacityError(f"--vendor: {unknown_name('vendor', vendor, known)}")
    return [part for part in parts if part.vendor.lower() == vendor.lower()]


def _row(part: HardwareSpec, computes: str) -> dict[str, object]:
    peak = part.peak(computes)
    return {
        "id": part.id,
        "name": part.name,
        "capacity_bytes": part.memory.capacity_bytes,
        "capacity_evidence": part.evidence("memory.capacity_bytes") if part.memory.capacity_bytes else None,
        "bytes_per_s": part.memory.bytes_per_s,
        "format": computes,
        "peak_flop_per_s": peak,
        "ridge_flop_per_byte": None if peak is None else peak / part.memory.bytes_per_s,
        "tdp_w": part.power.tdp_w,
    }


@app.command("show", no_args_is_help=True)
def show_part(
    part: Part,
    json: Json = False,
) -> None:
    """Show every figure of one part, its evidence, its sources and its ridge points on both ceilings."""
    spec = load_hardware(part)
    if json:
        print(as_json(spec.model_dump(mode="json")))
        return
    from capacity.presentation import terminal
    from capacity.presentation.sheets.hardware import part_sheet

    terminal.show(part_sheet(spec))


@app.command("check", no_args_is_help=True)
def check_parts(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="TOML files or ids.", show_default=False)],
) -> None:
    """Check that part files are complete, sourced and free of contradictions; the first fault ends it."""
    for file in files:
        spec = load_hardware(file)
        if spec.memory.capacity_bytes is None:
            raise CapacityError(f"{file}: memory.capacity_bytes is missing; a sizing needs it")
        print(printable(f"{file}: holds ({spec.name})"))
