"""The group that a module of commands fills: its commands take each option once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperCommand

from capacity.errors import CapacityError

ENGINE_WORDS = {  # what users of serving engines type
    "--tp": "--tensor-parallel",
    "--pp": "--pipeline-parallel",
    "--dp": "--data-parallel",
    "--ep": "--expert-parallel",
    "--gpu-memory-utilization": "--memory-fraction",
    "--max-model-len": "--context",
}


class OptionsOnce(TyperCommand):
    """A command that knows the words of engines, and refuses an option given twice (the last would count)."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments.

        Raises
        ------
        CapacityError
            Naming the option that was given more than once.
        """
        args = [_own_option(argument) for argument in args]
        _, _, order = self.make_parser(ctx).parse_args(args=list(args))
        for parameter, times in Counter(order).items():
            if times > 1 and not (parameter.multiple or getattr(parameter, "is_flag", False)):
                raise CapacityError(f"{parameter.opts[0]} is given {times} times; give it once")
        return super().parse_args(ctx, args)


def _own_option(argument: str) -> str:
    name, separator, value = argument.partition("=")
    return ENGINE_WORDS.get(name, name) + separator + value


class CommandApp(typer.Typer):
    """Commands of one module."""

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Any], Any]:
        """Register a function as a command, by its own name unless another is given."""
        return super().command(name, cls=OptionsOnce, **settings)
