"""The import rules hold, and a planted breach of each is found."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PLANTED = {
    "one-way": ("specs/model.py", "import capacity.estimate.time"),
    "measure-apart": ("measure/operators.py", "import capacity.formulas.roofline"),
    "estimators-pure": ("estimators/roofline.py", "import capacity.catalog"),
    "torch-in-measure": ("estimators/latency.py", "import torch"),
    "estimators-light": ("evaluate.py", "import pandas"),
}


def lint(folder, contract=None):
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()"]
    command += ["--config", str(folder / "pyproject.toml"), "--no-cache"]
    command += ["--contract", contract] if contract else []
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)


def test_the_import_rules_hold():
    done = lint(ROOT)

    assert done.returncode == 0, done.stdout[-2000:]


def test_every_rule_has_a_planted_breach():
    rules = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]

    assert {rule["id"] for rule in rules} == set(PLANTED)


@pytest.mark.parametrize("contract", PLANTED)
def test_a_planted_breach_is_found(tmp_path, contract):
    file, statement = PLANTED[contract]
    shutil.copytree(ROOT / "capacity", tmp_path / "capacity", ignore=shutil.ignore_patterns("data", "__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    with (tmp_path / "capacity" / file).open("a") as module:
        module.write(f"\n{statement}\n")

    done = lint(tmp_path, contract)

    assert done.returncode == 1
    assert "BROKEN" in done.stdout
