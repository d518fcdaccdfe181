"""`capacity frames`: a frame budget met and missed, and what makes no frame."""

from __future__ import annotations

import json

import pytest

import capacity as cap
from capacity.cli import run

FRAMES = ["frames", "mineworld-300m", "nvidia-a100-sxm4-80gb", "--weights", "bf16", "--launch-mode", "tuned"]
PART = "nvidia-h100-sxm5-80gb"


# arXiv:2504.08388: MineWorld keeps 4 to 7 frames a second only with 37 passes per frame instead of 336.
def test_frames_meets_a_slow_rate_and_misses_a_fast_one(printed_json, tmp_path):
    file = tmp_path / "plan.json"
    options = ["--window", "5552", "--sessions", "2", "--elapsed", "60 s"]
    slow = printed_json(*FRAMES, "--frames-per-s", "0.5", *options, "--out", str(file))
    fast = printed_json(*FRAMES, "--frames-per-s", "30", *options, code=1)
    deploy = cap.Deployment(weights="bf16", launch_mode="tuned")
    world, part = cap.load_world_model("mineworld-300m"), cap.load_hardware("nvidia-a100-sxm4-80gb")
    plan = cap.frames(world, part, deploy, frames_per_s=0.5, sessions=2, elapsed_s=60.0, window_tokens=5552)

    assert slow == plan.to_dict() == json.loads(file.read_text())
    assert (slow["met"], fast["met"]) == (True, False)
    assert (slow["sessions"], slow["cache_tokens"], slow["seconds_until_full"]) == (2, 5552, None)


@pytest.mark.parametrize("columns", ["80", "120"])
def test_frames_prints_the_verdict_first_and_stays_within_the_screen(shell, columns):
    done = shell(*FRAMES, "--frames-per-s", "5", columns=columns)

    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("frame budget missed with 1 session: ")
    assert max(map(len, done.stdout.splitlines())) <= int(columns)
    for word in ("sessions in memory", "memory full after", "start of a session", "Not modelled", "Assumptions"):
        assert word in done.stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["frames", "mineworld-300m", PART], "Missing option '--frames-per-s'"),
        (["frames", "openvla-oft", PART, "--frames-per-s", "5"], "openvla-oft makes no frame"),
        ([*FRAMES, "--frames-per-s", "0"], "frames_per_s must be finite and positive, got 0.0"),
        ([*FRAMES, "--frames-per-s", "many"], "--frames-per-s must be a number, got 'many'"),
        ([*FRAMES, "--frames-per-s", "5", "--window", "1"], "window_tokens must hold one frame"),
        ([*FRAMES, "--frames-per-s", "5", "--sessions", "0"], "--sessions must be a whole number from 1"),
        ([*FRAMES, "--frames-per-s", "5", "--elapsed", "long"], "--elapsed: 'long'"),
        ([*FRAMES, "--frames-per-s", "5", "--taken", "much"], "--taken: 'much'"),
    ],
)
def test_frames_refuses_what_it_cannot_judge(capsys, arguments, sentence):
    assert run(arguments) == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize("policy", ["pi0", "pi0.5", "smolvla", "gr00t-n1.7-3b", "octo-base", "pi0-fast", "v-jepa-2-ac"])
def test_a_policy_has_no_frame_rate(capsys, policy):
    assert run(["frames", policy, PART, "--frames-per-s", "5"]) == 2
    assert f"{policy} makes no frame: its " in capsys.readouterr().err
