"""One model on many parts: order, objectives, what is assumed, and questions that no part can answer."""

from __future__ import annotations

import json

import pytest

import capacity as cap
from capacity.cli import run
from capacity.presentation import terminal
from capacity.specs.hardware import HardwareSpec
from capacity.studies.parts import size_on_all_parts
from capacity.studies.size import OperatingPoint

BF16 = cap.Deployment(weights="bf16")
AT = OperatingPoint(batch=1, memory_tokens=2304, tpot_context_tokens=2176, prompt_tokens=2048)


def part_of(make_part, name, *, gib=80.0, bytes_per_s=2e12, domain=None):
    links = {"kind": "NVLink4", "bytes_per_s_per_direction": 450e9, "domain_devices": domain} if domain else None
    table = make_part(name, gib, bytes_per_s).model_dump() | {"id": name, "links": links}
    return HardwareSpec.model_validate(table)


def answered(model, parts, workload=None, deploy=BF16):
    found = size_on_all_parts(model, parts, deploy, AT, workload=workload or cap.Workload())
    return {row.part: row for row in found.rows}, found


def printed(found):
    """The lines that are printed where there is room."""
    return terminal.text(found, 200).splitlines()


def test_a_part_that_misses_an_objective_even_at_the_bound_comes_after_those_that_do_not(make_part, llama_2_7b):
    """13.2 GB of weights and 1.1 GB of cache a step: 7.2 ms at 2 TB/s, 14 ms at 1 TB/s."""
    slow, fast = part_of(make_part, "a-slow", bytes_per_s=1e12), part_of(make_part, "b-fast")
    rows, found = answered(llama_2_7b, [slow, fast], cap.Workload(max_tpot_s=0.010, max_ttft_s=60.0))

    assert [row.part for row in found.rows] == ["b-fast", "a-slow"]
    assert (rows["b-fast"].missed, rows["b-fast"].holds) == ((), True)
    assert (rows["a-slow"].missed, rows["a-slow"].holds, rows["a-slow"].fits) == (("TPOT",), False, True)
    (line,) = [line for line in printed(found) if line.startswith("a-slow")]
    assert " TPOT " in line
    assert " TPOT " not in next(line for line in printed(found) if line.startswith("b-fast"))


def test_the_command_ends_with_1_when_every_part_misses_an_objective(capsys):
    question = ["size", "llama-3.2-1b", "--all-parts", "--weights", "bf16", "--json"]

    assert run([*question, "--max-tpot", "1 ns"]) == 1
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert {tuple(row["missed"]) for row in rows if row["devices"]} == {("TPOT",)}
    assert run([*question, "--max-tpot", "10 s"]) == 0


def test_a_link_domain_that_no_source_states_is_an_assumption(make_part, llama_3_70b):
    """141 GB in bf16: 2 devices of 80 GiB, of which no link is known, or of which one is; 16 of 16 GiB."""
    parts = [part_of(make_part, "unknown"), part_of(make_part, "known", domain=8), part_of(make_part, "tiny", gib=16)]
    rows, found = answered(llama_3_70b, parts)

    assert (rows["unknown"].devices, rows["known"].devices, rows["tiny"].devices) == (2, 2, None)
    assert rows["unknown"].assumed == rows["tiny"].assumed == ("8 devices in one link domain",)
    assert rows["known"].assumed == ()
    assert rows["tiny"].shortage.binding == "weights"
    assert [line.split()[0] for line in printed(found) if "assuming 8 devices in one link domain" in line] == ["tiny"]
    assert "- 8 devices in one link domain, for 2 parts whose sources state none" in printed(found)


def test_what_fits_as_asked_assumes_no_link(make_part, llama_2_7b):
    rows, _ = answered(llama_2_7b, [part_of(make_part, "unknown")])

    assert (rows["unknown"].fits, rows["unknown"].assumed) == (True, ())


@pytest.mark.parametrize(
    ("deploy", "at", "sentence"),
    [
        (BF16.replace(tensor_parallel=3), AT, "tensor_parallel 3 must divide"),
        (BF16.replace(engine="vlm"), AT, "unknown engine"),
        (BF16, OperatingPoint(2**31, 2**31, 2**31, 2048), r"2\^62"),
    ],
)
def test_a_fault_of_the_question_is_an_error_and_no_table(make_part, llama_2_7b, deploy, at, sentence):
    with pytest.raises(cap.CapacityError, match=sentence):
        size_on_all_parts(llama_2_7b, [make_part()], deploy, at, workload=cap.Workload())


def test_a_fault_of_one_part_keeps_its_reason(make_part, llama_2_7b):
    """70 GB reserved leave nothing of 24 GiB, and something of 80 GiB."""
    parts = [part_of(make_part, "small", gib=24), part_of(make_part, "large")]
    rows, _ = answered(llama_2_7b, parts, deploy=BF16.replace(reserved_bytes=50 * 2**30))

    assert rows["large"].fits
    assert "reserved_bytes" in rows["small"].reason


def test_what_no_row_uses_is_said_once(make_part, llama_2_7b):
    _, found = answered(llama_2_7b, [make_part()], cap.Workload(percentile=99.0))

    assert found.notes == ("percentile does not enter the sizing of a replica, which is at the given concurrency",)
