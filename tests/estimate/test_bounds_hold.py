"""What a bound, a roofline and an attainable time must satisfy whatever the model, the part and the deployment."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import capacity as cap
from capacity.errors import CapacityError

MODELS = [
    "llama-3-8b",
    "llama-3-70b",
    "mixtral-8x7b",
    "deepseek-v2-lite",
    "qwen3-30b-a3b",
    "gemma-3-4b",
    "falcon-7b",
    "gpt-oss-20b",
]
PARTS = [
    "nvidia-h100-sxm5-80gb",
    "nvidia-a100-sxm4-80gb",
    "nvidia-l40s-pcie-48gb",
    "nvidia-rtx-4090-24gb",
    "amd-mi300x-oam-192gb",
    "nvidia-jetson-agx-orin-64gb",
]
FORMATS = ["bf16", "fp16", "fp8_e4m3", "int8", "int4_g128"]

cases = st.fixed_dictionaries(
    {
        "model": st.sampled_from(MODELS),
        "part": st.sampled_from(PARTS),
        "weights": st.sampled_from(FORMATS),
        "kv_cache": st.sampled_from(["bf16", "fp8_e4m3", "int8"]),
        "tensor_parallel": st.sampled_from([1, 2, 4, 8]),
        "pipeline_parallel": st.sampled_from([1, 2, 3, 4]),
        "data_parallel": st.sampled_from([1, 2]),
        "batch": st.integers(1, 600),
        "tokens": st.integers(1, 8000),
    }
)


def asked(case, **more):
    """The decode step and the prefill of a drawn case; cases that cannot run are not drawn."""
    degrees = {name: case[name] for name in ("tensor_parallel", "pipeline_parallel", "data_parallel")}
    deploy = cap.Deployment(**{"weights": case["weights"], "kv_cache": case["kv_cache"], **degrees, **more})
    model, part = cap.load_model(case["model"]), cap.load_hardware(case["part"])
    try:
        step = cap.tpot(model, part, deploy, batch=case["batch"], context_tokens=case["tokens"])
        first = cap.ttft(model, part, deploy, batch=case["batch"], prompt_tokens=case["tokens"])
    except CapacityError:
        assume(False)
    return step, first


@settings(deadline=None, max_examples=120)
@given(case=cases)
def test_nothing_is_below_its_bound(case):
    for found in asked(case):
        assert 0 <= found.bound <= found.roofline * (1 + 1e-12)
        if found.attainable is not None:
            assert found.bound <= found.attainable * (1 + 1e-12)
        assert sum(row.roofline_s for row in found.rows) == pytest.approx(found.roofline, rel=1e-9)


@settings(deadline=None, max_examples=80)
@given(case=cases)
def test_no_engine_that_routes_evenly_beats_its_roofline(case):
    hardware = cap.load_hardware(case["part"])
    if any(hardware.measured_ceilings()):  # a ceiling measured above the sheet lies above the roofline, rightly
        assume(False)
    for found in asked(case, routing_exponent=1.0):
        if found.attainable is not None:
            assert found.roofline <= found.attainable * (1 + 1e-12)


# Llama-3-8B: weights of keys and values, of the rest of a layer, and of the head; 32 query heads of 128.
KEYS, REST, HEAD, LAYERS = 2 * 4096 * 1024, 2 * 4096 * 4096 + 3 * 4096 * 14336, 4096 * 128256, 32


@settings(deadline=None, max_examples=60)
@given(batch=st.integers(1, 300), prompt=st.integers(1, 8000), stages=st.integers(2, 32))
def test_a_prefill_takes_its_longest_stage(batch, prompt, stages):
    """A stage holds at most its share of the bytes or of the FLOP, whichever is the larger."""
    pairs = prompt * (prompt + 1) / 2
    layer_flop = batch * (2 * prompt * (KEYS + REST) + 4 * 4096 * pairs)
    last_flop = batch * (2 * prompt * KEYS + 2 * REST + 4 * 4096 * prompt)
    head_flop = batch * 2 * HEAD
    held = [LAYERS // stages + (rank < LAYERS % stages) for rank in range(stages)]
    moved = [layers * (KEYS + REST) for layers in held]
    flop = [layers * layer_flop for layers in held]
    moved[-1] += HEAD
    flop[-1] += last_flop - layer_flop + head_flop
    share = max(max(moved) / sum(moved), max(flop) / sum(flop))

    model, part = (
        cap.load_model("llama-3-8b"),
        cap.load_hardware("nvidia-a100-sxm4-80gb").replace(**{"memory.l2_bytes": 1}),
    )
    one, many = (
        cap.ttft(
            model,
            part,
            cap.Deployment(weights="bf16", activations="bf16", pipeline_parallel=degree),
            batch=batch,
            prompt_tokens=prompt,
        ).bound
        for degree in (1, stages)
    )
    assert many <= one * share * (1 + 1e-3)  # norms are not counted here


@settings(deadline=None, max_examples=60)
@given(case=cases)
def test_a_format_or_path_added_to_a_part_never_raises_a_bound(case):
    hardware = cap.load_hardware(case["part"])
    fastest = max(hardware.peak_flop_per_s.values())
    tables = ("peak_flop_per_s", "peak_flop_per_s_narrow")
    absent = [f"{table}.{name}" for table in tables for name in FORMATS[:4] if name not in getattr(hardware, table)]
    more = hardware.replace(**dict.fromkeys(absent, 2 * fastest))
    deploy = cap.Deployment(weights=case["weights"], kv_cache=case["kv_cache"])
    model = cap.load_model(case["model"])
    numbers = {"batch": case["batch"], "prompt_tokens": case["tokens"]}
    try:
        before, after = (cap.ttft(model, part, deploy, **numbers).bound for part in (hardware, more))
    except CapacityError:
        assume(False)
    assert after <= before * (1 + 1e-12)


@pytest.mark.parametrize("name", ["qwen3-0.6b", "tinyllama-1.1b"])
def test_the_bound_is_continuous_where_a_model_outgrows_the_cache(name):
    """From caches that hold nothing to those that hold all, no byte of cache saves more than its own time."""
    model, deploy = cap.load_model(name), cap.Deployment(weights="bf16", activations="bf16")
    part = cap.load_hardware("nvidia-h100-sxm5-80gb")
    weights = cap.weight_bytes(model, deploy)
    sizes = np.linspace(1, 1.2 * weights, 200).astype(int)
    step = sizes[1] - sizes[0]
    found = [
        cap.tpot(model, part.replace(**{"memory.l2_bytes": int(size)}), deploy, batch=1, context_tokens=100).bound
        for size in sizes
    ]
    falls = -np.diff(found)

    assert (falls >= -1e-15).all()
    assert falls.max() <= step * 1.01 / part.memory.bytes_per_s
    assert found[-1] > 0
