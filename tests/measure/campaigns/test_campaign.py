"""A campaign: which failures it survives, and which files it refuses before anything is measured."""

from __future__ import annotations

import os

import pytest

from capacity.catalog.runs import read_runs
from capacity.errors import CapacityError
from capacity.measure.campaigns import campaign
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
pytest.importorskip("torch")


def made(read_bytes_per_s):
    """A sealed run of a micro-benchmark with this rate."""
    return MeasuredRun.parse(BASE | {"values": {"read_bytes_per_s": read_bytes_per_s}}, "test").sealed()


@pytest.fixture
def plan_of(monkeypatch):
    """Replaces the runs of a CPU campaign by the given pairs of name and maker."""

    def replace(*tasks):
        monkeypatch.setattr(campaign.cpu_grid, "planned", lambda kind, *, quick: list(tasks))

    return replace


def test_an_interrupted_campaign_keeps_the_runs_it_made(tmp_path, plan_of):
    run = MeasuredRun.parse(BASE, "test")

    def killed():
        yield run
        raise KeyboardInterrupt

    plan_of(("first", killed))
    with pytest.raises(KeyboardInterrupt):
        campaign.run("all", "cpu", out=tmp_path / "runs.jsonl")
    assert read_runs(tmp_path / "runs.jsonl") == (run.sealed(),)


@pytest.fixture
def campaign_of(plan_of, tmp_path):
    """A CPU campaign of makers by name, written to runs.jsonl."""

    def make(makers, **options):
        plan_of(*makers.items())
        return campaign.run("all", "cpu", out=tmp_path / "runs.jsonl", **options)

    return make


def test_a_maker_that_fails_is_named_and_the_campaign_goes_on(campaign_of, capsys):
    runs = made(1e10), made(2e10), made(3e10)

    def broken():
        yield runs[1]
        raise RuntimeError("CUDA out of memory\nand more")

    third = iter(["x skipped", runs[2]])
    result = campaign_of({"first": lambda: iter(runs[:1]), "second": broken, "third": lambda: third})
    assert result.failed == ("second failed: RuntimeError: CUDA out of memory",)
    assert read_runs(result.path) == runs
    assert result.runs == 3
    shown = capsys.readouterr().out
    assert "second failed: RuntimeError: CUDA out of memory" in shown
    assert "x skipped" in shown


def test_a_campaign_stops_when_the_device_no_longer_responds(tmp_path):
    def broken():
        raise RuntimeError("an illegal memory access was encountered")
        yield

    makers = [("first", broken), ("second", broken)]
    result = campaign._written_with_progress(tmp_path / "runs.jsonl", makers, lambda: False)
    assert [text.split(":")[0] for text in result.failed] == [
        "first failed",
        "the device no longer responds, so the remaining runs were not made",
    ]
    assert not list(tmp_path.iterdir())


def test_a_failed_campaign_ends_with_exit_code_1(plan_of, tmp_path, capsys):
    from capacity.cli import run as cli

    def broken():
        raise ValueError("no")
        yield

    for maker, code, message in (
        (broken, 1, "nothing was written"),
        (lambda: iter([MeasuredRun.parse(BASE, "test")]), 0, "wrote "),
    ):
        plan_of(("a", maker))
        assert cli(["measure", "all", "--out", str(tmp_path / f"{code}.jsonl")]) == code
        assert message in capsys.readouterr().out


def test_a_file_that_is_not_empty_is_not_overwritten(campaign_of, tmp_path):
    path = tmp_path / "runs.jsonl"
    path.write_text("precious")
    with pytest.raises(CapacityError, match=r"--out .*runs\.jsonl: this file is not empty"):
        campaign_of({})
    assert path.read_text() == "precious"
    path.write_text("")  # as mktemp leaves it
    assert campaign_of({"a": lambda: iter([MeasuredRun.parse(BASE, "test")])}).runs == 1
    with pytest.raises(CapacityError, match="this is a folder; name a file"):
        campaign.run("all", "cpu", out=tmp_path)


@pytest.mark.parametrize("name", ["x" * 300, "x" * 250, "device"])
def test_a_file_that_cannot_be_written_is_refused_before_anything_is_measured(tmp_path, plan_of, capsys, name):
    """300 letters are too many for a name, 250 for the name of the temporary file next to it."""
    from capacity.cli import run as cli

    os.mkfifo(tmp_path / "device")
    plan_of(("first", lambda: pytest.fail("measured")))
    assert cli(["measure", "all", "--out", str(tmp_path / name)]) == 2
    shown = capsys.readouterr()
    assert "wrote" not in shown.out
    assert shown.err.count("\n") == 1
    assert "this is not a regular file" in shown.err if name == "device" else "cannot be written" in shown.err
    assert [path.name for path in tmp_path.iterdir()] == ["device"]


def test_runs_that_could_not_be_written_are_not_reported_as_written(tmp_path, plan_of, capsys):
    from capacity.cli import run as cli

    def in_its_way():
        (tmp_path / "runs.jsonl").mkdir()
        yield made(1e10)

    plan_of(("first", in_its_way))
    assert cli(["measure", "all", "--out", str(tmp_path / "runs.jsonl")]) == 1
    shown = capsys.readouterr().out
    assert "cannot be written (Is a directory)" in shown
    assert "wrote" not in shown
    assert "nothing was written" in shown


def test_measuring_on_cuda_without_a_device_is_one_sentence(tmp_path):
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a device")
    with pytest.raises(CapacityError, match="no CUDA device"):
        campaign.run("all", "cuda", out=tmp_path / "runs.jsonl")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("kind", "device"), [("dream", "cpu"), ("all", "tpu")])
def test_an_unknown_kind_or_device_is_refused(kind, device, tmp_path):
    with pytest.raises(CapacityError, match=r"unknown (kind|device)"):
        campaign.run(kind, device, out=tmp_path / "runs.jsonl")


def test_measuring_without_torch_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(campaign, "find_spec", lambda name: None)
    with pytest.raises(CapacityError, match=r"needs torch: install capacity-planner\[measure\]"):
        campaign.run("decode", "cpu", out=tmp_path / "runs.jsonl")


def test_a_quick_campaign_on_a_cpu_is_planned_with_the_cheap_runs_first():
    pytest.importorskip("torch")
    names = [name for name, _ in campaign.cpu_grid.planned("all", quick=True)]
    assert [name.split(":")[0].split()[0] for name in names[:3]] == ["ceilings", "memory", "prefill"]
    assert all(name.startswith("decode") for name in names[3:])
