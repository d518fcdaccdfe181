"""The GPU campaign as one command, rehearsed on the emulation; its time limits with processes that do nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from capacity.catalog.runs import read_runs
from capacity.measure.campaigns import gpu_campaign
from capacity.measure.campaigns.gpu_campaign import Stage

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


def test_the_comparison_runs_when_no_time_is_left(staged, capsys, tmp_path):
    output = tmp_path / "comparison.txt"
    code, _ = staged(("late", HELLO, 30), ("comparison", HELLO, 30, None, output), total_s=0)
    assert code == 1
    assert "late: skipped, no time left" in capsys.readouterr().out
    assert output.read_text() == "hello\n"


def test_records_of_all_stages_are_joined_in_one_file(staged, tmp_path):
    def stage(name):
        path = tmp_path / f"{name}.jsonl"
        return name, (sys.executable, "-c", f"open({str(path)!r}, 'w').write('{name}\\n')"), 30, path

    code, folder = staged(stage("a"), stage("b"), ("c", HELLO, 30, tmp_path / "never.jsonl"))
    assert code == 0
    assert (folder / "runs.jsonl").read_text() == "a\nb\n"
    assert sorted(path.name for path in folder.iterdir()) == ["campaign.log", "runs.jsonl"]


def test_the_most_valuable_stages_come_first(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_campaign, "which", lambda name: f"/bin/{name}")
    planned = gpu_campaign.stages(tmp_path, quick=False)
    assert [stage.name for stage in planned] == [
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
    assert len(gpu_campaign.stages(tmp_path, quick=False)) == len(planned) - 2


def run(arguments, folder, **environment):
    """The command in a process of its own, in ``folder``."""
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=folder, env=os.environ | environment, check=False
    )


def test_a_missing_package_is_one_sentence_though_nothing_is_installed(tmp_path):
    """Without site-packages, as in a bare checkout on a machine that lacks them."""
    bare = {"PYTHONPATH": str(gpu_campaign.ROOT), "PYTHONNOUSERSITE": "1"}
    done = run(["-S", "-m", "capacity.measure.campaigns.gpu_campaign", "--out", "results"], tmp_path, **bare)
    assert done.returncode == 2
    assert "gpu_campaign: the package pydantic cannot be used (No module named 'pydantic')" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_machine_without_a_device_is_refused(tmp_path):
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    done = run(["-m", "capacity.measure.campaigns.gpu_campaign", "--out", "results"], tmp_path)
    assert done.returncode == 2
    assert "gpu_campaign: no CUDA device" in done.stderr
    assert not list(tmp_path.iterdir())


def test_what_else_is_needed_is_a_sentence_each(monkeypatch, tmp_path, capsys, pretend_cuda):
    from capacity.errors import CapacityError
    from capacity.measure.decoder.cuda import nvrtc
    from capacity.measure.runs import environment

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
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(":")[1].strip()[:28] for line in lines] == [
        "NVIDIA Unheard-of has no par",
        "no CUDA compiler found",
        "the commit of this code is u",
        "--out " + str(tmp_path)[:22],
    ]


@pytest.mark.skipif(shutil.which("g++") is None, reason="the emulation is built with g++")
def test_the_whole_campaign_is_rehearsed_on_the_emulation(monkeypatch, tmp_path, capsys, pretend_cuda):
    """Every stage's own command, run in this process; the tests of the device and its checkers are left to a device."""
    from capacity.cli import run as cli

    def in_this_process(command, limit_s, output):
        code = 0
        if "capacity.cli" in command:
            with pretend_cuda.OnProcessor():
                code = cli(list(command[command.index("capacity.cli") + 1 :]))
        with Path(output).open("a") as file:
            file.write(capsys.readouterr().out)
        return code

    pretend_cuda.put_in_place(monkeypatch)
    monkeypatch.setattr(gpu_campaign, "execute", in_this_process)
    folder = tmp_path / "results"
    code = gpu_campaign.main(["--out", str(folder)])
    assert code == 1  # the stand-in reaches next to nothing of the bandwidth of a real device
    assert "failed" not in (folder / "campaign.log").read_text()
    assert sorted(path.name for path in folder.iterdir()) == ["campaign.log", "comparison.txt", "runs.jsonl"]
    assert "CUDA: every result agrees with the" in (folder / "comparison.txt").read_text()
    runs = read_runs(folder / "runs.jsonl")
    assert all(run.accepted for run in runs)
    assert [run.kind for run in runs] == ["ceiling", *["memory"] * 2, *["decode"] * 3, *["prefill"] * 2]
    says_on_what_it_was_made(runs[3])
    ceilings_hold_reads_copies_and_a_peak_for_each_format(runs[0], pretend_cuda)
    memory_comes_in_two_records_that_the_estimates_meet(*runs[1:3], pretend_cuda)
    decode_runs_are_checked_and_say_how_they_were_cut(runs[3:6])
    for run in runs[6:]:  # prefills too are checked before they are timed
        assert 0 < run.quality.relative_error < run.quality.tolerance


def says_on_what_it_was_made(run):
    assert (run.source, run.code_commit) == ("gpu", "rehearsal")
    assert (run.machine.device_name, run.machine.part) == ("NVIDIA H200", "nvidia-h200-sxm5-141gb")
    assert (run.machine.driver, run.machine.ecc, run.machine.power_limit_w) == ("580.1", True, 700)
    assert dict(run.machine.clock_hz_before) == {"sm": 1.98e9, "memory": 3.201e9}
    assert run.software.backend == run.software.compiler.split()[0]


def ceilings_hold_reads_copies_and_a_peak_for_each_format(run, pretend_cuda):
    rates = {"read_bytes_per_s", "copy_bytes_per_s", "host_to_device_bytes_per_s", "device_to_host_bytes_per_s"}
    peaks = {f"{name}_gemm_flop_per_s" for name in ("bf16", "fp16", "fp32", "int8")}
    assert rates | peaks | {"eager_launch_s", "graph_launch_s"} <= set(run.values)
    assert run.values["context_bytes"] == pretend_cuda.TOTAL_BYTES - pretend_cuda.FREE_BYTES
    assert all(value > 0 for value in run.values.values())


def memory_comes_in_two_records_that_the_estimates_meet(held, arena, pretend_cuda):
    from capacity.validation.reference import compare

    found = {pair.group: pair for pair in compare(held)}
    assert set(found) == {"weights", "kv cache", "kv cache in blocks", "activation peak"}
    assert all(pair.predicted == pair.measured for pair in found.values())
    assert found["activation peak"].measured == pretend_cuda.PEAK_BYTES
    # Two sequences of 20 tokens, 2 layers, keys and values of 2 x 16 elements in 2 bytes; blocks of 16 tokens.
    assert (held.memory.kv_bytes, held.memory.kv_allocated_bytes) == (2 * 20 * 2 * 2 * 32 * 2, 2 * 32 * 2 * 2 * 32 * 2)
    assert held.memory.context_bytes is None  # is in the micro-benchmarks
    assert {pair.group for pair in compare(arena)} == {"weights", "max batch"}


def decode_runs_are_checked_and_say_how_they_were_cut(runs):
    plain, narrow, int8 = runs
    for run in runs:
        assert run.quality.relative_error < run.quality.tolerance
        assert run.quality.argmax_match
        assert run.quality.nan_count == 0
        assert (run.clock, run.software.graph, len(run.samples_s)) == ("cuda_event", True, 3)
    assert [run.workload.batch for run in runs] == [1, 5, 1]  # int8 up to batch 4 only
    assert [run.software.gemm_backend for run in (plain, narrow)] == ["simt", "torch.mm"]
    assert {"QKV_PAIRS", "QKV_SPLIT", "MATRIX_THREADS", "DOWN_STAGED", "QKV_BLOCKS"} <= set(int8.software.launch)
    assert plain.software.launch["BATCH"] == 1
    assert set(plain.operator_s) == {"embed", "qkv", "attention", "output", "gate_up", "down", "head", "argmax"}
