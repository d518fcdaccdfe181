"""How long things take on the machine at hand; run by ``make benchmarks``. It prints and judges nothing."""

from __future__ import annotations

import subprocess
import sys
import time
from statistics import median

import numpy as np

import capacity as cap

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


def show(what, seconds, target_s):
    print(f"\n{what}: {seconds * 1e3:,.2f} ms (target {target_s * 1e3:,.0f} ms)")


def seconds_of(function, repeats):
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        function()
        times.append(time.perf_counter() - started)
    return median(times)


def test_one_warm_size():
    model, part, work, deploy = cap.load_model(MODEL), cap.load_hardware(PART), cap.Workload(), cap.Deployment()
    cap.size(model, part, work, deploy)

    show("one warm size", seconds_of(lambda: cap.size(model, part, work, deploy), 300), 1e-3)


def test_a_warm_size_of_a_model_with_windows_and_experts():
    model, part = cap.load_model("gpt-oss-120b"), cap.load_hardware("nvidia-h200-sxm5-141gb")
    cap.size(model, part)

    show("one warm size of gpt-oss-120b", seconds_of(lambda: cap.size(model, part), 300), 1e-3)


def test_import_and_one_size_over_numpy_and_pydantic():
    def once():
        done = subprocess.run([sys.executable, "-c", IMPORT_AND_SIZE], capture_output=True, text=True, check=True)
        return float(done.stdout)

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
