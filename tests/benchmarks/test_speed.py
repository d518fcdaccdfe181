"""How long things take on the machine at hand; run by ``make benchmarks``. It prints and judges nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from itertools import product
from statistics import median

import numpy as np

import capacity as cap
from capacity.demand.decisions import decision_phases
from capacity.estimate.case import prepare
from capacity.estimate.decision import decision_s

MODEL, PART = "llama-3.1-8b", "nvidia-h100-sxm5-80gb"
IMPORT_AND_SIZE = f"""
import sys, time
import numpy
from pydantic import BaseModel
class One(BaseModel):
    x: int
started = time.perf_counter()
import capacity
capacity.size(capacity.load_model({MODEL!r}), capacity.load_hardware({PART!r}))
print(time.perf_counter() - started)
"""


PACKAGE = os.path.dirname(cap.__file__) + os.sep
CYCLE = {"period_s": 0.1, "sensing_s": 0.01, "preprocessing_s": 0.005, "network_s": 0.0}
ROBOT_PARTS = [
    "nvidia-h100-sxm5-80gb",
    "nvidia-h200-sxm5-141gb",
    "nvidia-a100-sxm4-80gb",
    "nvidia-l4-pcie-24gb",
    "nvidia-rtx-4090-24gb",
    "nvidia-jetson-agx-orin-64gb",
    "nvidia-jetson-agx-thor-128gb",
    "nvidia-jetson-orin-nano-8gb",
]


def show(what, seconds, target_s=None):
    target = "" if target_s is None else f" (target {target_s * 1e3:,.0f} ms)"
    print(f"\n{what}: {seconds * 1e3:,.2f} ms{target}")


def seconds_of(function, repeats):
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        function()
        times.append(time.perf_counter() - started)
    return median(times)


def calls_of(function):
    """Python calls inside the package during one call, generators counted each time they go on."""
    calls = 0

    def count(frame, event, argument):
        nonlocal calls
        calls += event == "call" and frame.f_code.co_filename.startswith(PACKAGE)

    sys.setprofile(count)
    try:
        function()
    finally:
        sys.setprofile(None)
    return calls


def show_calls(what, function, target):
    print(f"\n{what}: {calls_of(function):,} Python calls in capacity (target {target:,})")


def test_one_warm_size():
    model, part, work, deploy = cap.load_model(MODEL), cap.load_hardware(PART), cap.Workload(), cap.Deployment()
    cap.size(model, part, work, deploy)

    show("one warm size", seconds_of(lambda: cap.size(model, part, work, deploy), 300), 1e-3)
    show_calls("one warm size", lambda: cap.size(model, part, work, deploy), 400)


def test_one_warm_size_of_a_world_model():
    world, part, deploy = cap.load_world_model("openvla-7b"), cap.load_hardware(PART), cap.Deployment()
    cap.size(world, part, None, deploy)

    show("one warm size of openvla-7b", seconds_of(lambda: cap.size(world, part, None, deploy), 300), 1e-3)
    show_calls("one warm size of openvla-7b", lambda: cap.size(world, part, None, deploy), 500)


def test_one_warm_control():
    part = cap.load_hardware("nvidia-jetson-agx-orin-64gb")
    for name in ("openvla-7b", "pi0"):
        world, deploy = cap.load_world_model(name), cap.Deployment(launch_mode="graph")

        def once(world=world, deploy=deploy):
            cap.control(world, part, deploy, **CYCLE)

        once()
        show(f"one warm control of {name}", seconds_of(once, 100), 5e-3)
        show_calls(f"one warm control of {name}", once, 1400)


def test_a_thousand_robot_questions():
    """A grid of 8 parts and 125 batches: each part answers all its batches in one call."""
    world, deploy = cap.load_world_model("openvla-7b"), cap.Deployment(launch_mode="graph")
    parts, batches = [cap.load_hardware(name) for name in ROBOT_PARTS], np.arange(1, 126)

    def decisions(part, batch):
        times, estimated = decision_s(prepare(world, part, deploy), decision_phases(world, deploy, batch=batch))
        assert estimated
        return times

    def once():
        assert sum(decisions(part, batches).size for part in parts) == 1000

    def one_by_one():
        for part, batch in product(parts, batches.tolist()):
            decisions(part, batch)

    once()
    show("a thousand robot questions, vectorised", seconds_of(once, 30))
    show("a thousand robot questions, one by one", seconds_of(one_by_one, 1))


def test_a_warm_size_of_a_model_with_windows_and_experts():
    model, part = cap.load_model("gpt-oss-120b"), cap.load_hardware("nvidia-h200-sxm5-141gb")
    cap.size(model, part)

    show("one warm size of gpt-oss-120b", seconds_of(lambda: cap.size(model, part), 300), 1e-3)


def test_import_and_one_size_over_numpy_and_pydantic(tmp_path):
    """With compiled bytecode, as an installed package has it, even where the environment writes none."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(tmp_path)

    def once():
        command = [sys.executable, "-c", IMPORT_AND_SIZE]
        run = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        return float(run.stdout)

    once()  # writes the bytecode
    show("import capacity; capacity.size", median(once() for _ in range(5)), 0.15)


def test_size_on_the_command_line():
    command = [sys.executable, "-m", "capacity.cli", "size", MODEL, PART]

    show("capacity size, wall", seconds_of(lambda: subprocess.run(command, capture_output=True, check=True), 5), 1.0)


def test_a_million_pairs_of_batch_and_context():
    model, part, deploy = cap.load_model(MODEL), cap.load_hardware(PART), cap.Deployment()
    batches, contexts = np.arange(1, 1001)[:, None], np.arange(1, 100_001, 100)[None, :]

    def once():
        assert cap.tpot(model, part, deploy, batch=batches, context_tokens=contexts).bound.size == 10**6

    show("tpot over a million pairs", seconds_of(once, 3), 1.0)
