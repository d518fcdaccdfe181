"""`capacity hardware list|show|check`: the parts that can be named, what is known of one, and whether a file holds."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Annotated

import typer

from capacity.catalog.parts import hardware_ids, load_hardware
from capacity.catalog.prices import load_prices
from capacity.catalog.servers import load_server, server_ids
from capacity.commands.app import CommandApp
from capacity.commands.options import Json, Part, bytes_option
from capacity.commands.output import as_json
from capacity.errors import CapacityError, SpecError, unknown_name
from capacity.files.text_file import read_toml
from capacity.presentation.figures import printable
from capacity.specs.hardware import HardwareSpec
from capacity.specs.server import ServerSpec
from capacity.units import number_format

app = CommandApp(
    no_args_is_help=True,
    add_completion=False,
    help="Parts: list them, show one with its sources, check a file of yours.",
)
Words = Annotated[
    list[str] | None, typer.Argument(help="Only parts with all these words in id or name.", show_default=False)
]


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
    parts = _with_words(words or ())
    if vendor is not None:
        parts = _of_vendor(parts, vendor)
    min_bytes = bytes_option("memory", least_memory)
    if min_bytes is not None:
        parts = [part for part in parts if (part.memory.capacity_bytes or 0) >= min_bytes]
    if computes is not None:
        number_format(computes)
        parts = [part for part in parts if part.peak(computes) is not None]
    if not parts:
        raise CapacityError("no part matches all that is given; leave out --vendor, --memory, --format or a word")
    if json:
        print(as_json([_row(part, computes or "bf16") for part in parts]))
        return
    from capacity.presentation import terminal
    from capacity.presentation.sheets.hardware import parts_sheet

    terminal.show(parts_sheet(parts, computes or "bf16"))


def _with_words(words: Sequence[str]) -> list[HardwareSpec]:
    """The parts with all words in id or name; when there are none, an error that counts those with each."""
    parts = [load_hardware(name) for name in hardware_ids()]
    matching = [part for part in parts if all(_has(part, word) for word in words)]
    if matching:
        return matching
    counts = {word: sum(_has(part, word) for part in parts) for word in dict.fromkeys(words)}
    if len(counts) == 1:
        raise CapacityError(unknown_name("part", words[0], hardware_ids()))
    each = ", ".join(f"{word!r} alone: {count}" for word, count in counts.items())
    raise CapacityError(f"no part has all of these words in its id or name ({each})")


def _has(part: HardwareSpec, word: str) -> bool:
    """Whether a word or phrase is in id or name; hyphens are spaces."""
    phrase, *names = (text.lower().replace("-", " ") for text in (word, part.id, part.name))
    return any(phrase in name for name in names)


def _of_vendor(parts: list[HardwareSpec], vendor: str) -> list[HardwareSpec]:
    """The parts of one vendor; one that makes none of the catalogue is an error."""
    vendors = sorted({load_hardware(name).vendor.lower() for name in hardware_ids()})
    if vendor.lower() not in vendors:
        raise CapacityError(f"--vendor: {unknown_name('vendor', vendor, vendors)}")
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
    prices = load_prices(spec.id)
    if json:
        print(as_json(spec.model_dump(mode="json") | {"prices": [one.model_dump(mode="json") for one in prices]}))
        return
    from capacity.presentation import terminal
    from capacity.presentation.sheets.hardware import part_sheet
    from capacity.presentation.sheets.servers import price_sections

    sheet = part_sheet(spec)
    terminal.show(replace(sheet, sections=(*sheet.sections, *price_sections(prices))))


@app.command("check", no_args_is_help=True)
def check_parts(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="TOML files or ids.", show_default=False)],
) -> None:
    """Check that files of parts and servers are sourced and free of contradictions; the first fault ends it.

    A part needs name, memory.bytes_per_s and a source for each figure. Fields, units, example: docs/part_files.md.
    """
    for file in files:
        spec = _part_or_server(file)
        asks = isinstance(spec, HardwareSpec) and spec.memory.capacity_bytes is None
        later = "; a sizing asks for memory.capacity_bytes, which the buyer chooses" if asks else ""
        print(printable(f"{file}: holds ({spec.name}){later}"))


def _part_or_server(file: str) -> HardwareSpec | ServerSpec:
    """The part or the server in a file: a server names its device."""
    return load_server(file) if file in server_ids() or _names_a_device(file) else load_hardware(file)


def _names_a_device(file: str) -> bool:
    with suppress(SpecError):  # a file that cannot be read is named by the loader
        return file.endswith(".toml") and "device" in read_toml(file)
    return False
