"""Docstrings of public functions agree with their signatures, say units and shapes, and show an example."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re

import pytest

import capacity

PACKAGES = ("capacity.api", "capacity.formulas", "capacity.demand", "capacity.estimate")
EXEMPLARY = ("capacity.api", "capacity.formulas")  # which also show an example of each function
KINDS = ("capacity.demand.mixers", "capacity.demand.feed_forwards")  # whose files share their functions
UNIT = re.compile(r"\[[^\]\n]+\]\.?(\s|,|$)")
HEADING = re.compile(r"^\*?(\w+(?:, \w+)*) : (.+)$")
NUMERIC = re.compile(r"\b(ArrayLike|FloatArray|IntArray|ndarray|array_like|int|float)\b")


def modules(package):
    found = importlib.import_module(package)
    yield found
    for info in pkgutil.walk_packages(getattr(found, "__path__", ()), f"{package}."):
        if not info.name.rpartition(".")[2].startswith("_"):
            yield importlib.import_module(info.name)


def public_functions(packages):
    for package in packages:
        for module in modules(package):
            for name, function in inspect.getmembers(module, inspect.isfunction):
                if function.__module__ == module.__name__ and not name.startswith("_"):
                    yield pytest.param(function, id=f"{module.__name__.removeprefix('capacity.')}.{name}")


def offered():
    """The functions of the package's own name, wherever they live."""
    for name in sorted(capacity.__all__):
        if inspect.isfunction(function := getattr(capacity, name)):
            yield pytest.param(function, id=f"capacity.{name}")


OFFERED = list(offered())
ALL, EXAMPLES = list(public_functions(PACKAGES)) + OFFERED, list(public_functions(EXEMPLARY)) + OFFERED


def section(function, name):
    """The text of one section of a docstring; empty where there is none."""
    match = re.search(rf"\n{name}\n-+\n(.*?)(?=\n\w[\w ]*\n-+\n|\Z)", inspect.getdoc(function) or "", re.DOTALL)
    return match[1] if match else ""


def described(function):
    """Names in the Parameters section, in order, each with its type and text."""
    found, names = {}, []
    for line in section(function, "Parameters").splitlines():
        if match := HEADING.match(line):
            names = match[1].split(", ")
            found |= {name: [match[2], ""] for name in names}
        else:
            for name in names:
                found[name][1] += line + "\n"
    return found


def numeric_parameters(function):
    """Names of the parameters that are numbers or arrays of them, by their annotations."""
    parameters = inspect.signature(function).parameters.values()
    return [one.name for one in parameters if NUMERIC.search(str(one.annotation))]


def bare_parameters(function):
    """Numeric parameters that are described without a unit."""
    numeric = numeric_parameters(function)
    return [
        name
        for name, (kind, text) in described(function).items()
        if (name in numeric or NUMERIC.search(kind)) and not UNIT.search(text)
    ]


def is_offered(function):
    """Whether people call it: a function of `api`, or one that the package itself offers."""
    return function.__module__.startswith("capacity.api") or getattr(capacity, function.__name__, None) is function


def must_describe(function):
    """Whether the parameters need a section: all do, but for those of the kinds of layers, described once for all."""
    return bool(inspect.signature(function).parameters) and not is_of_a_kind(function)


def is_of_a_kind(function):
    """Whether it is one of the functions that every kind of mixer or feed-forward has."""
    return function.__module__.rpartition(".")[0] in KINDS and len(numeric_parameters(function)) < 2


@pytest.mark.parametrize("function", ALL)
def test_a_public_function_says_what_it_does_in_one_line(function):
    first = (inspect.getdoc(function) or "").split("\n\n")[0]

    assert re.search(r"(\.|\])$", first.strip()), first
    assert "\n" not in first, f"the summary has more than one line: {first}"


@pytest.mark.parametrize("function", ALL)
def test_described_parameters_are_those_of_the_signature(function):
    names = list(described(function))

    assert not names or sorted(names) == sorted(inspect.signature(function).parameters)


@pytest.mark.parametrize("function", ALL)
def test_described_numbers_have_a_unit(function):
    assert bare_parameters(function) == []


@pytest.mark.parametrize("function", ALL)
def test_a_function_of_arrays_describes_them_or_gives_the_unit_of_its_result(function):
    signature, documentation = inspect.signature(function), inspect.getdoc(function) or ""
    arrays = [one for one in signature.parameters.values() if "Array" in str(one.annotation)]

    assert not arrays or "Bool" in str(signature.return_annotation) or described(function) or UNIT.search(documentation)


@pytest.mark.parametrize("function", ALL)
def test_every_reference_is_cited_and_every_citation_has_a_reference(function):
    documentation = inspect.getdoc(function) or ""

    cited, listed = set(re.findall(r"\[(\d+)\]_", documentation)), set(re.findall(r"\.\. \[(\d+)\] ", documentation))
    assert cited == listed


@pytest.mark.parametrize("function", ALL)
def test_parameters_are_described(function):
    assert not must_describe(function) or described(function)


@pytest.mark.parametrize("function", ALL)
def test_a_numeric_result_has_a_unit(function):
    numeric = NUMERIC.search(str(inspect.signature(function).return_annotation))
    documentation = section(function, "Returns") if must_describe(function) else inspect.getdoc(function) or ""

    assert not numeric or UNIT.search(documentation)


@pytest.mark.parametrize("function", EXAMPLES)
def test_an_example_is_shown(function):
    shown = section(function, "Examples") if must_describe(function) else inspect.getdoc(function) or ""

    assert ">>> " in shown


@pytest.mark.parametrize("function", ALL)
def test_errors_are_listed(function):
    """Of a function that people call always, for it checks what it is given; elsewhere where the function raises."""
    source = inspect.getsource(function)
    given = is_offered(function) and inspect.signature(function).parameters
    raises = given or re.search(r"^ +raise ", source, re.MULTILINE)

    assert not raises or section(function, "Raises")


@pytest.mark.parametrize("function", OFFERED + list(public_functions(["capacity.api"])))
def test_a_function_that_people_call_says_what_it_returns(function):
    assert section(function, "Returns").strip()


@pytest.mark.parametrize("package", KINDS)
def test_every_kind_has_the_functions_that_its_package_describes(package):
    home = importlib.import_module(package)
    signatures = [
        {
            name: [one for one in inspect.signature(function).parameters if one != "tensor_parallel"][1:]
            for name, function in inspect.getmembers(kind, inspect.isfunction)
            if function.__module__ == kind.__name__ and not name.startswith("_")
        }
        for kind in home.KINDS.values()
    ]

    assert len(signatures) >= 3
    assert all(sorted(one) == sorted(signatures[0]) for one in signatures)
    assert [name for name in signatures[0] if f"``{name}``" not in home.__doc__] == []


@pytest.mark.parametrize("function", list(public_functions(["capacity.api"])))
def test_a_promised_function_names_its_source(function):
    assert ".. [1] " in section(function, "References")


def test_everything_public_is_read():
    read = {one.id for one in ALL}

    loaders = [name for name in capacity.__all__ if name.startswith("load_") or name.endswith("_ids")]
    assert len(loaders) == 10
    assert [name for name in loaders if f"capacity.{name}" not in read] == []
    for name in ("api.times.tpot", "formulas.roofline.bound_s", "demand.passes.work", "estimate.memory.max_batch"):
        assert name in read


DOCUMENTED = """X.

Parameters
----------
a, b : int
    Two. [B]
c : float
    One{unit}.

Returns
-------
float
    Sum. [B]
"""


def a_function(documentation):
    def function(a: int, b: int, c: float) -> float: ...

    function.__doc__ = documentation
    return function


def test_the_reader_of_docstrings_reads_names_and_sections():
    function = a_function(DOCUMENTED.format(unit=" [s]"))

    assert list(described(function)) == numeric_parameters(function) == ["a", "b", "c"]
    assert section(function, "Returns").strip().endswith("[B]")
    assert section(function, "Examples") == ""


def test_a_number_without_a_unit_is_found():
    assert bare_parameters(a_function(DOCUMENTED.format(unit=""))) == ["c"]
    assert bare_parameters(a_function(DOCUMENTED.format(unit=" [s]"))) == []
