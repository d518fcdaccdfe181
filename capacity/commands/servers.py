"""`capacity servers list|show`: the servers that can be named, and what is known of one."""

from __future__ import annotations

from typing import Annotated

import typer

from capacity.catalog.prices import load_prices
from capacity.catalog.servers import load_server, server_ids
from capacity.commands.app import CommandApp
from capacity.commands.options import Json
from capacity.commands.output import as_json
from capacity.errors import CapacityError, unknown_name

app = CommandApp(no_args_is_help=True, add_completion=False, help="Servers: list them, show one with its sources.")


@app.command("list")
def list_servers(
    words: Annotated[
        list[str] | None, typer.Argument(help="Only servers with all these words in id or device.", show_default=False)
    ] = None,
    json: Json = False,
) -> None:
    """List servers with their devices, wall power and space."""
    phrases = [word.lower() for word in words or ()]
    servers = [load_server(name) for name in server_ids()]
    matching = [one for one in servers if all(word in f"{one.id} {one.name} {one.device}".lower() for word in phrases)]
    if not matching:
        raise CapacityError(unknown_name("server", " ".join(phrases), server_ids()))
    if json:
        print(as_json([one.model_dump(mode="json") for one in matching]))
        return
    from capacity.presentation import terminal
    from capacity.presentation.sheets.servers import servers_sheet

    terminal.show(servers_sheet(matching))


@app.command("show", no_args_is_help=True)
def show_server(
    server: Annotated[str, typer.Argument(metavar="SERVER", help="A shipped id or a TOML file.", show_default=False)],
    json: Json = False,
) -> None:
    """Show every figure of one server, prices of its device, and sources."""
    spec = load_server(server)
    prices = load_prices(spec.device)
    if json:
        print(as_json(spec.model_dump(mode="json") | {"prices": [one.model_dump(mode="json") for one in prices]}))
        return
    from capacity.presentation import terminal
    from capacity.presentation.sheets.servers import server_sheet

    terminal.show(server_sheet(spec, prices))
