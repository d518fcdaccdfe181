"""Changes of any study: each is the difference of two cases that are computed apart, and the cheapest is named."""

from __future__ import annotations

import json

import pytest

import capacity as cap
from capacity.cli import run
from capacity.errors import CapacityError

H100, H200, L4 = "nvidia-h100-sxm5-80gb", "nvidia-h200-sxm5-141gb", "nvidia-l4-pcie-24gb"
WORK = cap.Workload(prompt_tokens=4096, output_tokens=256, concurrency=8)
BF16 = cap.Deployment(weights="bf16")


def sizing(deploy, part=H100):
    return cap.size(cap.load_model("llama-3.3-70b"), cap.load_hardware(part), WORK, deploy)


def changes(**options):
    model, part = cap.load_model("llama-3.3-70b"), cap.load_hardware(H100)
    return cap.what_if(model, part, WORK, BF16, parts=[cap.load_hardware(H200)], **options)


CHANGED = {
    "weights and activations in int8": (cap.Deployment(weights="int8", activations="int8"), H100),
    "weights in int4_g128": (cap.Deployment(weights="int4_g128"), H100),
    "KV cache in fp8_e4m3": (cap.Deployment(weights="bf16", kv_cache="fp8_e4m3"), H100),
    "4 devices": (cap.Deployment(weights="bf16", tensor_parallel=4), H100),
    "NVIDIA H200 SXM5 141GB": (BF16, H200),
}


@pytest.mark.parametrize("what", CHANGED)
def test_a_change_of_a_sizing_is_a_sizing_of_its_own(what):
    (change,) = [item for item in changes().changes if item.what == what]
    other = sizing(*CHANGED[what])

    assert change.time_s == other.tpot.bound
    assert change.saved_s == sizing(BF16).tpot.bound - other.tpot.bound
    assert (change.max_batch, change.needed_bytes) == (other.max_batch, other.heaviest.total_bytes)
    assert change.state == ("met" if other.fits else "does not fit")


# 70.6 billion parameters are 141 GB in bf16 and 71 GB in int8, of 77 GB usable beside 8 sequences of 1.4 GB: 4 bits
# are enough, and so are four devices; a setting comes before hardware.
def test_the_cheapest_change_of_a_sizing_is_the_first_that_fits():
    assert changes().cheapest.what == "weights in int4_g128"
    assert changes(formats=()).cheapest.what == "4 devices"
    assert sizing(cap.Deployment(weights="bf16", tensor_parallel=2)).fits is False
    assert "cheapest change that fits: weights in int4_g128 (--weights int4_g128)" in " ".join(str(changes()).split())


def test_a_sizing_that_fits_needs_no_change():
    model, part = cap.load_model("llama-3.1-8b"), cap.load_hardware(H100)
    answer = cap.what_if(model, part, deploy=BF16)

    assert answer.holds
    assert answer.cheapest is None
    assert [item.kind for item in answer.changes] == ["format"] * 4
    assert "cheapest" not in str(answer).partition("Changes")[0]


# 4-bit weights of 40 GB take at least 11.9 ms at 3.35 TB/s: not excluded by 100 ms, never met, and too slow for 10.
def test_an_objective_is_not_met_by_the_bound_of_a_change():
    model, part = cap.load_model("llama-3.3-70b"), cap.load_hardware(H100)
    answer = cap.what_if(model, part, cap.Workload(max_tpot_s=0.1), BF16)
    (narrow,) = [item for item in answer.changes if item.what == "weights in int4_g128"]
    (late,) = [
        item
        for item in cap.what_if(model, part, cap.Workload(max_tpot_s=0.01), BF16).changes
        if item.what == "weights in int4_g128"
    ]

    assert (narrow.state, narrow.met) == ("not excluded", False)
    assert narrow.margin_s == pytest.approx(0.1 - narrow.time_s)
    assert late.state == "missed"
    assert (answer.cheapest.kind, answer.cheapest.state) == ("format", "not excluded")


def test_a_change_without_an_answer_keeps_its_reason():
    parts = [cap.load_hardware("amd-epyc-9654-socket")]
    answer = cap.what_if(cap.load_model("llama-3.1-8b"), cap.load_hardware(H100), deploy=BF16, parts=parts)

    assert [item.what for item in answer.not_evaluated] == [parts[0].name]
    with pytest.raises(CapacityError, match="unknown number format 'fp9'"):
        cap.what_if(cap.load_model("llama-3.1-8b"), cap.load_hardware(H100), deploy=BF16, formats=["fp9"])
    with pytest.raises(CapacityError, match="parts must be a list"):
        cap.what_if(cap.load_model("llama-3.1-8b"), cap.load_hardware(H100), deploy=BF16, parts="h200")


def frames(part=L4, deploy=None, **options):
    world = cap.load_world_model("mineworld-1.2b")
    settings = {"frames_per_s": 4, "sessions": 30, "elapsed_s": 60.0} | options
    return cap.frames(world, cap.load_hardware(part), deploy, **settings)


# Thirty sessions of 1.69 GiB are 51 GiB beside 2.4 GB of weights: more than two cards of 24 GB, less than four.
def test_changes_of_a_frame_rate_are_cases_of_their_own():
    found = frames(parts=[cap.load_hardware(H100)])
    by_kind = {item.kind: item for item in found.changes}
    part, devices = frames(part=H100), frames(deploy=cap.Deployment(tensor_parallel=4))

    assert by_kind["part"].time_s == pytest.approx(part.frame_s)
    assert by_kind["part"].saved_s == pytest.approx(found.frame_s - part.frame_s)
    assert by_kind["devices"].given_as == "--tensor-parallel 4"
    assert by_kind["devices"].max_batch == devices.sessions_in_memory >= 30
    assert frames(deploy=cap.Deployment(tensor_parallel=2)).sessions_in_memory < 30


# No calibration covers four devices: their frame has a bound alone, which is compared with the present bound.
def test_a_bound_is_compared_with_a_bound():
    found = frames()
    (devices,) = [item for item in found.changes if item.kind == "devices"]
    four = frames(deploy=cap.Deployment(tensor_parallel=4))

    assert found.decision.value_s is not None
    assert four.decision.value_s is None
    assert devices.saved_s == pytest.approx(found.frame_bound_s - four.frame_bound_s)


def test_a_frame_rate_that_is_met_needs_no_change():
    one = frames(part=H100, sessions=1, frames_per_s=0.5, elapsed_s=0)

    assert one.met
    assert one.cheapest is None
    slow = frames(part=L4, sessions=1, frames_per_s=1 / (0.98 * frames(sessions=1, elapsed_s=0).frame_s), elapsed_s=0)
    assert not slow.met
    assert slow.cheapest.kind == "format"
    assert "cheapest change that meets the budget: weights" in " ".join(str(slow).split())


# Robots whose weights do not fit on one card of 24 GB: two cards hold them, and say so for control as for a sizing.
def test_a_control_case_that_does_not_fit_says_on_how_many_devices_it_would():
    world, part = cap.load_world_model("openvla-7b"), cap.load_hardware(L4)
    times = {"period_s": 5.0, "sensing_s": 0.0, "preprocessing_s": 0.0, "network_s": 0.0}
    found = cap.control(world, part, taken_bytes=12 * 2**30, formats=(), **times)
    (change,) = found.changes
    two = cap.control(world, part, cap.Deployment(tensor_parallel=2), taken_bytes=12 * 2**30, formats=(), **times)

    assert not found.verdict.fits
    assert (change.kind, change.given_as, change.state) == ("devices", "--tensor-parallel 2", "not excluded")
    assert change.time_s == pytest.approx(two.verdict.latency_s)
    assert change.saved_s == pytest.approx(found.decision.bound_s - two.decision.bound_s)
    assert change.needed_bytes == two.needed_bytes


def test_the_command_lists_changes_and_refuses_them_for_all_parts(capsys):
    command = ["size", "llama-3.3-70b", H100, "--weights", "bf16", "--what-if"]
    assert run([*command, "--operators"]) == 1
    printed = capsys.readouterr().out
    assert "Changes" in printed
    assert "TTFT roofline by operator" in printed
    assert run([*command, "--other-part", H200, "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["changes"][-1]["what"] == "NVIDIA H200 SXM5 141GB"
    assert answer["cheapest"]["state"] == "met"

    assert run(["size", "llama-3.3-70b", "--all-parts", "--what-if"]) == 2
    assert "--what-if changes one part; leave out --all-parts" in " ".join(capsys.readouterr().err.split())
