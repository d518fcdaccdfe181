"""Warm answers repeat no work: calls of Python functions in the package, generators counted each time they go on."""

from __future__ import annotations

import os
import sys

import pytest

import capacity as cap

PACKAGE = os.path.dirname(cap.__file__) + os.sep
CYCLE = {"period_s": 0.1, "sensing_s": 0.01, "preprocessing_s": 0.005, "network_s": 0.0}


def calls_of(function):
    calls = 0

    def count(frame, event, argument):
        nonlocal calls
        calls += event == "call" and frame.f_code.co_filename.startswith(PACKAGE)

    for _ in range(2):
        function()
    before = sys.getprofile()
    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(before)
    return calls


def test_one_size_of_a_language_model_makes_under_400_calls():
    model, part = cap.load_model("llama-3-8b"), cap.load_hardware("nvidia-h100-sxm5-80gb")
    work, deploy = cap.Workload(prompt_tokens=2048, output_tokens=256, concurrency=32), cap.Deployment(weights="bf16")

    assert 100 < calls_of(lambda: cap.size(model, part, work, deploy)) < 400


def test_one_size_of_a_world_model_makes_under_500_calls():
    world, part, deploy = (
        cap.load_world_model("openvla-7b"),
        cap.load_hardware("nvidia-h100-sxm5-80gb"),
        cap.Deployment(),
    )

    assert 100 < calls_of(lambda: cap.size(world, part, None, deploy)) < 500


@pytest.mark.parametrize("name", ["openvla-7b", "pi0"])
def test_one_control_makes_under_1400_calls(name):
    world, part = cap.load_world_model(name), cap.load_hardware("nvidia-jetson-agx-orin-64gb")
    deploy = cap.Deployment(launch_mode="graph")

    assert 400 < calls_of(lambda: cap.control(world, part, deploy, **CYCLE)) < 1400
