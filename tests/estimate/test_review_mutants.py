"""Mutants of a review that no test killed: pipelines, links, experts over devices, rates above the datasheet.

Parts have round figures. Bytes on links follow from two attainable times that differ only in the rate of the links:
operators, launches and the fixed times of messages cancel.
"""

from __future__ import annotations

import pytest

import capacity as cap
from capacity.specs.calibration import Calibration
from capacity.specs.deployment import Draft
from capacity.specs.model import Attention, Dense, LayerGroup

HIDDEN = 4096 * 2  # bytes of the hidden state of a token of llama-3-8b and mixtral-8x7b, 16 bit
ENDLESS = {"bf16": 1e18, "fp16": 1e18}  # arithmetic that takes no time worth speaking of
SLOW, FAST = 50e9, 100e9
ABOVE = {"value": 2.0, "reason": "a test of rates above the sheet"}


@pytest.fixture
def part_with(make_part):
    """Makes a part of 2 TB/s whose arithmetic takes no time, with other figures where they are given."""

    def make(name="round", *, peaks=ENDLESS, links=None, memory=None, **measured):
        table = make_part(name, gib=4096).model_dump() | {"peak_flop_per_s": dict(peaks)}
        table["memory"] |= memory or {}
        table["measured"] = measured
        table["exceptions"] = {f"measured.{name}": ABOVE for name in _figures(measured)}
        table["links"] = links and {"kind": "link of a test"} | links
        return cap.load_hardware(table)

    return make


def _figures(measured):
    """Dotted names of measured figures."""
    for name, value in measured.items():
        yield from [f"{name}.{path}" for path in value] if isinstance(value, dict) else [name]


@pytest.fixture
def link_bytes(part_with):
    """Bytes on links of a decode step, from its attainable times with links of two rates."""

    def find(model, deploy, batch, changed="bytes_per_s_per_direction", **fixed):
        measured = {"read_bytes_per_s": 2e12, "gemm_flop_per_s": ENDLESS} | fixed.pop("measured", {})
        slow, fast = (
            cap.tpot(
                model, part_with(links=fixed | {changed: rate}, **measured), deploy, batch=batch, context_tokens=64
            ).attainable
            for rate in (SLOW, FAST)
        )
        return (slow - fast) / (1 / SLOW - 1 / FAST)

    return find


def bf16(**degrees):
    return cap.Deployment(weights="bf16", **degrees)


# A pipeline of two keeps two micro-batches in flight: of three sequences the larger one has two. A step of it reads the
# weights of both stages once and the cache of 2 x 1023 tokens: 32 layers, 8 heads, keys and values of 128, 16 bit. An
# engine may cut smaller micro-batches, of one and a half sequences in the mean.
def test_a_decode_step_of_a_pipeline_takes_the_larger_micro_batch(part_with, llama_3_8b):
    found = cap.tpot(llama_3_8b, part_with(), bf16(pipeline_parallel=2), batch=3, context_tokens=1024)

    weights, cache = (8_030_261_248 - 128_256 * 4096) * 2, 1023 * 32 * 8 * 2 * 128 * 2
    assert found.roofline == pytest.approx((weights + 2 * cache) / 2e12, rel=1e-9)
    assert found.bound == pytest.approx((weights + 1.5 * cache) / 2e12, rel=1e-9)


# Chunks of the three prompts flow through both stages, each of which does half of the layers: 2 FLOP per matrix weight
# and token and the causal half of attention. The second stage also has the head, for the last token of each.
def test_a_prefill_of_a_pipeline_takes_its_longest_stage(part_with, llama_3_8b):
    part = part_with(peaks={"bf16": 1e14, "fp16": 1e14}, memory={"bytes_per_s": 1e15})
    found = cap.ttft(llama_3_8b, part, bf16(pipeline_parallel=2), batch=3, prompt_tokens=4096).roofline

    matrices, head = (8_030_261_248 - 2 * 128_256 * 4096 - 65 * 4096) / 2, 128_256 * 4096
    pairs = 16 * 32 * 4 * 128 * 4096 * 4097 / 2
    assert found == pytest.approx(3 * (2 * matrices * 4096 + 2 * head + pairs) / 1e14, rel=1e-6)


# Four stages have three boundaries; five sequences pass them two at a time.
def test_a_pipeline_hands_the_hidden_state_over_each_of_its_boundaries(link_bytes, llama_3_8b):
    found = link_bytes(llama_3_8b, bf16(pipeline_parallel=4), batch=5)

    assert found == pytest.approx(3 * 2 * HIDDEN, rel=1e-6)


# Each token goes to two experts of eight in each of 32 layers and comes back from them. Of two devices, each holding
# half of the experts, the other has at least one of the two with probability 3/4; one copy serves both.
def test_expert_parallelism_sends_a_token_once_to_each_device_with_its_experts(link_bytes, mixtral_8x7b):
    found = link_bytes(mixtral_8x7b, bf16(data_parallel=2, expert_parallel=2), batch=6)

    assert found == pytest.approx(2 * 32 * (3 / 4) * 3 * HIDDEN, rel=1e-6)


# nccl-tests: an all-reduce moves 2 (n - 1) / n of its size, a gather (n - 1) / n. One after each mixer, one after each
# feed-forward, one after the table, and the logits of 128,256 tokens in 16 bit.
@pytest.mark.parametrize("devices", [4, 8])
def test_tensor_parallelism_sums_twice_per_layer_and_once_for_the_table(link_bytes, llama_3_8b, devices):
    found = link_bytes(llama_3_8b, bf16(tensor_parallel=devices), batch=3)

    sums, logits = (2 * 32 + 1) * 2 * HIDDEN, 128_256 * 2
    assert found == pytest.approx(3 * (sums + logits) * (devices - 1) / devices, rel=1e-6)


# Without a switch each peer gets a share of the links of a device: two devices use that share, four use all of them.
def test_two_devices_exchange_at_the_rate_to_one_peer(link_bytes, llama_3_8b):
    links = {"bytes_per_s_per_direction": 400e9, "changed": "bytes_per_s_per_peer"}
    two, four = (link_bytes(llama_3_8b, bf16(tensor_parallel=n), batch=3, **links) for n in (2, 4))

    assert two == pytest.approx(3 * ((2 * 32 + 1) * 2 * HIDDEN + 128_256 * 2) / 2, rel=1e-6)
    assert four == pytest.approx(0, abs=1)


def test_two_devices_exchange_no_faster_than_a_bus_that_was_measured(link_bytes, llama_3_8b):
    links = {"bytes_per_s_per_direction": 400e9, "changed": "bytes_per_s_per_peer"}
    found = link_bytes(llama_3_8b, bf16(tensor_parallel=2), batch=3, measured={"allreduce_bytes_per_s": 40e9}, **links)

    assert found == pytest.approx(0, abs=1)


# Llama 4: a layer with chunks of 512 lets a token attend to its own chunk. The 1024th token attends to all 512 keys of
# the second chunk, 511 of them from the cache; the 1025th starts a chunk and attends to itself. A pair of 16 heads of
# 64 takes 2 x 2 x 16 x 64 FLOP, a cached token of 4 heads has 2 x 4 x 64 values of 2 bytes; there are three layers.
@pytest.mark.parametrize(("context", "keys"), [(512, 512), (1024, 512), (1025, 1), (1026, 2), (5 * 512, 512)])
def test_a_chunked_layer_attends_to_the_keys_of_the_current_chunk(part_with, make_decoder, context, keys):
    mixer = Attention(query_heads=16, kv_heads=4, head_size=64, span="chunked", window=512)
    group = LayerGroup(indices=(0, 1, 2), mixer=mixer, feed_forward=Dense(intermediate_size=2048))
    model = make_decoder("chunks", 1024, 1000, [group])
    rows = cap.tpot(model, part_with(), bf16(), batch=1, context_tokens=context).rows
    attention = next(row for row in rows if row.operator == "attention")

    assert attention.flop == 3 * keys * 4 * 16 * 64
    assert attention.moved_bytes == 3 * (keys - 1) * 2 * 4 * 64 * 2


# No bound may be beaten by a rate that some run reached, whichever kind of run that was.
@pytest.mark.parametrize("best", ["read_bytes_per_s", "gemv_bytes_per_s", "read_bytes_per_s_typical"])
def test_a_bound_reads_at_the_highest_rate_that_was_measured(part_with, llama_3_8b, best):
    names = ("read_bytes_per_s", "gemv_bytes_per_s", "read_bytes_per_s_typical")
    part = part_with(**{name: 2.1e12 + 1e10 * at for at, name in enumerate(names)} | {best: 2.5e12})
    found = cap.tpot(llama_3_8b, part, bf16(), batch=1, context_tokens=1024).bound

    weights = (8_030_261_248 - 128_256 * 4096) * 2
    assert found == pytest.approx((weights + 1023 * 32 * 8 * 2 * 128 * 2) / 2.5e12, rel=1e-9)


@pytest.mark.parametrize("best", ["gemm_flop_per_s", "gemm_flop_per_s_sustained", "gemm_flop_per_s_typical"])
def test_a_bound_computes_at_the_highest_rate_that_was_measured(part_with, llama_3_8b, best):
    names = ("gemm_flop_per_s", "gemm_flop_per_s_sustained", "gemm_flop_per_s_typical")
    seen = {name: {"bf16": 1.1e14 + 1e12 * at} for at, name in enumerate(names)} | {best: {"bf16": 1.5e14}}
    part = part_with(peaks={"bf16": 1e14, "fp16": 1e14}, memory={"bytes_per_s": 1e15}, **seen)
    found = cap.ttft(llama_3_8b, part, bf16(), batch=1, prompt_tokens=4096).bound

    # 31 layers on all tokens; of the last, keys and values on all and everything else on the last token.
    layer, head = (8_030_261_248 - 2 * 128_256 * 4096 - 65 * 4096) / 32, 128_256 * 4096
    kept, pairs = 2 * 4096 * 1024, 32 * 4 * 128
    matrices = 2 * (31 * layer * 4096 + kept * 4096 + (layer - kept) + head)
    assert found == pytest.approx((matrices + pairs * (31 * 4096 * 4097 / 2 + 4096)) / 1.5e14, rel=1e-6)


IN_FP8 = tuple({"part": part, "format": "fp8_e4m3"} for part in ("lm_head", "embedding", "vision"))
FP8 = cap.Deployment(weights="fp8_e4m3", activations="fp8_e4m3", kv_cache="fp8_e4m3", overrides=IN_FP8)


def prefill_s(part, deploy):
    settings = {"period_s": 1.0, "sensing_s": 0.0, "preprocessing_s": 0.0, "network_s": 0.0, "formats": ()}
    found = cap.control(cap.load_world_model("example-robot"), part, deploy.replace(launch_mode="graph"), **settings)
    return found.decision.phase("prefill").value_s


# A part that multiplies bf16 at 1.2 times its datasheet was clocked higher than that assumes; in fp8, which was not
# measured, no more than the datasheet can be taken for granted.
def test_a_rate_above_the_sheet_lifts_no_format_that_was_not_measured(part_with):
    peaks = {"bf16": 1e13, "fp16": 1e13, "fp8_e4m3": 2e13}
    sheet, above = (
        part_with(peaks=peaks, read_bytes_per_s=2e12, gemm_flop_per_s={"bf16": rate}) for rate in (1e13, 1.2e13)
    )

    assert prefill_s(above, FP8) == prefill_s(sheet, FP8)
    assert prefill_s(above, bf16()) < 0.9 * prefill_s(sheet, bf16())


# On a part that is compute bound in every pass, and so slow that the fixed times of layers vanish, time is proportional
# to tokens: a verification of six tokens takes six steps. A perfect draft makes 19 further tokens in
# ceil(19 / 6) = 4 verifications, so in the time of 24 steps.
def test_speculation_loses_where_verifying_a_batch_costs_as_much_as_decoding_it(part_with):
    part = part_with(peaks={"bf16": 1e11, "fp16": 1e11}, memory={"bytes_per_s": 1e15})
    settings = {"period_s": 1.0, "sensing_s": 0.0, "preprocessing_s": 0.0, "network_s": 0.0, "p99_over_p50": 1.0}
    draft = Draft(tokens=5, acceptance=1.0, cost=0.0)
    world = cap.load_world_model("example-robot")
    found = cap.control(world, part, bf16(), robots=8, draft=draft, formats=(), **settings)
    decode = found.decision.phase("decode")
    change = next(item for item in found.changes if item.kind == "speculation")

    assert decode.passes == 19
    assert change.saved_s == pytest.approx(decode.value_s * (19 - 24) / 19, rel=0.02)


# 16-bit llama-3-8b in decode: all weights but the table, and a cache of 1023 tokens, read at 2 TB/s.
STEP_S = ((8_030_261_248 - 128_256 * 4096) * 2 + 1023 * 32 * 8 * 2 * 128 * 2) / 2e12


@pytest.mark.parametrize(
    ("constants", "expected_s"),
    [
        ({}, STEP_S),
        ({"host_floor_s": 0.020}, 0.020),
        ({"host_floor_s": 0.001}, STEP_S),
        ({"prefill_share": 0.25}, STEP_S * 4 / 3),
        ({"layer_s": 1e-4}, STEP_S + 32e-4),
        ({"sequence_s": 1e-3}, STEP_S + 1e-3),
        ({"memory_efficiency": {"default": 0.5}}, STEP_S * 2),
        ({"read_bytes_per_s": 1e12}, STEP_S * 2),
    ],
)
def test_each_constant_of_a_calibration_reaches_the_estimate(part_with, llama_3_8b, monkeypatch, constants, expected_s):
    found = Calibration(
        name=f"of a test: {constants}",
        scope={"model_kind": "language", "phase": "decode"},
        band_low=0.9,
        band_high=1.1,
        points=("one",),
        **constants,
    )
    monkeypatch.setattr("capacity.estimate.calibrated.calibrations", lambda: (found,))
    part = part_with(found.name)  # a part that no other test has asked about
    estimate = cap.tpot(llama_3_8b, part, bf16(), batch=1, context_tokens=1024)

    assert estimate.value == pytest.approx(expected_s, rel=1e-6)
    assert (estimate.low, estimate.high) == pytest.approx(
        (max(estimate.bound, 0.9 * expected_s), 1.1 * expected_s), rel=1e-6
    )
