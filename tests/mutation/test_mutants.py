"""The mutation script on a package of a few lines: what it finds, what it draws, and what it says of its tests."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("mutants.py")
MODULE = '''"""A toy; 1 + 1 in a docstring is text."""

def area(width: "1 + 1", height):
    return width * height

def unseen(width):
    return width + 2

def label(width):
    return "w = " + f"{width + 1}"

def blocks(tokens, size=4, *, spare=False):
    list(zip([], [], strict=True))
    return -(-tokens // size) + (1 if spare and not tokens % size == 0 else 0)
'''
TESTS = """from capacity.formulas import toy

def test_area():
    assert toy.area(3, 4) == 12

def test_that_fails_as_it_is():
    assert toy.blocks(1) == 7
"""
FILE = "capacity/formulas/toy.py"


def load():
    spec = importlib.util.spec_from_file_location("mutants_under_test", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


mutants = load()


@pytest.fixture
def toy(tmp_path):
    """A tree with one module, and one test of one of its functions."""
    root = tmp_path / "tree"
    files = {"capacity/__init__.py": "", "capacity/formulas/__init__.py": "", FILE: MODULE}
    files |= {"tests/formulas/test_toy.py": TESTS, "pyproject.toml": "[tool.pytest.ini_options]\n"}
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def changes(root, file=FILE):
    return {(mutant.before, mutant.after) for mutant in mutants.mutants_of(root, file)}


def one(root, after):
    return next(mutant for mutant in mutants.mutants_of(root, FILE) if mutant.after == after)


def test_each_operator_constant_and_default_is_changed_and_no_text_is(toy):
    found = changes(toy)
    line = "return -(-tokens // size) + (1 if spare and not tokens % size == 0 else 0)"

    assert {after for before, after in found if before == "return width * height"} == {"return width / height"}
    assert {after for before, after in found if before == line} == {
        "return (-tokens // size) + (1 if spare and not tokens % size == 0 else 0)",
        "return -(tokens // size) + (1 if spare and not tokens % size == 0 else 0)",
        "return (tokens // size) + (1 if spare and not tokens % size == 0 else 0)",
        "return -(-tokens / size) + (1 if spare and not tokens % size == 0 else 0)",
        "return -(-tokens * size) + (1 if spare and not tokens % size == 0 else 0)",
        "return -(-tokens // size) - (1 if spare and not tokens % size == 0 else 0)",
        "return -(-tokens // size) + (2 if spare and not tokens % size == 0 else 0)",
        "return -(-tokens // size) + (1 if spare or not tokens % size == 0 else 0)",
        "return -(-tokens // size) + (1 if spare and tokens % size == 0 else 0)",
        "return -(-tokens // size) + (1 if spare and not tokens * size == 0 else 0)",
        "return -(-tokens // size) + (1 if spare and not tokens % size != 0 else 0)",
        "return -(-tokens // size) + (1 if spare and not tokens % size == 1 else 0)",
        "return -(-tokens // size) + (1 if spare and not tokens % size == 0 else 1)",
    }
    assert ("def blocks(tokens, size=4, *, spare=False):", "def blocks(tokens, size=4, *, spare=True):") in found
    assert not any("toy" in before or "width:" in before or "w = " in before or "zip" in before for before, _ in found)


def test_a_seed_draws_the_same_mutants_again_and_another_draws_others():
    found = mutants.candidates(mutants.ROOT, ["formulas"])
    first, again, other = (mutants.draw(found, 12, seed) for seed in (5, 5, 6))

    assert first == again
    assert first != other
    assert len(first) == 12


def test_a_draw_takes_at_most_three_mutants_of_a_file_and_one_of_a_place():
    drawn = mutants.draw(mutants.candidates(mutants.ROOT, ["formulas"]), 500, 1)
    files = [mutant.file for mutant in drawn]

    assert max(files.count(file) for file in files) == 3
    assert len({(mutant.file, mutant.start) for mutant in drawn}) == len(drawn)


def test_a_module_with_little_to_change_is_left_out(toy):
    assert set(mutants.candidates(toy, ["formulas"])) == {FILE}

    (toy / FILE).write_text("def area(width, height):\n    return width * height\n")
    assert mutants.candidates(toy, ["formulas"]) == {}


def test_a_mutant_that_a_test_sees_is_killed_and_one_that_none_sees_lives(toy, tmp_path, capsys):
    copies = mutants.Copies(toy, tmp_path / "copies")
    stages = mutants.stages_of(toy, FILE)

    assert stages == [["tests/formulas/test_toy.py"], ["tests/formulas"]]
    assert copies.kills(one(toy, "return width / height"), stages[:1])
    assert not copies.kills(one(toy, "return width - 2"), stages[:1])
    assert (toy / FILE).read_text() == MODULE
    assert "test_toy.py::test_that_fails_as_it_is" in capsys.readouterr().out


def test_a_test_that_never_ends_is_stopped(toy, tmp_path):
    copies = mutants.Copies(toy, tmp_path / "copies")
    (copies.clean / "tests/formulas/test_toy.py").write_text("import time\n\ndef test_long():\n    time.sleep(60)\n")

    assert mutants.run_tests(copies.clean, ["tests"], 2)[0] == 124


def test_tests_of_another_package_than_the_copy_are_an_error(toy, tmp_path):
    copies = mutants.Copies(toy, tmp_path / "copies")
    elsewhere = f"import sys\nsys.path.insert(0, {str(toy)!r})\nimport capacity\n\ndef test_nothing():\n    pass\n"
    (copies.clean / "tests/formulas/test_toy.py").write_text(elsewhere)

    with pytest.raises(RuntimeError, match="not the mutated copy"):
        mutants.run_tests(copies.clean, ["tests"], 60)


def test_an_equivalent_mutant_needs_a_reason(tmp_path):
    rows = '[[equivalent]]\nfile = "a.py"\nbefore = "x"\nafter = "y"\nreason = "{}"\n'
    (tmp_path / "equivalent.toml").write_text(rows.format("because") + rows.replace('"x"', '"z"').format(""))

    assert mutants.equivalents(tmp_path / "equivalent.toml") == {("a.py", "x", "y")}
    assert mutants.equivalents(tmp_path / "missing.toml") == set()


def test_every_equivalent_mutant_still_exists():
    listed = mutants.equivalents(SCRIPT.with_name("equivalent.toml"))
    present = {(m.file, m.before, m.after) for file, _, _ in listed for m in mutants.mutants_of(mutants.ROOT, file)}

    assert listed <= present
