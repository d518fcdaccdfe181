"""Docstrings of the estimators agree with their signatures and say units."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import capacity.estimators
import pytest

UNIT = re.compile(r"\[[^\]]+\]\.?(\s|$)")
PARAMETER = re.compile(r"^(\w+(?:, \w+)*) :")
# Words for things that are no quantity: specs, names, rules.
NOT_A_QUANTITY = re.compile(r": (str|bool|tuple of str|\w*Spec|Encoder|Deployment|Mapping|dict|callable)")


def public_functions():
    for info in pkgutil.iter_modules(capacity.estimators.__path__):
        module = importlib.import_module(f"capacity.estimators.{info.name}")
        for name, function in inspect.getmembers(module, inspect.isfunction):
            if function.__module__ == module.__name__ and not name.startswith("_"):
                yield pytest.param(function, id=f"{info.name}.{name}")


FUNCTIONS = list(public_functions())


def described(function):
    """Names in the Parameters section, in order, each with its heading and text."""
    section = re.search(r"\nParameters\n-+\n(.*?)(?=\n\w+\n-+\n|\Z)", inspect.getdoc(function) or "", re.DOTALL)
    found, heading, names = {}, "", []
    for line in (section[1] if section else "").splitlines():
        match = PARAMETER.match(line)
        if match:
            heading, names = line, match[1].split(", ")
            found |= {name: [heading, ""] for name in names}
        for name in names:
            found[name][1] += line + "\n"
    return found


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_public_function_says_what_it_does_in_one_line(function):
    first = (inspect.getdoc(function) or "").split("\n\n")[0]

    assert first.strip().endswith((".", "]")), first


@pytest.mark.parametrize("function", FUNCTIONS)
def test_described_parameters_are_those_of_the_signature(function):
    names = list(described(function))

    assert not names or sorted(names) == sorted(inspect.signature(function).parameters)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_described_parameters_say_their_unit(function):
    bare = [
        name
        for name, (heading, text) in described(function).items()
        if not UNIT.search(text) and not NOT_A_QUANTITY.search(heading)
    ]

    assert bare == []


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_function_of_numbers_describes_them_or_gives_the_unit_of_its_result(function):
    documentation = inspect.getdoc(function) or ""
    numbers = [p for p in inspect.signature(function).parameters.values() if "ArrayLike" in str(p.annotation)]

    assert not numbers or described(function) or UNIT.search(documentation)


def test_formulas_stand_beside_a_published_source_somewhere():
    """The roofline, the one formula everything rests on, cites its paper."""
    from capacity.formulas import roofline

    assert "Williams" in (Path(roofline.__file__).read_text())


@pytest.mark.parametrize(
    ("documentation", "names"),
    [
        ("X.\n\nParameters\n----------\na, b : int\n    Two. [B]\nc : float\n    One. [s]\n", ["a", "b", "c"]),
        ("X.\n\nReturns\n-------\nfloat\n", []),
    ],
)
def test_the_reader_of_docstrings_reads(documentation, names):
    def function():
        pass

    function.__doc__ = documentation

    assert list(described(function)) == names
