"""`capacity hardware`: words that name parts, tables of narrow screens, and files of the user."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from capacity.catalog.parts import hardware_ids
from capacity.catalog.servers import server_ids
from capacity.cli import run

FOLDER = Path(__file__).parents[1] / "hardware_specs"
SOURCED = '\n[[sources]]\nfields = ["*"]\ncite = "our datasheet, 2026-11"\n'
SCRATCH = {
    "large": '[memory]\ncapacity_bytes = "80 GiB"\nbytes_per_s = "3 TB/s"\n[peak_flop_per_s]\nbf16 = "900 TFLOP/s"\n',
    "small": '[memory]\ncapacity_bytes = "24 GB"\nbytes_per_s = "600 GB/s"\n[peak_flop_per_s]\nbf16 = 1e14\n',
    "shared": (
        '[memory]\nunified = true\ncapacity_bytes = "64 GiB"\nreserve_bytes = "6 GiB"\nbytes_per_s = "204.8 GB/s"\n'
        '[vector_flop_per_s]\nfp16 = "10 TFLOP/s"\nbf16 = "10 TFLOP/s"\n'
    ),
}


def printed_ids(capsys, *words):
    assert run(["hardware", "list", *words, "--json"]) == 0
    return [row["id"] for row in json.loads(capsys.readouterr().out)]


@pytest.mark.parametrize("words", [["RTX PRO"], ["rtx-pro"], ["rtx", "PRO 6000"], ["Blackwell Server"]])
def test_words_are_looked_for_in_id_and_name_whatever_their_hyphens(capsys, words):
    assert "nvidia-rtx-pro-6000-blackwell-server-96gb" in printed_ids(capsys, *words)


def test_all_words_count(capsys):
    assert printed_ids(capsys, "H100", "nvl") == ["nvidia-h100-nvl-94gb"]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["H200", "RTX"], "no part has all of these words in its id or name ('H200' alone: 4, 'RTX' alone: 9)"),
        (["h100-sxm-80gb"], "unknown part 'h100-sxm-80gb'; nearest: nvidia-h100-sxm5-80gb"),
        (["h100", "--memory", "900 GiB"], "no part matches all that is given"),
        (["--format", "nvfp4", "l40s"], "no part matches all that is given"),
    ],
)
@pytest.mark.parametrize("json_too", [[], ["--json"]])
def test_nothing_that_matches_is_one_sentence(capsys, options, sentence, json_too):
    assert run(["hardware", "list", *options, *json_too]) == 2
    printed = capsys.readouterr()
    assert (printed.out, printed.err.count("\n")) == ("", 1)
    assert sentence in printed.err


def lines_at_80_columns(*arguments):
    command = [sys.executable, "-m", "capacity.cli", *arguments]
    environment = {**os.environ, "COLUMNS": "80", "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)
    assert done.stderr == ""
    return done.stdout.splitlines()


VENDORS = ("amd-", "apple-", "aws-", "google-", "huawei-", "intel-", "nvidia-")
LONGEST = "nvidia-rtx-pro-6000-blackwell-workstation-96gb"


@pytest.mark.parametrize(
    "arguments",
    [
        ["hardware", "list"],
        ["size", "llama-3.1-8b", "--all-parts"],
        ["size", "llama-3.1-8b", "--all-parts", "--max-tpot", "20 ms", "--max-ttft", "1 s"],
    ],
)
def test_no_id_is_folded_at_80_columns(arguments):
    lines = lines_at_80_columns(*arguments)

    assert max(map(len, lines)) <= 80
    begun = {line.split(" ")[0] for line in lines}
    assert LONGEST in begun
    assert {word for word in begun if word.startswith(VENDORS)} <= set(hardware_ids())


def test_the_columns_that_say_least_are_left_out_first():
    wide = "\n".join(lines_at_80_columns("hardware", "list", "l4", "pcie"))

    assert "bf16 peak" in wide
    assert "Columns left out at a width of 80: links" in wide or "left out" not in wide
    assert "Columns left out at a width of 80: bf16 peak, ridge, TDP, links" in "\n".join(
        lines_at_80_columns("hardware", "list", "RTX PRO")
    )


def test_every_shipped_file_passes_its_check(capsys):
    files = [str(file) for file in sorted(FOLDER.rglob("*.toml"))]

    assert len(files) == len(hardware_ids()) + len(server_ids())
    assert run(["hardware", "check", *files]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(files)


def test_servers_are_checked_by_id_and_by_file(capsys, tmp_path):
    wrong = tmp_path / "node.toml"
    text = (FOLDER / "servers/nvidia-hgx-h100-8x80gb.toml").read_text(encoding="utf-8")
    wrong.write_text(text.replace("bytes_per_s_per_device = 50e9", 'bytes_per_s_per_device = "400 GB/s"'))

    assert run(["hardware", "check", "nvidia-hgx-h100-8x80gb"]) == 0
    assert run(["hardware", "check", str(wrong)]) == 2
    assert "400 Gb/s is 5e+10 bytes per second" in capsys.readouterr().err


def test_a_part_whose_memory_the_buyer_chooses_holds_and_asks_for_it_when_sized(capsys, tmp_path):
    part = "amd-epyc-9654-socket"

    assert run(["hardware", "check", part]) == 0
    assert "a sizing asks for memory.capacity_bytes, which the buyer chooses" in capsys.readouterr().out
    assert run(["size", "llama-3.1-8b", part]) == 2
    assert f'based_on = "{part}" and memory.capacity_bytes = "512 GiB"' in capsys.readouterr().err

    file = tmp_path / "ours.toml"  # what the message says
    file.write_text(f'based_on = "{part}"\nmemory.capacity_bytes = "512 GiB"\npeak_flop_per_s.bf16 = "5 TFLOP/s"\n')
    assert run(["hardware", "check", str(file)]) == 0
    assert "sizing" not in capsys.readouterr().out
    assert run(["size", "llama-3.1-8b", str(file), "--batch", "1", "--context", "1000"]) == 0


@pytest.mark.parametrize("name", SCRATCH)
def test_a_part_from_scratch_is_checked_and_sized(capsys, tmp_path, name):
    file = tmp_path / f"{name}.toml"
    file.write_text(f'name = "Our {name}"\n{SCRATCH[name]}{SOURCED}', encoding="utf-8")

    assert run(["hardware", "check", str(file)]) == 0
    assert f"holds (Our {name})" in capsys.readouterr().out
    assert run(["size", "llama-3.1-8b", str(file), "--batch", "1", "--context", "2000", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["part"]


def test_help_of_the_check_leads_to_the_fields(capsys):
    assert run(["hardware", "check", "--help"]) == 0
    assert "docs/part_files.md" in capsys.readouterr().out
