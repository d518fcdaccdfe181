"""`capacity engines`: the list, the rules of one, and command lines that start or do not."""

import json

import pytest

from capacity.catalog.engines import engine_ids
from capacity.cli import run

PART = "nvidia-h100-sxm5-80gb"


def test_the_list_names_every_engine(capsys):
    assert run(["engines", "list"]) == 0
    shown = capsys.readouterr().out

    assert all(name in shown for name in engine_ids())


def test_an_engine_is_shown_with_the_sources_of_its_version(capsys):
    assert run(["engines", "show", "vllm", "--engine-version", "0.19"]) == 0
    shown = " ".join(capsys.readouterr().out.split())

    assert "vllm 0.19" in shown
    assert "14.41 B" in shown
    assert "accuracy/accuracy_report.md" in shown


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ("vllm serve meta-llama/Llama-3.1-8B-Instruct --max-model-len 32k", 0, "starts: it holds 1 sequence of 32,000"),
        (
            "vllm serve meta-llama/Llama-3.3-70B-Instruct -tp 2",
            1,
            "does not start: it cannot hold 1 sequence of 131,072",
        ),
    ],
)
def test_a_command_line_starts_or_not(line, code, words, capsys):
    assert run(["engines", "command", line, "--part", PART]) == code
    assert words in " ".join(capsys.readouterr().out.split())


def test_the_answer_of_a_command_line_as_json(capsys):
    line = "vllm serve somebody/fine-tune --max-model-len 8192 --frobnicate"
    assert run(["engines", "command", line, "--part", PART, "--model", "llama-3.1-8b", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)

    assert answer["start"]["starts"] is True
    assert answer["command"]["unknown"] == ["--frobnicate"]
    assert answer["command"]["deployment"]["engine"] == "vllm"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["show", "vlm"], "unknown engine 'vlm'; nearest: vllm"),
        (["show", "reference", "--engine-version", "2"], "engine 'reference' has no versions"),
        (["command", "ollama serve"], "starts no engine that is known"),
        (["command", "vllm serve m", "--model", "llama-3.1-8b"], "--model goes with --part"),
        (["command", "vllm serve nobody/nothing", "--part", PART], "nobody/nothing"),
    ],
)
def test_a_wrong_question_is_one_sentence(arguments, sentence, capsys):
    assert run(["engines", *arguments]) == 2
    assert sentence in capsys.readouterr().err
