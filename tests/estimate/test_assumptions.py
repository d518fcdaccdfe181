"""What an answer assumes depends on the fields that were set, not on which equal deployment was asked first."""

from __future__ import annotations

import pytest

import capacity as cap

PART = "nvidia-h100-sxm5-80gb"


def lines_about(name, assumed):
    return [line for line in assumed if line.startswith(f"{name} = ")]


@pytest.mark.parametrize("order", [1, -1])
def test_equal_deployments_that_set_other_fields_assume_other_things(order):
    model, part = cap.load_model("llama-3.2-1b"), cap.load_hardware(PART)
    silent, stated = cap.Deployment(weights="bf16"), cap.Deployment(weights="bf16", memory_fraction=0.9)
    assert silent == stated

    found = {}
    for deploy in (silent, stated)[::order]:
        tpot = cap.tpot(model, part, deploy, batch=1 + (order > 0), context_tokens=64)
        found[deploy is silent] = lines_about("memory_fraction", tpot.assumed)

    assert found == {True: ["memory_fraction = 0.9"], False: []}


def test_a_replaced_deployment_assumes_what_the_original_left_open():
    deploy = cap.Deployment(weights="bf16").replace(tensor_parallel=2)

    assert deploy.model_fields_set == {"weights", "tensor_parallel"}
    sizing = cap.size(cap.load_model("llama-3.2-1b"), cap.load_hardware(PART), None, deploy)
    assert lines_about("memory_fraction", sizing.assumed) == ["memory_fraction = 0.9"]
    assert lines_about("memory_fraction", sizing.tpot.assumed) == ["memory_fraction = 0.9"]


def test_control_with_an_assumed_launch_mode_tells_equal_deployments_apart():
    world, part = cap.load_world_model("pi0"), cap.load_hardware(PART)
    cycle = {"period_s": 0.5, "sensing_s": 0.01, "preprocessing_s": 0.005, "network_s": 0.0}

    silent = cap.control(world, part, cap.Deployment(), **cycle)
    stated = cap.control(world, part, cap.Deployment(memory_fraction=0.9), **cycle)

    assert [lines_about("memory_fraction", plan.decision.assumed) for plan in (silent, stated)] == [
        ["memory_fraction = 0.9"],
        [],
    ]
