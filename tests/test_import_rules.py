"""The import rules hold, and a planted breach of each is found."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PLANTED = [
    ("one-way", "specs/model.py", "import capacity.estimate.time"),
    ("one-way", "units.py", "from capacity.inputs import whole"),
    (
        "no-circles",
        "specs/hardware_tables.py",
        "if TYPE_CHECKING:\n    import capacity.specs.hardware",
    ),
    ("measure-apart", "measure/operators.py", "import capacity.formulas.roofline"),
    ("formulas-pure", "formulas/roofline.py", "import capacity.units"),
    ("formulas-pure", "inputs.py", "import capacity.files.package_data"),
    ("torch-in-measure", "formulas/latency.py", "import torch"),
    ("torch-in-observation", "validation/compare.py", "import torch"),
    ("closed-forms-light", "estimate/time.py", "import pandas"),
]


def lint(folder, contract=None):
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()"]
    command += ["--config", str(folder / "pyproject.toml"), "--no-cache"]
    command += ["--contract", contract] if contract else []
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)


def test_the_import_rules_hold():
    checked = lint(ROOT)

    assert checked.returncode == 0, checked.stdout[-2000:]


def test_every_rule_has_a_planted_breach():
    rules = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]

    assert {rule["id"] for rule in rules} == {contract for contract, _, _ in PLANTED}


@pytest.mark.parametrize(("contract", "file", "statement"), PLANTED)
def test_a_planted_breach_is_found(tmp_path, contract, file, statement):
    shutil.copytree(ROOT / "capacity", tmp_path / "capacity", ignore=shutil.ignore_patterns("data", "__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    with (tmp_path / "capacity" / file).open("a") as module:
        module.write(f"\n{statement}\n")

    checked = lint(tmp_path, contract)

    assert checked.returncode == 1
    assert "BROKEN" in checked.stdout
