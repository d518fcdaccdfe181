"""`capacity measure`: what it refuses, and a quick look that writes its records."""

from __future__ import annotations

import json

import pytest

from capacity.cli import run


@pytest.mark.parametrize("arguments", [["everything"], ["decode", "--device", "abacus"]])
def test_measure_refuses_what_it_does_not_know(capsys, arguments):
    assert run(["measure", *arguments]) == 2
    assert "unknown" in capsys.readouterr().err


def test_measure_writes_records_of_a_quick_look(capsys, tmp_path):
    pytest.importorskip("torch")
    file = tmp_path / "runs.jsonl"

    assert run(["measure", "ceilings", "--device", "cpu", "--quick", "--out", str(file)]) == 0

    records = [json.loads(line) for line in file.read_text().splitlines()]
    assert records
    assert str(file) in capsys.readouterr().out.replace("\n", "")
