"""Without an estimate nothing is met: a bound within the period excludes a miss no more than it shows none."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pytest

import capacity as cap
from capacity.cli import run
from capacity.errors import CapacityError

H100 = "nvidia-h100-sxm5-80gb"
CYCLE = {"period_s": 0.5, "sensing_s": 0.0, "preprocessing_s": 0.0, "network_s": 0.0}
TWO = cap.Deployment(weights="bf16", tensor_parallel=2)  # no calibration covers two devices
COMMAND = ["control", "openvla-7b", H100, "--period", "500ms", "--sensing", "0", "--preprocessing", "0"]


def plan(name="openvla-7b", deploy=TWO, **options):
    return cap.control(cap.load_world_model(name), cap.load_hardware(H100), deploy, **(CYCLE | options))


def test_no_change_is_met_on_a_bound_that_was_not_asked_for():
    found = plan(formats=["int8"])
    (change,) = [item for item in found.changes if item.kind == "format"]

    assert found.decision.value_s is None
    assert (change.within, change.met, change.state) == (True, False, "not excluded")
    assert found.cheapest is None
    assert "not excluded" in str(found)


def test_a_change_is_met_on_the_bound_where_that_is_judged():
    (change,) = [item for item in plan(formats=["int8"], bound_only=True).changes if item.kind == "format"]

    assert (change.met, change.state) == (True, "met")


def test_robots_counted_on_a_bound_are_at_most_so_many():
    assert not plan().robots.judged
    assert "Upper limits: counted on the bound" in str(plan())
    assert plan(bound_only=True).robots.judged
    assert plan(deploy=cap.Deployment(weights="bf16")).robots.judged


@pytest.mark.parametrize("length", [True, 10.5, "10", 0])
def test_a_chunk_length_is_a_whole_number(length):
    plan("pi0", deploy=cap.Deployment(weights="bf16"), chunks=[10])  # which compares equal to 10.0
    with pytest.raises(CapacityError, match="chunks must be a whole number"):
        plan("pi0", deploy=cap.Deployment(weights="bf16"), chunks=[length])


@pytest.mark.parametrize("value", [1, "yes", None])
def test_bound_only_is_true_or_false(value):
    with pytest.raises(CapacityError, match="bound_only must be"):
        plan(bound_only=value)
    with pytest.raises(CapacityError, match="bound_only must be"):
        cap.frames(cap.load_world_model("iris"), cap.load_hardware(H100), frames_per_s=1, bound_only=value)


@pytest.mark.parametrize("rate", [np.float64(2.0), np.int32(2), 2, Decimal(2)])
def test_frames_answers_in_plain_numbers(rate):
    found = cap.frames(cap.load_world_model("mineworld-300m"), cap.load_hardware(H100), frames_per_s=rate)

    for name in ("budget_s", "frame_s", "growth_bytes_per_s", "frames_per_s", "seconds_until_full"):
        assert type(getattr(found, name)) is float, name


# OpenVLA's seven tokens are one action, and so are the twenty of the robot of the chapter: neither is a frame.
@pytest.mark.parametrize("name", ["openvla-7b", "example-robot", "pi0", "tdmpc2-5m"])
def test_a_policy_makes_no_frames(name):
    with pytest.raises(CapacityError, match=r"makes no frame: its .* head makes actions"):
        cap.frames(cap.load_world_model(name), cap.load_hardware(H100), frames_per_s=1)


@pytest.mark.parametrize("modes", [["graph"], ("eager",), 3])
def test_a_launch_mode_is_a_name_or_a_table(modes):
    with pytest.raises(CapacityError, match="launch_mode: must be one of eager, compiled, graph, tuned, or a table"):
        cap.Deployment(launch_mode=modes)


def test_a_launch_mode_of_a_phase_that_there_is_not_is_refused():
    deploy = cap.Deployment(launch_mode={"denoise": "graph", "default": "eager"})
    with pytest.raises(CapacityError, match="phase 'denoise'; this model has encode, prefill, decode"):
        plan(deploy=deploy)


def test_the_parameters_of_a_model_cannot_be_changed_by_who_asked():
    count = cap.parameter_count(cap.load_model("llama-3-8b"))
    with pytest.raises(TypeError):
        count.by_module["attention"] = 0


def test_the_command_judges_the_bound_where_it_is_told_to(capsys):
    options = ["--network", "0", "--tensor-parallel", "2", "--weights", "bf16"]

    assert run([*COMMAND, *options]) == 1
    assert "not excluded" in capsys.readouterr().out
    assert run([*COMMAND, *options, "--bound-only"]) == 0
    assert run(["frames", "iris", H100, "--frames-per-s", "1", "--tensor-parallel", "2", "--bound-only"]) == 0
    assert run(["frames", "iris", H100, "--frames-per-s", "1", "--tensor-parallel", "2"]) == 1
