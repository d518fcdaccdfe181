"""`capacity hardware`: lists, pages and checks of parts."""

from __future__ import annotations

import json
import re

import capacity as cap
from capacity.cli import run

PART = "nvidia-h100-sxm5-80gb"


def test_hardware_list_filters_by_word_memory_and_format(capsys):
    assert run(["hardware", "list", "h100", "--memory", "90 GiB", "--format", "fp8_e4m3", "--json"]) == 0

    assert [row["id"] for row in json.loads(capsys.readouterr().out)] == ["nvidia-h100-nvl-94gb"]


def test_hardware_show_names_sources_and_both_ridge_points(capsys):
    assert run(["hardware", "show", PART]) == 0
    printed = capsys.readouterr().out

    assert "295.3 FLOP/B" in printed  # 989.4e12 / 3.35e12
    assert "253.8 FLOP/B" in printed  # 794.5e12 / 3.13e12
    assert "Sources" in printed
    assert re.search(r"peak_flop_per_s.fp64\s.*assumed", printed)


def test_check_accepts_what_holds_and_refuses_what_does_not(capsys, tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(f'name = "mine"\nbased_on = "{PART}"\n[memory]\nbytes_per_s = 4.8e12\n')
    assert run(["hardware", "check", str(file)]) == 0
    file.write_text(f'name = "mine"\nbased_on = "{PART}"\n[memory]\nbytes_per_s = -1\n')
    assert run(["hardware", "check", str(file)]) == 2
    assert "memory.bytes_per_s" in capsys.readouterr().err


# nvidia-smi prints 81,559 MiB for an H100 SXM5; other files list their capacity as unverified.
def test_memory_that_no_source_states_is_marked_in_the_list(printed_json, capsys):
    doubtful = [name for name in cap.hardware_ids() if "memory.capacity_bytes" in cap.load_hardware(name).unverified]
    assert doubtful
    assert PART not in doubtful

    assert run(["hardware", "list", doubtful[0]]) == 0
    printed = capsys.readouterr().out
    assert "GiB ?" in printed
    assert "unverified" in printed
    assert run(["hardware", "list", PART]) == 0
    assert "?" not in capsys.readouterr().out
    (row,) = printed_json("hardware", "list", PART)
    assert row["capacity_evidence"] == "published"
