"""The command line as a whole: help, lists within the screen, output that fails, and errors that name the option."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import capacity as cap
from capacity.cli import COMMANDS, run

ANSI = re.compile("\x1b\\[")
CYCLE = ["--period", "2 s", "--sensing", "10 ms", "--preprocessing", "5 ms", "--network", "0"]
CONTROL = ["control", "openvla-7b", "nvidia-jetson-agx-orin-64gb", *CYCLE]
MODEL = "llama-3.1-8b"
PART = "nvidia-h100-sxm5-80gb"


@pytest.mark.parametrize("columns", ["80", "120"])
def test_lists_show_every_name_and_stay_within_the_screen(shell, columns):
    for command, ids in (("hardware", cap.hardware_ids()), ("models", cap.model_ids())):
        done = shell(command, "list", columns=columns)

        assert done.returncode == 0, done.stderr
        assert max(map(len, done.stdout.splitlines())) <= int(columns)
        first = [line.split()[0] for line in done.stdout.splitlines() if line.strip()]
        assert [name for name in ids if first.count(name) != 1] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(capsys, command):
    assert run([command, "--help"]) == 0
    assert command in capsys.readouterr().out


def test_the_version_is_that_of_the_package(capsys):
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"capacity {cap.__version__}\n"


def test_a_reader_that_leaves_a_pipe_early_sees_no_traceback():
    command = f"{sys.executable} -m capacity.cli hardware list --json | head -c 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60, check=False)

    assert done.stderr == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize("command", [["models", "list"], ["size", "llama-2-7b", "nvidia-h100-sxm5-80gb", "--json"]])
def test_a_full_disk_under_the_output_is_one_sentence(command):
    with open("/dev/full", "w") as full:
        run_of = subprocess.run(
            [sys.executable, "-m", "capacity.cli", *command],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert run_of.returncode == 2
    assert run_of.stderr.startswith("capacity: standard output: cannot be written")
    assert len(run_of.stderr.splitlines()) == 1


def test_an_escape_sequence_in_a_file_name_does_not_reach_the_terminal(capsys):
    assert run(["size", "\x1b[31mred", PART]) == 2
    assert not ANSI.search(capsys.readouterr().err)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["hardware", "list", "--vendor", "nvidiaa"], "--vendor: unknown vendor 'nvidiaa'; nearest: nvidia"),
        (["hardware", "list", "--vendor", ""], "--vendor: unknown vendor ''"),
        (["hardware", "list", "--memory", "much"], "--memory: 'much'"),
        ([*CONTROL, "--taken", "nonsense"], "--taken: 'nonsense'"),
        (["size", MODEL, PART, "--context", ""], "--context must be a number"),
        (["size", MODEL, PART, "--batch", ""], "--batch must be a number"),
        (["validate", "--runs", "nowhere.jsonl"], "nowhere.jsonl: no such file"),
        (["validate", "--published", "world", "--rows"], "--rows goes with measured runs"),
        (["validate", "--published", "speed", "--plot", ""], "--plot goes with measured runs"),
        (["validate", "--file", "rows.csv"], "--published memory, speed or world"),
    ],
)
def test_the_option_that_is_wrong_is_named(capsys, arguments, sentence):
    assert run(arguments) == 2
    assert sentence in capsys.readouterr().err


def test_help_shows_no_type_of_a_flag(capsys):
    run(["size", "--help"])
    flags = [line for line in capsys.readouterr().out.splitlines() if "--json" in line or "--all-parts" in line]
    assert flags
    assert not any("bool" in line for line in flags)
