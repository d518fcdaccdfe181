"""What a decision takes in, what its period means, and how a chunk is played: stated, settable and judged."""

from __future__ import annotations

import json

import pytest

import capacity as cap
from capacity.cli import run

TIMES = ["--sensing", "0", "--preprocessing", "0", "--network", "0"]


def asked(capsys, *arguments, code=0):
    assert run(["control", *arguments, *TIMES]) == code
    return capsys.readouterr().out


# A robot with 2 cameras of 224 px and SigLIP patches of 14 px: 2 x 16 x 16 = 512 image tokens.
def test_views_and_text_tokens_of_a_decision_are_options_and_printed(capsys):
    options = ["--period", "200 ms", "--launch-mode", "compiled", "--views", "2", "--text-tokens", "60", "--steps", "5"]
    printed = " ".join(asked(capsys, "pi0", "nvidia-a40-pcie-48gb", *options).split())

    assert "input: 2 views at 224 x 224 px (512 tokens), 60 text tokens; flow head, 5 steps, 50 actions" in printed
    assert "- pi0: views - pi0: text_tokens - pi0: head.steps" in printed


def test_two_views_are_those_of_the_model_changed_by_hand(capsys):
    options = ["--period", "200 ms", "--views", "2", "--json"]
    found = json.loads(asked(capsys, "pi0", "nvidia-a40-pcie-48gb", *options))
    world = cap.load_world_model("pi0").replace(views=2)
    times = {"period_s": 0.2, "sensing_s": 0.0, "preprocessing_s": 0.0, "network_s": 0.0}

    assert (
        found["decision"]["bound_s"]
        == cap.control(world, cap.load_hardware("nvidia-a40-pcie-48gb"), **times).decision.bound_s
    )


@pytest.mark.parametrize(
    ("model", "option", "sentence"),
    [
        ("openvla-7b", ["--steps", "4"], "--steps: the autoregressive head of openvla-7b has no steps"),
        ("iris", ["--views", "2"], "--views: iris has no encoder of images"),
        ("pi0", ["--views", "0"], "--views must be a whole number from 1"),
    ],
)
def test_an_input_that_a_model_does_not_have_is_refused(capsys, model, option, sentence):
    assert run(["control", model, "nvidia-a40-pcie-48gb", "--period", "1 s", *TIMES, *option]) == 2
    assert sentence in capsys.readouterr().err


def test_a_world_model_is_shown_with_its_inputs_and_sources(capsys):
    assert run(["models", "show", "pi0"]) == 0
    printed = capsys.readouterr().out

    assert "3 views, 768 image tokens, 48 text tokens" in printed
    assert "Physical-Intelligence/openpi" in printed.partition("Sources")[2]


# 25 actions of a chunk are played for each decision: 25 x 500 ms = 12.5 s; a decision every 500 ms leaves 500/25 =
# 20 ms to each action.
def test_a_period_of_a_chunk_is_that_of_an_action_and_the_other_reading_has_its_options(capsys):
    printed = " ".join(asked(capsys, "pi0.5", "nvidia-rtx-4090-24gb", "--period", "500ms").split())
    other = asked(
        capsys, "pi0.5", "nvidia-rtx-4090-24gb", "--period", "20.000 ms", "--executed-actions", "25", "--json"
    )

    assert "period: 500.000 ms between two actions at the robot, so a decision for every 12.500 s of motion" in printed
    assert 'for a decision every 500.000 ms give --period "20.000 ms" --executed-actions 25' in printed
    assert json.loads(other)["interval_s"] == pytest.approx(0.5)


POLICY = {
    "type": "pi05",
    "chunk_size": 40,
    "n_action_steps": 4,
    "dtype": "bfloat16",
    "input_features": {f"observation.images.{name}": {"type": "VISUAL", "shape": [3, 224, 224]} for name in "ab"},
}


# LeRobot plays n_action_steps of a chunk and then decides anew while the robot waits: 4 actions in 4 x 25 ms and a
# decision of 63.5 ms are 4 / 0.1635 = 24.5 of 40 actions per second.
def test_the_actions_that_a_policy_file_plays_reach_the_verdict(tmp_path, capsys):
    file = tmp_path / "config.json"
    file.write_text(json.dumps(POLICY))
    options = ["--period", "25 ms", "--launch-mode", "compiled"]
    printed = asked(capsys, str(file), "nvidia-rtx-5090-32gb", *options, code=1)
    found = json.loads(asked(capsys, str(file), "nvidia-rtx-5090-32gb", *options, "--json", code=1))

    assert printed.startswith("missed (chunked, 4 of 40 actions): ")
    assert found["control_per_s"] == pytest.approx(24.5, rel=0.03)
    assert found["control_per_s"] == pytest.approx(4 / (4 * 0.025 + found["decision"]["value_s"]))
    assert "executed_actions = 4, as the policy states" in found["assumed"]


def test_all_schedules_are_judged_where_none_is_stated(tmp_path, capsys):
    file = tmp_path / "config.json"
    file.write_text(json.dumps(POLICY))
    options = ["--period", "25 ms", "--launch-mode", "compiled"]
    found = json.loads(asked(capsys, str(file), "nvidia-rtx-5090-32gb", *options, "--json", code=1))
    states = {one["schedule"]: (one["executed_actions"], one["state"]) for one in found["schedules"]}

    assert states == {"synchronous": (1, "missed"), "chunked": (4, "missed"), "asynchronous": (4, "met")}
    stated = asked(capsys, str(file), "nvidia-rtx-5090-32gb", *options, "--schedule", "asynchronous")
    assert stated.startswith("met (asynchronous, 4 of 40 actions): ")
    assert "is assumed" not in stated.splitlines()[0]
    assert "Schedules" not in stated


def test_a_first_line_that_hangs_on_an_assumed_schedule_says_so(capsys):
    printed = asked(capsys, "pi0", "nvidia-rtx-4090-24gb", "--period", "20 ms")

    assert "asynchronous is assumed" in " ".join(printed.split("\nperiod:")[0].split())
