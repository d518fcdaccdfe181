"""Names of files on the command line: empty ones, and bytes that are not valid text."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from capacity.cli import run

MODEL, PART = "llama-2-7b", "nvidia-a100-sxm4-80gb"
CYCLE = ["--period", "2 s", "--sensing", "0", "--preprocessing", "0", "--network", "0"]


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (["size", MODEL, PART], "--out"),
        (["size", "--all-parts", MODEL], "--out"),
        (["size", MODEL, PART], "--deployment"),
        (["size", MODEL, PART], "--workload"),
        (["control", "openvla-7b", PART, *CYCLE], "--out"),
        (["control", "openvla-7b", PART, *CYCLE], "--deployment"),
        (["measure", "ceilings", "--quick"], "--out"),
        (["validate"], "--runs"),
        (["validate", "--published", "speed"], "--file"),
        (["validate", "--published", "world"], "--file"),
        (["validate", "--published", "speed"], "--out"),
    ],
)
def test_an_empty_name_is_refused_under_its_option(capsys, tmp_path, monkeypatch, arguments, option):
    """As a shell hands it over where a variable was never set; taken for no option it would write nothing."""
    monkeypatch.chdir(tmp_path)
    assert run([*arguments, option, ""]) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith(f"capacity: {option} ")
    assert shown.err.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("encoding", ["utf-8", "ascii", "latin-1"])
def test_a_folder_whose_name_is_no_text_is_sized(tmp_path, encoding):
    """Linux takes any bytes but two; a model's folder from an old archive may be named in Latin-1."""
    folder = os.fsencode(tmp_path) + b"/mod\xff"
    os.mkdir(folder)
    config = {
        "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "torch_dtype": "bfloat16",
        "max_position_embeddings": 8192, "tie_word_embeddings": False,
    }  # fmt: skip
    with open(folder + b"/config.json", "w", encoding="utf-8") as file:
        json.dump(config, file)
    out = os.fsencode(tmp_path) + b"/\xfe.json"
    size = [sys.executable, "-m", "capacity.cli", "size", folder, PART]
    environment = {**os.environ, "PYTHONIOENCODING": f"{encoding}:strict"}

    table, printed, _ = (
        subprocess.run([*size, *more], capture_output=True, env=environment, timeout=60, check=True).stdout
        for more in ([], ["--json"], ["--out", out])
    )

    assert rb"mod\udcff" in table
    assert json.loads(printed)["model"] == os.fsdecode(b"mod\xff")
    with open(out, encoding="ascii") as written:
        assert json.load(written) == json.loads(printed)
