"""The committed runs against the estimates, the fit against constants that are known, and what a missed target does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from capacity.catalog.runs import write_runs
from capacity.cli import run as command
from capacity.errors import CapacityError
from capacity.validation import reference
from capacity.validation.fit_reference import Terms, fit, search, stacked
from capacity.validation.fit_reference import main as fit_main

RUNS = Path(reference.__file__).parents[1] / "data" / "runs"


@pytest.fixture(scope="module")
def checked():
    return reference.validate()


def test_committed_runs_keep_every_target_of_a_cpu(checked):
    """Held out by model: mean within 10 %, worst within 20 %; bounds hold; memory to the byte; bands hold."""
    assert [target.name for target in checked.targets if target.kept is False] == []
    assert {target.kept for target in checked.targets if target.name.startswith("CPU")} == {True}
    assert command(["validate"]) == 0


def test_shipped_constants_are_what_the_fit_of_the_committed_runs_prints(capsys):
    """Nobody edits a constant by hand."""
    (runs,) = RUNS.glob("*.jsonl")
    fit_main([str(runs)])
    printed = capsys.readouterr().out
    assert printed == (RUNS.parent / "calibrations" / f"reference-{runs.stem}.toml").read_text(encoding="utf-8")


def test_two_models_are_too_few_to_fit():
    runs = [run for run in reference.shipped_runs() if run.kind == "decode" and "200m" not in run.workload.model]
    with pytest.raises(CapacityError, match="2 models were measured; a fit needs 3"):
        fit(runs, weights="bf16", part=runs[0].machine.part, name="x")


def test_devices_without_runs_are_blank_and_never_counted_as_kept(checked):
    assert all(row["measured, CUDA"] == "no run yet" for row in checked.matrix.values())
    assert {t.kept for t in checked.targets if t.name.startswith("CUDA")} == {None}


def test_models_of_the_fit_take_no_part_in_its_check(checked):
    names = {pair.name.split(",")[0] for pair in checked.pairs if pair.group.startswith("TPOT estimate")}
    assert names
    assert not any(name.startswith(("cpu-70m", "cpu-500m")) for name in names)


def test_a_bound_above_a_measurement_is_a_missed_target(tmp_path, capsys):
    """The same runs, a tenth as long: the bounds now lie above them."""
    run = next(run for run in reference.shipped_runs() if run.kind == "decode" and run.workload.batch == 1)
    faster = run.model_copy(update={"samples_s": tuple(s / 10 for s in run.samples_s), "run_id": ""})
    path = write_runs(tmp_path / "runs.jsonl", [faster])
    assert command(["validate", "--runs", str(path)]) == 1
    assert "MISSED" in capsys.readouterr().out


def test_an_activation_that_differs_by_one_byte_is_a_missed_target(tmp_path):
    run = next(run for run in reference.shipped_runs() if run.memory and run.memory.activation_peak_bytes)
    held = run.memory.model_copy(update={"activation_peak_bytes": run.memory.activation_peak_bytes + 1})
    path = write_runs(tmp_path / "runs.jsonl", [run.model_copy(update={"memory": held, "run_id": ""})])
    assert not reference.validate(path).passed


def test_the_search_finds_the_constants_that_made_the_times():
    rng = np.random.default_rng(5)
    true = {"matrix bytes": 0.7, "attention bytes": 0.3, "FLOP": 0.6, "launch": 1e-4}
    attention = np.array([False, True, False, False])
    made = [
        Terms(rng.uniform(1e-3, 1e-2, 4), rng.uniform(1e-4, 2e-2, 4), attention, rng.integers(50, 300))
        for _ in range(60)
    ]
    found = search(stacked(made), np.array([item.seconds(true) for item in made]))
    assert {name: pytest.approx(value, rel=0.05) for name, value in true.items()} == found


def test_a_file_without_runs_is_refused(tmp_path):
    path = tmp_path / "runs.jsonl"
    path.write_text("\n")
    with pytest.raises(CapacityError, match="no measured runs"):
        reference.validate(path)
