"""`capacity models`: lists and pages of models and world models."""

from __future__ import annotations

import pytest

from capacity.cli import run

MODEL = "llama-3.1-8b"


def test_models_show_counts_parameters_and_names_sources(capsys):
    assert run(["models", "show", "llama-3-8b"]) == 0
    printed = capsys.readouterr().out

    assert "8,030,261,248" in printed
    assert "8 KV heads" in printed
    assert "Sources" in printed


# pi0, OpenVLA and SmolVLA are policies of robots, which `capacity control` times.
def test_world_models_are_listed_with_the_command_that_takes_them(printed_json, capsys):
    assert run(["models", "list", "vla"]) == 0
    printed = capsys.readouterr().out
    assert {"openvla-7b", "openvla-oft", "smolvla"} <= set(printed.split())
    assert "capacity control MODEL PART" in printed

    kinds = {row["id"]: row["kind"] for row in printed_json("models", "list")}
    assert kinds["pi0"] == "world model"
    assert kinds[MODEL] == "model"


def test_a_world_model_is_shown_with_what_enters_it_and_its_sources(printed_json, capsys):
    assert run(["models", "show", "pi0"]) == 0
    printed = capsys.readouterr().out
    assert "pi0, flow head, 10 steps, 50 actions per decision" in printed
    assert "Physical-Intelligence/openpi" in printed

    found = printed_json("models", "show", "pi0")
    assert (found["name"], found["parameters"]) == ("pi0", 3_238_044_400)
    assert found["spec"]["head"]["kind"] == "flow"


# The model cards: gpt-oss stores its experts in MXFP4 and the rest in BF16; DeepSeek-V3 its products in fp8 of 128x128.
@pytest.mark.parametrize(
    ("model", "stored"),
    [("gpt-oss-120b", "bf16, experts mxfp4"), ("deepseek-v3", "bf16, attention + mlp + experts fp8_block128")],
)
def test_a_list_of_models_says_in_which_formats_one_is_stored(printed_json, model, stored):
    (row,) = printed_json("models", "list", model)

    assert row["stored"] == stored


@pytest.mark.parametrize("json_too", [[], ["--json"]])
def test_a_list_without_a_match_is_an_error_with_the_nearest_name(capsys, json_too):
    assert run(["models", "list", "lamma-3.1-8b", *json_too]) == 2
    printed = capsys.readouterr()
    assert (printed.out, printed.err.count("\n")) == ("", 1)
    assert "unknown model 'lamma-3.1-8b'" in printed.err
    assert "llama-3.1-8b" in printed.err
