"""`capacity control`: times that must be given, launch modes, and changes that can be typed as they are printed."""

from __future__ import annotations

import json

import pytest

from capacity.cli import run
from capacity.specs.deployment import LAUNCH_MODES

CYCLE = ["--period", "2 s", "--sensing", "10 ms", "--preprocessing", "5 ms", "--network", "0"]


def edited(command, *options):
    """The command with options (name, value, ...) added, or changed where it has them, as a reader edits it."""
    changed = list(command)
    for name, value in zip(options[::2], options[1::2], strict=True):
        if name in changed:
            changed[changed.index(name) + 1] = value
        else:
            changed += [name, value]
    return changed


def test_control_meets_a_long_period_and_misses_a_short_one(printed_json):
    name, part = "openvla-7b", "nvidia-jetson-agx-orin-64gb"
    long = printed_json("control", name, part, *CYCLE)
    short = printed_json("control", name, part, *edited(CYCLE, "--period", "20 ms"), code=1)

    assert long["verdict"]["met"]
    assert not short["verdict"]["met"]
    assert short["verdict"]["late_s"] > 0.02


def test_control_takes_the_launch_mode_from_option_or_file_and_assumes_a_graph(printed_json, tmp_path):
    question = ["control", "openvla-7b", "nvidia-jetson-agx-orin-64gb", *CYCLE]
    file = tmp_path / "deploy.toml"
    file.write_text('[launch_mode]\ndecode = "eager"\ndefault = "tuned"\n')
    silent = printed_json(*question)
    tuned = printed_json(*question, "--launch-mode", "tuned")
    mixed = printed_json(*question, "--deployment", str(file))

    assert "launch_mode = graph" in silent["assumed"]
    assert not any("launch_mode" in text for text in tuned["assumed"] + mixed["assumed"])
    modes = [{phase["launch_mode"] for phase in found["decision"]["phases"]} for found in (silent, tuned, mixed)]
    assert modes == [{"graph"}, {"tuned"}, {"tuned", "eager"}]


def test_control_help_says_each_launch_mode_in_a_line_of_its_own(shell):
    lines = [line.split() for line in shell("control", "--help").stdout.splitlines()]

    assert {line[0] for line in lines if line and line[0] in LAUNCH_MODES} == set(LAUNCH_MODES)
    assert "the verdict depends on it" in " ".join(word for line in lines for word in line)


# What a reader does with the printed change: give its options to the same command.
@pytest.mark.parametrize(
    ("model", "part", "options"),
    [
        ("openvla-7b", "nvidia-rtx-4090-24gb", ["--period", "100ms"]),
        ("openvla-7b", "nvidia-a100-sxm4-80gb", ["--period", "100ms", "--robots", "2"]),
        ("pi0", "nvidia-jetson-agx-orin-64gb", ["--period", "20ms", "--schedule", "chunked"]),
    ],
)
def test_each_printed_change_gives_its_time_when_its_options_are_given(capsys, model, part, options):
    command = ["control", model, part, *edited(CYCLE, "--launch-mode", "tuned", *options)]
    run(command)
    printed = " ".join(capsys.readouterr().out.split())
    run([*command, "--json"])
    changes = [item for item in json.loads(capsys.readouterr().out)["changes"] if item["given_as"].startswith("--")]

    assert len(changes) >= 3
    for change in changes:
        run([*edited(command, *change["given_as"].split()), "--json"])
        followed = json.loads(capsys.readouterr().out)["verdict"]
        assert set(f"{change['what']} {change['given_as']}".split()) <= set(printed.split())
        assert followed["latency_s"] == pytest.approx(change["time_s"], rel=1e-12)
        assert followed["met"] == change["met"]


@pytest.mark.parametrize("missing", ["period", "sensing", "preprocessing", "network"])
def test_control_has_no_hidden_zero(capsys, missing):
    given = CYCLE[:]
    place = given.index(f"--{missing}")
    del given[place : place + 2]

    assert run(["control", "openvla-7b", "nvidia-jetson-agx-orin-64gb", *given]) == 2
    assert f"--{missing} is missing" in capsys.readouterr().err


def test_control_names_all_missing_options_at_once_and_in_its_usage(shell, capsys):
    assert run(["control", "openvla-7b", "nvidia-jetson-agx-orin-64gb", "--sensing", "0"]) == 2
    assert "--period, --preprocessing, --network are missing" in capsys.readouterr().err
    usage = " ".join(shell("control", "--help").stdout.split("Judge")[0].split())
    assert "--period TIME --sensing TIME --preprocessing TIME --network TIME [OPTIONS]" in usage


@pytest.mark.parametrize(
    ("rate", "period"), [("10Hz", "the period, 100 ms"), ("0.5 hz", "2000 ms"), ("1 kHz", "1 ms"), ("0Hz", "a period")]
)
def test_a_period_given_as_a_rate_is_answered_with_the_time(capsys, rate, period):
    assert run(["control", "openvla-7b", "nvidia-jetson-agx-orin-64gb", *edited(CYCLE, "--period", rate)]) == 2
    said = capsys.readouterr().err
    assert f"--period: {rate} is a rate" in said
    assert period in said
