"""What README.md shows works as shown, and its accuracy table is fresh."""

from __future__ import annotations

import re
import runpy
import shlex
from pathlib import Path

import pytest

from capacity.cli import run

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^(?:    )?\$ capacity (.+)$", README, re.MULTILINE)
PYTHON = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.mark.parametrize("command", dict.fromkeys(COMMANDS))
def test_a_command_of_the_readme_runs(command, capsys):
    assert run(shlex.split(command)) == 0
    assert capsys.readouterr().out


@pytest.mark.parametrize("block", PYTHON)
def test_python_of_the_readme_runs(block, capsys):
    exec(compile(block, "README.md", "exec"), {})

    assert "fits" in capsys.readouterr().out


def test_the_readme_has_an_example_of_each_kind():
    assert len(COMMANDS) >= 2
    assert len(PYTHON) >= 1
    assert (ROOT / "notebooks" / "quickstart.ipynb").exists()


def test_make_targets_of_the_readme_exist():
    targets = re.findall(r"^    make (\w+)", README, re.MULTILINE)
    makefile = (ROOT / "Makefile").read_text()

    assert targets == ["demo", "test"]
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)


@pytest.mark.parametrize("link", re.findall(r"\]\(([^)#]+)\)", README))
def test_links_of_the_readme_lead_somewhere(link):
    assert link.startswith("http") or (ROOT / link).exists()


def test_the_accuracy_table_is_fresh():
    accuracy = runpy.run_path(str(ROOT / "docs" / "accuracy.py"))
    fresh = accuracy["table"]()

    assert accuracy["written"](README) == fresh, "run: python docs/accuracy.py --write"
    assert " 0 wrong" in fresh
