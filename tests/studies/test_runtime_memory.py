"""Verdict "tight": all that is counted fits, and the runtime, which is not counted, may find no room."""

from __future__ import annotations

import pytest

import capacity as cap
from capacity.cli import run
from capacity.presentation import notebook, terminal
from capacity.units import GIB

MIB = 2**20


def unwrapped(text):
    """Printed text without the ends of its lines."""
    return " ".join(text.split())


def sized(model, part, *, context, batch=1, **deploy):
    workload = cap.Workload(prompt_tokens=context - 1, output_tokens=1, concurrency=batch)
    return cap.size(cap.load_model(model), cap.load_hardware(part), workload, cap.Deployment(**deploy))


# A process that runs vLLM 0.19 on an H100 holds 0.5 GiB before it allocates and 0.25 GiB beside its allocator, and with
# tensor parallelism 2.1 GiB (llm-d-planner, accuracy_report.md): phi-4 with 6.21 MiB to spare leaves no room for that.
def test_phi_4_that_fills_an_rtx_5090_is_tight():
    sizing = sized("phi-4", "nvidia-rtx-5090-32gb", context=16_384, memory_fraction=1.0)

    assert (sizing.verdict, sizing.fits) == ("tight", True)
    assert round(sizing.margin_bytes / MIB, 2) == 6.21
    assert sizing.ledger[0].runtime_bytes == 0.75 * GIB
    assert str(sizing).startswith("tight, 6.21 MiB to spare per device: 6.21 MiB are left for the runtime")
    assert "runtime (not in total)" in notebook.html(sizing)


def test_a_tight_case_ends_with_exit_code_0(capsys):
    question = ["size", "phi-4", "nvidia-rtx-5090-32gb", "--memory-fraction", "1", "--batch", "1", "--context", "16384"]

    assert run(question) == 0
    assert capsys.readouterr().out.startswith("tight, ")


# The fraction leaves a tenth of 31.84 GiB to the runtime, which is more than 0.75 GiB.
def test_what_the_fraction_leaves_is_room_for_the_runtime():
    whole = sized("llama-3-8b", "nvidia-rtx-5090-32gb", context=256, memory_fraction=1.0)
    most = sized("llama-3-8b", "nvidia-rtx-5090-32gb", context=256, batch=whole.max_batch, memory_fraction=1.0)
    fraction = sized("llama-3-8b", "nvidia-rtx-5090-32gb", context=256)
    filled = sized("llama-3-8b", "nvidia-rtx-5090-32gb", context=256, batch=fraction.max_batch)

    assert (whole.verdict, most.verdict, filled.verdict) == ("fits", "tight", "fits")


@pytest.mark.parametrize(
    ("degrees", "gib"), [({}, 0.75), ({"tensor_parallel": 2}, 2.6), ({"pipeline_parallel": 2}, 0.75)]
)
def test_collectives_of_tensor_parallelism_take_memory_of_the_runtime(degrees, gib):
    sizing = sized("llama-3-8b", "nvidia-h100-sxm5-80gb", context=2_048, weights="bf16", **degrees)

    assert sizing.ledger[0].runtime_bytes == pytest.approx(gib * GIB, rel=1e-9)


def test_the_runtime_changes_no_limit():
    sizing = sized("phi-4", "nvidia-rtx-5090-32gb", context=16_384, memory_fraction=1.0)

    assert (sizing.max_batch, sizing.max_context_tokens) == (1, 16_384)
    assert sizing.margin_bytes == sizing.ledger[0].capacity_bytes - sizing.ledger[0].total_bytes


# 1.06 GiB and the tenth that the fraction leaves (0.75 GiB of 7.45) are 1.81 GiB: less than 0.75 GiB for the process
# and 2,847 MiB that an idle Jetson Orin with a desktop holds.
def test_an_8_gb_module_that_shares_its_memory_is_tight():
    sizing = sized("qwen2.5-7b", "nvidia-jetson-orin-nx-8gb", context=2_048, weights="int4_g128", kv_cache="fp16")
    ledger = sizing.ledger[0]

    assert sizing.verdict == "tight"
    assert (round(sizing.margin_bytes / GIB, 2), round(ledger.left_bytes / GIB, 2)) == (1.06, 1.81)
    assert ledger.runtime_bytes == 0.75 * GIB + 2_847 * MIB
    assert "memory shared with the system" in unwrapped(str(sizing).partition("binding constraint")[0])


# Of an Apple part its own file reserves what Metal gives to no program: nothing more is expected to be kept.
def test_a_part_whose_file_reserves_memory_for_the_system_is_charged_once():
    sizing = sized("llama-3-8b", "apple-m4-max-128gb", context=2_048, weights="fp16", kv_cache="fp16")

    assert sizing.shared.expected_bytes == 0
    assert sizing.ledger[0].runtime_bytes == 0.75 * GIB


def plan(**options):
    times = {"period_s": 0.1, "sensing_s": 0.0, "preprocessing_s": 0.0, "network_s": 0.0}
    world, part = cap.load_world_model("smolvla"), cap.load_hardware("nvidia-rtx-4090-24gb")
    return cap.control(world, part, **times, **options)


def test_control_has_a_line_for_the_runtime_and_says_where_it_is_tight():
    wide = plan()
    tight = plan(deploy=cap.Deployment(memory_fraction=1.0), taken_bytes=wide.left_bytes - 700 * MIB)

    assert (wide.memory, wide.runtime_bytes) == ("fits", 0.75 * GIB)
    assert (tight.memory, tight.left_bytes) == ("tight", 700 * MIB)
    assert "memory is tight: 700.00 MiB are left for the runtime, which needs about 768.00 MiB" in unwrapped(str(tight))
    assert tight.met == wide.met


# 6.16 GiB of pi0 in 16 bits on 64 GB that a robot's other programs use too.
def test_control_says_beside_the_verdict_that_a_memory_is_shared():
    world, part = cap.load_world_model("pi0"), cap.load_hardware("nvidia-jetson-agx-orin-64gb")
    times = {"period_s": 0.5, "sensing_s": 0.0, "preprocessing_s": 0.0, "network_s": 0.0}
    alone = cap.control(world, part, **times)
    beside = cap.control(world, part, **times, taken_bytes=2 * GIB)

    assert "memory shared with the system and other programs" in unwrapped(str(alone).split("\npi0 on")[0])
    assert (alone.shared.set_aside_bytes, alone.shared.expected_bytes) == (0, 2_847 * MIB)
    assert (beside.shared.set_aside_bytes, beside.shared.expected_bytes) == (2 * GIB, 2_847 * MIB - 2 * GIB)


def test_every_view_of_control_lists_what_is_not_modelled():
    found = plan()

    for shown in (terminal.text(found), notebook.html(found)):
        assert "Not modelled" in shown
        assert all(line in unwrapped(shown) for line in found.not_modelled)
    assert found.to_dict()["not_modelled"] == list(found.not_modelled)


def test_a_table_of_parts_says_on_which_it_is_tight(capsys):
    run(["size", "phi-4", "--all-parts", "--memory-fraction", "1", "--batch", "1", "--context", "16384"])
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("nvidia-rtx-5090-32gb"))

    assert "tight" in line.split()
