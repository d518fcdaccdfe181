"""The GPU campaign as one command, rehearsed on the emulation; its limits of time with processes that do nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from capacity.measure import gpu_campaign
from capacity.measure.gpu_campaign import Stage
from capacity.measure.records import read_runs

SLEEP = (sys.executable, "-c", "print('begun', flush=True); import time; time.sleep(60)")
HELLO = (sys.executable, "-c", "print('hello')")
BROKEN = (sys.executable, "-c", "raise SystemExit(3)")


@pytest.fixture
def staged(monkeypatch, tmp_path):
    """Carries out stages given by name, command and limit, and returns the exit code and the folder."""

    def carry_out(*given, total_s=60):
        monkeypatch.setattr(gpu_campaign, "stages", lambda folder, *, quick: [Stage(*one) for one in given])
        return gpu_campaign.carry_out(tmp_path, quick=False, total_s=total_s), tmp_path

    return carry_out


def test_a_stage_that_hangs_or_fails_costs_no_other(staged, capsys):
    code, folder = staged(("hangs", SLEEP, 1.0), ("fails", BROKEN, 30), ("works", HELLO, 30))
    shown = capsys.readouterr().out
    assert code == 1
    assert "hangs: stopped at its limit of 1 s" in shown
    assert "fails: failed with exit code 3" in shown
    assert "works: done" in shown
    assert (folder / "campaign.log").read_text().split() == ["begun", "hello"]


def test_the_comparison_runs_when_the_time_is_spent(staged, capsys, tmp_path):
    output = tmp_path / "comparison.txt"
    code, _ = staged(("late", HELLO, 30), ("comparison", HELLO, 30, None, output), total_s=0)
    assert code == 1
    assert "late: left out, the time is spent" in capsys.readouterr().out
    assert output.read_text() == "hello\n"


def test_records_of_all_stages_come_into_one_file(staged, tmp_path):
    def stage(name):
        path = tmp_path / f"{name}.jsonl"
        return name, (sys.executable, "-c", f"open({str(path)!r}, 'w').write('{name}\\n')"), 30, path

    code, folder = staged(stage("a"), stage("b"), ("c", HELLO, 30, tmp_path / "never.jsonl"))
    assert code == 0
    assert (folder / "runs.jsonl").read_text() == "a\nb\n"
    assert sorted(path.name for path in folder.iterdir()) == ["campaign.log", "runs.jsonl"]


def test_stages_come_in_the_order_of_their_worth(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_campaign, "which", lambda name: f"/bin/{name}")
    found = gpu_campaign.stages(tmp_path, quick=False)
    assert [stage.name for stage in found] == [
        "correctness",
        "ceilings",
        "memory",
        "decode",
        "prefill",
        "memcheck",
        "racecheck",
        "comparison",
    ]
    monkeypatch.setattr(gpu_campaign, "which", lambda name: None)
    assert len(gpu_campaign.stages(tmp_path, quick=False)) == len(found) - 2


def run(arguments, folder, **environment):
    """The command in a process of its own, in ``folder``."""
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=folder, env=os.environ | environment, check=False
    )


def test_a_missing_package_is_one_sentence_though_nothing_is_installed(tmp_path):
    """Without site-packages, as in a bare checkout on a machine that lacks them."""
    bare = {"PYTHONPATH": str(gpu_campaign.ROOT), "PYTHONNOUSERSITE": "1"}
    done = run(["-S", "-m", "capacity.measure.gpu_campaign", "--out", "results"], tmp_path, **bare)
    assert done.returncode == 2
    assert "gpu_campaign: the package pydantic cannot be used (No module named 'pydantic')" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_machine_without_a_device_is_told_so(tmp_path):
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    done = run(["-m", "capacity.measure.gpu_campaign", "--out", "results"], tmp_path)
    assert done.returncode == 2
    assert "gpu_campaign: no CUDA device" in done.stderr
    assert not list(tmp_path.iterdir())


def test_what_else_is_needed_is_a_sentence_each(monkeypatch, tmp_path, capsys, pretend_cuda):
    from capacity.errors import CapacityError
    from capacity.measure import environment, nvrtc

    pretend_cuda.put_in_place(monkeypatch)
    assert gpu_campaign.missing() == []

    def no_compiler():
        raise CapacityError("no CUDA compiler found")

    (tmp_path / "old").write_text("")
    monkeypatch.setattr(nvrtc, "compiler_version", no_compiler)
    monkeypatch.setattr(environment, "code_commit", lambda: "unknown")
    pretend_cuda.FACTS.name = "NVIDIA Unheard-of"
    try:
        assert gpu_campaign.main(["--out", str(tmp_path)]) == 2
    finally:
        pretend_cuda.FACTS.name = "NVIDIA H200"
    told = capsys.readouterr().err.splitlines()
    assert [line.split(":")[1].strip()[:28] for line in told] == [
        "NVIDIA Unheard-of stands for",
        "no CUDA compiler found",
        "git does not tell the commit",
        "--out " + str(tmp_path)[:22],
    ]


@pytest.mark.skipif(shutil.which("g++") is None, reason="the emulation is built with g++")
def test_the_whole_campaign_is_rehearsed_on_the_emulation(monkeypatch, tmp_path, capsys, pretend_cuda):
    """Every stage's own command, run in this process; the tests of the device and its checkers are left to a device."""
    from capacity.cli import run as cli

    def in_this_process(command, limit_s, output):
        if "capacity.cli" not in command:
            return 0
        with pretend_cuda.OnProcessor():
            code = cli(list(command[command.index("capacity.cli") + 1 :]))
        with Path(output).open("a") as file:
            file.write(capsys.readouterr().out)
        return code

    pretend_cuda.put_in_place(monkeypatch)
    monkeypatch.setattr(gpu_campaign, "execute", in_this_process)
    folder = tmp_path / "results"
    code = gpu_campaign.main(["--out", str(folder), "--quick"])
    assert code == 1  # a pretended device reaches no share of the bandwidth of a real one
    kinds = [run.kind for run in read_runs(folder / "runs.jsonl")]
    assert kinds == ["ceiling", "memory", "memory", "decode", "decode", "prefill"]
    assert sorted(path.name for path in folder.iterdir()) == ["campaign.log", "comparison.txt", "runs.jsonl"]
    assert "CUDA: every result agrees with the" in (folder / "comparison.txt").read_text()
    assert all(run.accepted for run in read_runs(folder / "runs.jsonl"))
