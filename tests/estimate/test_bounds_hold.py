"""What a bound, a roofline and an attainable time must satisfy whatever the model, the part and the deployment."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

import capacity as cap
from capacity.errors import CapacityError

FORMATS = ["bf16", "fp16", "fp8_e4m3", "int8", "int4_g128", "mxfp4", "nvfp4", "q8_0", "q4_k", "fp32"]


@st.composite
def shapes(draw):
    """A configuration of a shape that no shipped model has: dense, sliding or with experts."""
    kv_heads, groups = draw(st.sampled_from([1, 2, 4, 8, 16])), draw(st.sampled_from([1, 2, 4, 7, 8]))
    config = {
        "model_type": draw(st.sampled_from(["llama", "mistral", "mixtral", "qwen2"])),
        "hidden_size": 128 * draw(st.integers(1, 128)),
        "intermediate_size": 128 * draw(st.integers(1, 256)),
        "num_hidden_layers": draw(st.integers(1, 100)),
        "num_attention_heads": kv_heads * groups,
        "num_key_value_heads": kv_heads,
        "head_dim": draw(st.sampled_from([64, 128, 256])),
        "vocab_size": draw(st.integers(100, 300_000)),
        "max_position_embeddings": 32_768,
        "tie_word_embeddings": draw(st.booleans()),
        "torch_dtype": "bfloat16",
    }
    if config["model_type"] == "mixtral":
        experts = draw(st.integers(1, 256))
        config |= {"num_local_experts": experts, "num_experts_per_tok": draw(st.integers(1, experts))}
    if config["model_type"] in ("mistral", "mixtral"):
        config["sliding_window"] = draw(st.sampled_from([None, 64, 4096]))
    if config["model_type"] == "qwen2":
        config["hidden_size"] = config["num_attention_heads"] * config.pop("head_dim")
    return config


cases = st.fixed_dictionaries(
    {
        "model": st.one_of(st.sampled_from(cap.model_ids()), shapes()),
        "part": st.sampled_from(cap.hardware_ids()),
        "weights": st.sampled_from(FORMATS),
        "activations": st.sampled_from([None, None, None, "bf16", "fp16", "fp8_e4m3"]),
        "kv_cache": st.sampled_from([None, "bf16", "fp8_e4m3", "int8"]),
        "tensor_parallel": st.sampled_from([1, 1, 2, 4, 8]),
        "pipeline_parallel": st.sampled_from([1, 1, 2, 3, 4]),
        "data_parallel": st.sampled_from([1, 1, 2, 3]),
        "expert_parallel": st.sampled_from([None, None, 2, 4]),
        "batch": st.integers(1, 600),
        "tokens": st.integers(1, 20_000),
    }
)
SINGLE = {"kv_cache": None, "tensor_parallel": 1, "pipeline_parallel": 1, "data_parallel": 1, "expert_parallel": None}
SLOWER_FP16 = SINGLE | {"part": "intel-gaudi-3-oam-128gb", "activations": "fp16"}  # its fp16 path was never measured
ABOVE_ITS_SHEET = SINGLE | {"part": "nvidia-rtx-3090-24gb", "activations": None}  # 1.1 x its peak in bf16
BLOOM = {"model": "bloom", "weights": "bf16", "batch": 1, "tokens": 139}
PATHS = ["bf16", "fp16", "fp8_e4m3", "int8", "nvfp4"]
DEPLOYED = ("weights", "activations", "kv_cache")
DEGREES = ("tensor_parallel", "pipeline_parallel", "data_parallel", "expert_parallel")


def asked(case, **more):
    """The decode step and the prefill of a drawn case; cases that cannot run are not drawn."""
    try:
        deploy = cap.Deployment(**{name: case[name] for name in (*DEPLOYED, *DEGREES)}, **more)
        model, part = cap.load_model(case["model"]), cap.load_hardware(case["part"])
        step = cap.tpot(model, part, deploy, batch=case["batch"], context_tokens=case["tokens"])
        first = cap.ttft(model, part, deploy, batch=case["batch"], prompt_tokens=case["tokens"])
    except CapacityError:
        assume(False)
    return step, first


@settings(deadline=None, max_examples=200)
@given(case=cases)
@example(case=BLOOM | SLOWER_FP16)
def test_nothing_is_below_its_bound(case):
    for found in asked(case):
        assert 0 <= found.bound <= found.roofline * (1 + 1e-12)
        if found.attainable is not None:
            assert found.bound <= found.attainable * (1 + 1e-12)
        assert sum(row.roofline_s for row in found.rows) == pytest.approx(found.roofline, rel=1e-9)


decisions = st.fixed_dictionaries(
    {
        "world": st.sampled_from(cap.world_model_ids()),
        "part": st.sampled_from(cap.hardware_ids()),
        "weights": st.sampled_from(["bf16", "fp16", "fp8_e4m3", "int8", "int4_g128"]),
        "robots": st.integers(1, 300),
    }
)
NO_OVERHEAD = {"sensing_s": 0.0, "preprocessing_s": 0.0, "network_s": 0.0, "formats": ()}


@settings(deadline=None, max_examples=80)
@given(case=decisions)
def test_no_phase_of_a_decision_is_below_its_bound(case):
    world, part = cap.load_world_model(case["world"]), cap.load_hardware(case["part"])
    try:
        found = cap.control(
            world, part, cap.Deployment(weights=case["weights"]), period_s=1.0, robots=case["robots"], **NO_OVERHEAD
        )
    except CapacityError:
        assume(False)
    for item in (found.decision, *found.decision.phases):
        reached = [value for value in (item.roofline_s, item.attainable_s, item.value_s) if value is not None]
        assert 0 <= item.bound_s <= min(reached) * (1 + 1e-12)


def measured_rates(hardware):
    """Tables of measured matrix rates."""
    seen = hardware.measured
    return seen.gemm_flop_per_s, seen.gemm_flop_per_s_sustained, seen.gemm_flop_per_s_typical


def exceeds_its_sheet(hardware):
    """Whether a rate was measured above the datasheet: the attainable time then lies below the roofline, rightly."""
    seen, peaks = hardware.measured, hardware.peak_flop_per_s
    reads = [seen.read_bytes_per_s, seen.gemv_bytes_per_s, seen.read_bytes_per_s_typical]
    rates = [rate / peaks[name] for table in measured_rates(hardware) for name, rate in table.items() if name in peaks]
    return max([(rate or 0.0) / hardware.memory.bytes_per_s for rate in reads] + rates) > 1


@settings(deadline=None, max_examples=80)
@given(case=cases)
def test_no_engine_that_routes_evenly_beats_its_roofline(case):
    assume(not exceeds_its_sheet(cap.load_hardware(case["part"])))
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
@example(case=BLOOM | ABOVE_ITS_SHEET)
def test_a_format_or_path_added_to_a_part_never_raises_a_bound(case):
    hardware = cap.load_hardware(case["part"])
    assume(hardware.peak_flop_per_s)
    fastest = max(hardware.peak_flop_per_s.values())
    tables = ("peak_flop_per_s", "peak_flop_per_s_narrow")
    # A new sheet peak of a format that was measured would say that the part exceeds its sheet by less.
    names = [name for name in PATHS if not any(name in table for table in measured_rates(hardware))]
    absent = [f"{table}.{name}" for table in tables for name in names if name not in getattr(hardware, table)]
    more = hardware.replace(**dict.fromkeys(absent, 2 * fastest))
    deploy = cap.Deployment(**{name: case[name] for name in DEPLOYED})
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
