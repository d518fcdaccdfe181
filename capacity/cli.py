"""The command line: `capacity COMMAND ...`. Each command is a module of ``commands/``, imported when it is used."""

from __future__ import annotations

import errno
import io
import os
import sys
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import capacity
from capacity.errors import CapacityError

DONE, SHORT, WRONG_INPUT, INTERRUPTED = 0, 1, 2, 130
UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
COMMANDS = {
    "size": "capacity.commands.size",
    "hardware": "capacity.commands.hardware",
    "servers": "capacity.commands.servers",
    "models": "capacity.commands.models",
    "engines": "capacity.commands.engines",
    "control": "capacity.commands.control",
    "frames": "capacity.commands.frames",
    "measure": "capacity.commands.measure",
    "validate": "capacity.commands.validate",
}
# typer carries a copy of click in some versions and imports it in others; its own exception leads to the base of both.
_ClickException: type[Exception] = next(b for b in typer.BadParameter.__mro__ if b.__name__ == "ClickException")


class LazyGroup(TyperGroup):
    """Commands by name; the module of a command is imported when it is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        command = typer.main.get_command(import_module(COMMANDS[cmd_name]).app)
        command.name = cmd_name
        return command


app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    add_completion=False,
    help="How many accelerators does a model need, and how fast will it answer?",
    epilog="Exit codes: 0 done; 1 does not fit or misses an objective; 2 wrong input; 130 interrupted.",
)


def _print_version(requested: bool) -> None:
    if requested:
        print(f"capacity {capacity.__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and stop.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """How many accelerators does a model need, and how fast will it answer?"""


def main() -> None:
    """Run the command line of this process and leave with its exit code."""
    if sys.stdout is None or sys.stderr is None:  # closed by the caller
        os._exit(WRONG_INPUT)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a file may be named by bytes that are not valid text
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command; whatever the user got wrong is one sentence on stderr and exit code 2."""
    command = typer.main.get_command(app)
    try:
        code = command.main(args=arguments, prog_name="capacity", standalone_mode=False)
        sys.stdout.flush()
    except CapacityError as error:
        return _refuse(str(error))
    except _ClickException as error:
        return _refuse_usage(error)
    except BrokenPipeError:  # the reader of a pipe left: not a fault of the question
        _drop_output()
        return DONE
    except SystemExit as leaving:  # typer turns a broken pipe into exit code 1, which means something else here
        if getattr(leaving.__context__, "errno", None) != errno.EPIPE:
            raise
        _drop_output()
        return DONE
    except OSError as error:
        if error.errno not in UNWRITABLE:
            raise
        _drop_output()
        return _refuse(f"standard output: cannot be written ({error.strerror})")
    except (typer.Abort, KeyboardInterrupt):
        return INTERRUPTED
    return code if isinstance(code, int) else DONE


def _drop_output() -> None:
    """Send what is still buffered nowhere, so that leaving does not fail on it again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _refuse(sentence: str) -> int:
    printable = "".join(letter if letter.isprintable() else "?" for letter in " ".join(sentence.split()))
    print(f"capacity: {printable}", file=sys.stderr)
    return WRONG_INPUT


def _refuse_usage(error: Any) -> int:
    if type(error).__name__ == "NoArgsIsHelpError":
        print(error.format_message())
        return WRONG_INPUT
    context = getattr(error, "ctx", None)
    advice = f" (see '{context.command_path} --help')" if context is not None else ""
    return _refuse(error.format_message().rstrip(".") + advice)


if __name__ == "__main__":
    main()
