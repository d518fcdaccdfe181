"""Records of runs: whole files, checked hashes, acceptance that follows from the samples."""

from __future__ import annotations

import json
import os

import pytest

from capacity.catalog.runs import read_runs, write_runs
from capacity.errors import CapacityError, SpecError
from capacity.measure import campaign
from capacity.specs.measured_run import MeasuredRun
from capacity.validation.reference import shipped_runs

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
    """A sealed run of a micro-benchmark that found this rate."""
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
    with pytest.raises(SpecError, match=r"runs\.jsonl line 3: run [0-9a-f]{12} is that of line 1 too"):
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


def test_a_campaign_that_is_cut_short_keeps_the_runs_it_made(tmp_path, monkeypatch):
    run = MeasuredRun.parse(BASE, "test")

    def killed():
        yield run
        raise KeyboardInterrupt

    monkeypatch.setattr(campaign, "cpu_planned", lambda kind, *, quick: [("first", killed)])
    with pytest.raises(KeyboardInterrupt):
        campaign.run("all", "cpu", out=tmp_path / "runs.jsonl")
    assert read_runs(tmp_path / "runs.jsonl") == (run.sealed(),)


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


@pytest.fixture
def campaign_of(monkeypatch, tmp_path):
    """A CPU campaign of the makers given by name, written to runs.jsonl."""

    def make(makers, **options):
        monkeypatch.setattr(campaign, "cpu_planned", lambda kind, *, quick: list(makers.items()))
        return campaign.run("all", "cpu", out=tmp_path / "runs.jsonl", **options)

    return make


def test_a_maker_that_fails_is_named_and_the_campaign_goes_on(campaign_of, capsys):
    runs = made(1e10), made(2e10), made(3e10)

    def broken():
        yield runs[1]
        raise RuntimeError("CUDA out of memory\nand more")

    third = iter(["x left out", runs[2]])
    done = campaign_of({"first": lambda: iter(runs[:1]), "second": broken, "third": lambda: third})
    assert done.failed == ("second failed: RuntimeError: CUDA out of memory",)
    assert read_runs(done.path) == runs
    assert done.runs == 3
    shown = capsys.readouterr().out
    assert "second failed: RuntimeError: CUDA out of memory" in shown
    assert "x left out" in shown


def test_a_campaign_stops_when_the_device_no_longer_answers(tmp_path):
    def broken():
        raise RuntimeError("an illegal memory access was encountered")
        yield

    makers = [("first", broken), ("second", broken)]
    done = campaign._written_with_progress(tmp_path / "runs.jsonl", makers, lambda: False)
    assert [text.split(":")[0] for text in done.failed] == [
        "first failed",
        "the device no longer answers, so the runs after that were not made",
    ]
    assert not list(tmp_path.iterdir())


def test_a_failed_campaign_ends_with_exit_code_1(campaign_of, monkeypatch, tmp_path, capsys):
    from capacity.cli import run as cli

    def broken():
        raise ValueError("no")
        yield

    for makers, code, said in (
        ({"a": broken}, 1, "nothing was written"),
        ({"a": lambda: iter([MeasuredRun.parse(BASE, "test")])}, 0, "wrote "),
    ):
        monkeypatch.setattr(campaign, "cpu_planned", lambda kind, *, quick, makers=makers: list(makers.items()))
        assert cli(["measure", "all", "--out", str(tmp_path / f"{code}.jsonl")]) == code
        assert said in capsys.readouterr().out


def test_a_file_that_holds_something_is_not_overwritten(campaign_of, tmp_path):
    path = tmp_path / "runs.jsonl"
    path.write_text("precious")
    with pytest.raises(CapacityError, match=r"--out .*runs\.jsonl: this file holds something already"):
        campaign_of({})
    assert path.read_text() == "precious"
    path.write_text("")  # as mktemp leaves it
    assert campaign_of({"a": lambda: iter([MeasuredRun.parse(BASE, "test")])}).runs == 1
    with pytest.raises(CapacityError, match="this is a folder; name a file"):
        campaign.run("all", "cpu", out=tmp_path)


@pytest.mark.parametrize("name", ["x" * 300, "x" * 250, "device"])
def test_a_file_that_cannot_be_written_is_refused_before_anything_is_measured(tmp_path, monkeypatch, capsys, name):
    """300 letters are too many for a name, 250 for that of the temporary file beside it."""
    from capacity.cli import run as cli

    os.mkfifo(tmp_path / "device")
    monkeypatch.setattr(campaign, "cpu_planned", lambda kind, *, quick: pytest.fail("measured"))
    assert cli(["measure", "all", "--out", str(tmp_path / name)]) == 2
    shown = capsys.readouterr()
    assert "wrote" not in shown.out
    assert shown.err.count("\n") == 1
    assert "this is not a regular file" in shown.err if name == "device" else "cannot be written" in shown.err
    assert [path.name for path in tmp_path.iterdir()] == ["device"]


def test_runs_that_could_not_be_written_are_not_said_to_be(tmp_path, monkeypatch, capsys):
    from capacity.cli import run as cli

    def in_its_way():
        (tmp_path / "runs.jsonl").mkdir()
        yield made(1e10)

    monkeypatch.setattr(campaign, "cpu_planned", lambda kind, *, quick: [("first", in_its_way)])
    assert cli(["measure", "all", "--out", str(tmp_path / "runs.jsonl")]) == 1
    shown = capsys.readouterr().out
    assert "cannot be written (Is a directory)" in shown
    assert "wrote" not in shown
    assert "nothing was written" in shown


def test_rates_of_a_run_follow_from_its_counts_and_samples():
    """2 sequences, 3e9 bytes of weights and 1e9 of cache, a median of 0.5 s: 8 GB/s and 4 tokens a second."""
    run = next(run for run in shipped_runs() if run.kind == "decode")
    counts = run.counts.model_copy(update={"weight_bytes": 3 * 10**9, "kv_read_bytes": 10**9})
    workload = run.workload.model_copy(update={"batch": 2})
    made = run.model_copy(update={"counts": counts, "workload": workload, "samples_s": (0.4, 0.5, 1.0)})
    assert made.read_bytes_per_s == 8e9
    assert made.tokens_per_s == 4
    assert made.p95_s == pytest.approx(0.95)
