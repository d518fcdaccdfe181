"""Records of runs: complete files, checked hashes, acceptance that follows from the samples."""

from __future__ import annotations

import json

import pytest

from capacity.catalog.runs import read_runs, shipped_runs, write_runs
from capacity.errors import CapacityError, SpecError
from capacity.specs.measured_run import MeasuredRun

BASE = {
    "kind": "ceiling",
    "source": "cpu",
    "created_utc": "2026-11-30T00:00:00+00:00",
    "code_commit": "test",
    "kernel_sha256": "0" * 64,
    "machine": {"device_name": "a", "cpu_model": "a", "threads": 1, "load_before": 0.1, "load_after": 0.2},
    "software": {"python": "3", "numpy": "2", "system": "s", "compiler": "c", "backend": "cpu_ref"},
    "values": {"read_bytes_per_s": 1e10},
}


def made(read_bytes_per_s):
    """A sealed run of a micro-benchmark with this rate."""
    return MeasuredRun.parse(BASE | {"values": {"read_bytes_per_s": read_bytes_per_s}}, "test").sealed()


def test_a_run_comes_back_as_it_was_written(tmp_path):
    runs = made(1e10), made(2e10)
    path = write_runs(tmp_path / "runs.jsonl", runs)
    assert read_runs(path) == runs
    assert [p.name for p in tmp_path.iterdir()] == ["runs.jsonl"]


def test_a_run_that_comes_twice_is_refused(tmp_path, capsys):
    """All committed runs twice over are not twice the evidence."""
    from capacity.cli import run as cli

    path = write_runs(tmp_path / "runs.jsonl", [made(1e10), made(2e10), made(1e10)])
    with pytest.raises(SpecError, match=r"runs\.jsonl line 3: run [0-9a-f]{12} is the same as on line 1"):
        read_runs(path)
    write_runs(path, [*shipped_runs(), *shipped_runs()])
    assert cli(["validate", "--runs", str(path)]) == 2
    assert f"line {len(shipped_runs()) + 1}: run " in capsys.readouterr().err


def test_a_run_is_committed_once():
    assert len({run.run_id for run in shipped_runs()}) == len(shipped_runs())


def test_nothing_is_left_of_a_file_that_cannot_be_written(tmp_path):
    (tmp_path / "runs.jsonl" / "in the way").mkdir(parents=True)
    with pytest.raises(CapacityError, match=r"runs\.jsonl: cannot be written \(Is a directory\)"):
        write_runs(tmp_path / "runs.jsonl", [made(1e10)])
    assert [p.name for p in tmp_path.iterdir()] == ["runs.jsonl"]


def test_a_record_that_was_changed_after_the_run_is_refused(tmp_path):
    path = write_runs(tmp_path / "runs.jsonl", [MeasuredRun.parse(BASE, "test")])
    record = json.loads(path.read_text())
    record["values"]["read_bytes_per_s"] = 2e10
    path.write_text(json.dumps(record))
    with pytest.raises(SpecError, match=r"runs\.jsonl line 1.*changed after the run"):
        read_runs(path)


def test_a_record_without_its_hash_is_refused(tmp_path):
    path = write_runs(tmp_path / "runs.jsonl", [MeasuredRun.parse(BASE, "test")])
    record = json.loads(path.read_text())
    del record["run_id"]
    path.write_text(json.dumps(record))
    with pytest.raises(SpecError, match=r"runs\.jsonl line 1: run_id is missing"):
        read_runs(path)


def test_a_restless_run_is_rejected_with_its_reason():
    timed = BASE | {"kind": "prefill", "samples_s": [1.0, 1.3, 1.4]}
    workload = {"model": "m", "weights": "bf16", "kv_cache": "bf16", "activations": "bf16", "batch": 1}
    run = MeasuredRun.parse(timed | {"workload": workload}, "test")
    assert not run.accepted
    assert "1.300 is above 1.25" in str(run.reject_reason)
    calm = run.model_copy(update={"samples_s": (1.0, 1.24, 9.0)})
    assert calm.accepted
    assert (calm.min_s, calm.median_s) == (1.0, 1.24)


def test_a_run_that_is_far_from_the_oracle_is_rejected():
    quality = {"relative_error": 1e-3, "argmax_match": True, "tolerance": 1e-5}
    run = MeasuredRun.parse(BASE | {"quality": quality}, "test")
    assert "above 1.0e-05" in str(run.reject_reason)


@pytest.mark.parametrize("line", ["{", "[1]", "3", '{"kind": "decode"}', "{" * 5000, '{"kind": "dream"}'])
def test_a_line_that_is_no_run_is_refused_with_its_number(tmp_path, line):
    path = tmp_path / "runs.jsonl"
    path.write_text(line)
    with pytest.raises(SpecError, match=r"runs\.jsonl line 1"):
        read_runs(path)


def test_a_decode_run_without_samples_is_refused():
    with pytest.raises(SpecError, match="a decode run needs workload, counts, samples_s, quality"):
        MeasuredRun.parse(BASE | {"kind": "decode"}, "test")


def test_rates_of_a_run_follow_from_its_counts_and_samples():
    """2 sequences, 3e9 bytes of weights and 1e9 of cache, a median of 0.5 s: 8 GB/s and 4 tokens per second."""
    run = next(run for run in shipped_runs() if run.kind == "decode")
    counts = run.counts.model_copy(update={"weight_bytes": 3 * 10**9, "kv_read_bytes": 10**9})
    workload = run.workload.model_copy(update={"batch": 2})
    made = run.model_copy(update={"counts": counts, "workload": workload, "samples_s": (0.4, 0.5, 1.0)})
    assert made.read_bytes_per_s == 8e9
    assert made.tokens_per_s == 4
    assert made.p95_s == pytest.approx(0.95)
