"""Limits against the ledger, arrays against scalars, and how caches divide over devices."""

from __future__ import annotations

import tracemalloc
from functools import cache

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import capacity as cap
from capacity.estimate.case import prepare
from capacity.estimate.ledger import ledgers
from capacity.specs.model import LayerGroup, StateMixer
from capacity.specs.state_mixer import StateTensor

PART = "nvidia-h100-sxm5-80gb"
# Dense, grouped, windowed, routed and latent; formats that leave something to fit.
MODELS = {
    "llama-2-7b": (1, 2, 4, 8),
    "llama-3-8b": (1, 2, 8, 16),
    "gpt-oss-20b": (1, 2, 4, 8),
    "mixtral-8x7b": (2, 4, 8),
    "deepseek-v3": (16, 32),
}


@cache
def part():
    return cap.load_hardware(PART)


@st.composite
def deployments(draw):
    """A model and a deployment that it can have."""
    name = draw(st.sampled_from(sorted(MODELS)))
    tensor, data = draw(st.sampled_from(MODELS[name])), draw(st.sampled_from([1, 2, 4]))
    deploy = cap.Deployment(
        weights=draw(st.sampled_from(["bf16", "fp8_e4m3", "q4_0"])),
        kv_cache=draw(st.sampled_from(["bf16", "fp8_e4m3"])),
        tensor_parallel=tensor,
        data_parallel=data,
        pipeline_parallel=draw(st.sampled_from([1, 2, 3])),
        block_tokens=draw(st.sampled_from([1, 16, 64, 100])),
        prefill_chunk_tokens=draw(st.sampled_from([1, 512, 8192])),
    )
    return cap.load_model(name), deploy


def fits(model, deploy, batch, context):
    """The verdict of the ledger, which adds up its lines and knows nothing of limits."""
    case = prepare(model, part(), deploy)
    found = ledgers(case.memory, case.budget, deploy, batch=batch, context_tokens=context)
    return all(ledger.margin_bytes >= 0 for ledger in found)


slow = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@slow
@given(deployments(), st.integers(1, 200_000))
def test_max_batch_fits_and_one_more_does_not(case, context):
    model, deploy = case

    most = cap.max_batch(model, part(), deploy, context_tokens=context)

    assert most == 0 or fits(model, deploy, most, context)
    assert most % deploy.data_parallel == 0
    assert not fits(model, deploy, most + 1, context)


@slow
@given(deployments(), st.integers(1, 300))
def test_max_context_fits_and_one_more_does_not(case, batch):
    model, deploy = case

    most = cap.max_context(model, part(), deploy, batch=batch)

    assert most == 0 or fits(model, deploy, batch, most)
    assert most <= model.positions
    assert most == model.positions or not fits(model, deploy, batch, most + 1)


@slow
@given(deployments(), st.integers(1, 100_000), st.integers(1, 100_000))
def test_more_context_never_allows_more_sequences(case, one, other):
    model, deploy = case
    short, long = sorted((one, other))

    batches = cap.max_batch(model, part(), deploy, context_tokens=np.array([short, long]))

    assert batches[0] >= batches[1]


BATCHES, CONTEXTS = np.array([[1], [3], [64]]), np.array([1, 1000, 4095, 100_000])


@pytest.mark.parametrize("name", sorted(MODELS))
@pytest.mark.parametrize("degrees", [{}, {"pipeline_parallel": 2, "data_parallel": 2}])
def test_an_array_holds_what_scalars_give(name, degrees):
    model = cap.load_model(name)
    deploy = cap.Deployment(weights="bf16", tensor_parallel=MODELS[name][-1], **degrees)
    held = cap.kv_cache_bytes(model, deploy, batch=BATCHES, context_tokens=CONTEXTS)
    peaks = cap.activation_bytes(model, deploy, batch=BATCHES, tokens=CONTEXTS)
    steps = cap.tpot(model, part(), deploy, batch=BATCHES, context_tokens=CONTEXTS)
    firsts = cap.ttft(model, part(), deploy, batch=BATCHES, prompt_tokens=CONTEXTS)
    longest = cap.max_context(model, part(), deploy, batch=BATCHES[:, 0])
    largest = cap.max_batch(model, part(), deploy, context_tokens=CONTEXTS)

    for row, batch in enumerate(BATCHES[:, 0].tolist()):
        assert longest[row] == cap.max_context(model, part(), deploy, batch=batch)
        for column, context in enumerate(CONTEXTS.tolist()):
            one = cap.tpot(model, part(), deploy, batch=batch, context_tokens=context)
            first = cap.ttft(model, part(), deploy, batch=batch, prompt_tokens=context)
            place = (row, column)
            assert held[place] == cap.kv_cache_bytes(model, deploy, batch=batch, context_tokens=context)
            assert peaks[place] == cap.activation_bytes(model, deploy, batch=batch, tokens=context)
            assert steps.bound[place] == pytest.approx(one.bound, rel=1e-12)
            assert steps.roofline[place] == pytest.approx(one.roofline, rel=1e-12)
            assert ("memory", "compute")[steps.bound_by[place]] == one.bound_by
            assert steps.operators[steps.largest_operator[place]] == one.largest_operator
            assert bool(steps.fits[place]) == one.fits
            assert firsts.bound[place] == pytest.approx(first.bound, rel=1e-12)
            assert largest[column] == cap.max_batch(model, part(), deploy, context_tokens=context)


def test_a_model_without_a_cache_answers_in_the_shape_asked(make_decoder):
    mixer = StateMixer(
        name="mamba2",
        heads=4,
        matrices=({"name": "in", "rows": 512, "columns": 256},),
        state=(StateTensor(name="ssm", elements=4096, kind="recurrent"),),
    )
    model = make_decoder("state", 256, 512, [LayerGroup(indices=(0, 1), mixer=mixer, feed_forward={"kind": "none"})])
    deploy = cap.Deployment(weights="bf16")
    batches, contexts = [[1], [8], [64]], [1, 100, 10_000]

    many = cap.tpot(model, part(), deploy, batch=batches, context_tokens=contexts)
    along = cap.tpot(model, part(), deploy, batch=8, context_tokens=contexts)

    numbers = (many.bound, many.bound_by, many.fits, many.attainable)
    assert {np.shape(number) for number in numbers if number is not None} == {(3, 3)}
    for row, (batch,) in enumerate(batches):
        for column, context in enumerate(contexts):
            one = cap.tpot(model, part(), deploy, batch=batch, context_tokens=context)
            assert many.bound[row, column] == pytest.approx(one.bound)
            assert ("memory", "compute")[many.bound_by[row, column]] == one.bound_by
    assert along.bound.tolist() == many.bound[1].tolist()
    assert str(many)


def test_scalars_come_back_as_plain_numbers():
    model, deploy = cap.load_model("llama-3-8b"), cap.Deployment(weights="bf16")

    for count in (
        cap.kv_cache_bytes(model, deploy, batch=np.int64(2), context_tokens=8),
        cap.max_batch(model, part(), deploy, context_tokens=8),
        cap.max_context(model, part(), deploy, batch=1),
        cap.weight_bytes(model, deploy),
        cap.activation_bytes(model, deploy, batch=1, tokens=8),
        cap.state_bytes(model, deploy, batch=1),
    ):
        assert type(count) is int
    assert type(cap.tpot(model, part(), deploy, batch=1, context_tokens=8).bound) is float


def test_kv_heads_divide_until_each_rank_has_one_and_are_copied_then():
    """Llama-3-8B has 8 KV heads: 131,072 bytes a token over 1, 2, 4, 8 ranks, and no less on 16 or 32."""
    model = cap.load_model("llama-3-8b")
    held = [
        cap.kv_cache_bytes(model, cap.Deployment(weights="bf16", tensor_parallel=n), batch=1, context_tokens=1)
        for n in (1, 2, 4, 8, 16, 32)
    ]

    assert held == [131_072, 65_536, 32_768, 16_384, 16_384, 16_384]


def test_a_latent_is_whole_on_every_tensor_rank_and_divides_over_data_ranks():
    model = cap.load_model("deepseek-v3")
    one = cap.kv_cache_bytes(model, cap.Deployment(weights="bf16"), batch=8, context_tokens=100)

    tensor, data = (cap.Deployment(weights="bf16", **{way: 8}) for way in ("tensor_parallel", "data_parallel"))
    assert cap.kv_cache_bytes(model, tensor, batch=8, context_tokens=100) == one
    assert cap.kv_cache_bytes(model, data, batch=8, context_tokens=100) == one // 8


def test_a_sliding_layer_stops_growing_at_its_window():
    """gpt-oss-20b: 24 layers of 8 KV heads of 64, every other one with a window of 128 tokens."""
    model, deploy = cap.load_model("gpt-oss-20b"), cap.Deployment(weights="bf16")
    layer_token = 2 * 8 * 64 * 2

    held = cap.kv_cache_bytes(model, deploy, batch=1, context_tokens=np.array([100, 128, 1000]))

    assert held.tolist() == [24 * 100 * layer_token, 24 * 128 * layer_token, (12 * 1000 + 12 * 128) * layer_token]


def test_a_bound_falls_when_a_part_gets_faster_and_never_rises():
    model, deploy = cap.load_model("llama-3-8b"), cap.Deployment(weights="bf16")
    faster = part().replace(**{"memory.bytes_per_s": 6.7e12})

    slow, fast = (cap.tpot(model, p, deploy, batch=1, context_tokens=100).bound for p in (part(), faster))

    assert fast == pytest.approx(slow / 2, rel=1e-6)


def test_a_time_of_what_does_not_fit_says_so():
    found = cap.tpot(
        cap.load_model("mixtral-8x7b"), part(), cap.Deployment(weights="bf16"), batch=1, context_tokens=100
    )

    assert not found.fits
    assert "does not fit" in str(found)


NUMBERS = {
    "kv_cache_bytes": {"batch": 1, "context_tokens": 1},
    "state_bytes": {"batch": 1},
    "activation_bytes": {"batch": 1, "tokens": 1},
    "weight_bytes": {},
    "max_batch": {"context_tokens": 1},
    "max_context": {"batch": 1},
    "tpot": {"batch": 1, "context_tokens": 1},
    "ttft": {"batch": 1, "prompt_tokens": 1},
    "size": {},
}


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize(
    ("choice", "sentence"),
    [({"engine": "vlm"}, "unknown engine 'vlm'; nearest: vllm"), ({"engine_version": "99"}, "has no versions")],
)
def test_no_number_is_that_of_an_engine_nobody_described(name, choice, sentence):
    model, deploy = cap.load_model("llama-3-8b"), cap.Deployment(weights="bf16", **choice)
    specs = (model, deploy) if name.endswith("_bytes") else (model, part(), deploy)
    specs = (model, part(), cap.Workload(), deploy) if name == "size" else specs

    with pytest.raises(cap.CapacityError, match=sentence):
        getattr(cap, name)(*specs, **NUMBERS[name])


def test_a_batch_beyond_the_sequences_allowed_has_no_context():
    model, deploy = cap.load_model("llama-3-8b"), cap.Deployment(weights="bf16", max_sequences=10)
    batches = np.array([1, 10, 11, 100])

    longest = cap.max_context(model, part(), deploy, batch=batches)

    assert cap.max_batch(model, part(), deploy, context_tokens=1) == 10
    assert (longest > 0).tolist() == [True, True, False, False]
    assert cap.max_context(model, part(), deploy, batch=11) == 0


def test_reserving_more_than_there_is_says_so():
    """85,520,809,984 bytes (81,559 MiB), nine tenths of them for the engine."""
    model, share = cap.load_model("llama-3-8b"), 85_520_809_984 * 9 // 10
    deploy = cap.Deployment(weights="bf16", reserved_bytes=share + 1)

    with pytest.raises(cap.DoesNotFit, match=f"reserved_bytes = {share + 1:,} is more than the {share:,} bytes"):
        cap.max_batch(model, part(), deploy, context_tokens=1)
    with pytest.raises(cap.DoesNotFit, match="reserved_bytes"):
        cap.size(model, part(), None, deploy)
    assert not cap.size(model, part(), None, deploy.replace(reserved_bytes=share)).fits


@pytest.mark.parametrize(
    ("times", "sentence"),
    [
        (("a", 1), "ttft_s"),
        ((float("nan"), 1), "ttft_s"),
        ((1, -1), "tpot_s"),
        ((None, 1), "ttft_s"),
        (([1, 2], [1, 2, 3]), "do not broadcast"),
    ],
)
def test_a_request_of_impossible_times_gives_no_number(times, sentence):
    with pytest.raises(cap.CapacityError, match=sentence):
        cap.request_latency(*times, 2)
    assert cap.request_latency(0.2, 0.05, np.array([1, 3])).tolist() == pytest.approx([0.2, 0.3])


def test_a_world_model_without_a_launch_mode_says_which_phases_lack_one():
    world, part = cap.load_world_model("openvla-7b"), cap.load_hardware("nvidia-h100-sxm5-80gb")
    asked = {"batch": 1, "prompt_tokens": world.prompt_tokens}
    notes = cap.ttft(world, part, cap.Deployment(launch_mode={"encode": "graph"}), **asked).notes

    assert "no estimate: no calibration covers phases without a launch mode (prefill)" in notes


def test_a_bare_model_with_encoders_says_that_its_ttft_leaves_out_encode():
    world, part = cap.load_world_model("openvla-7b"), cap.load_hardware("nvidia-h100-sxm5-80gb")
    asked = {"batch": 1, "prompt_tokens": world.prompt_tokens}
    bare, whole = (cap.ttft(model, part, cap.Deployment(), **asked) for model in (world.model, world))

    assert any("encode of images (siglip, dinov2)" in line for line in bare.not_modelled)
    assert not any("encode" in line for line in whole.not_modelled)


# An element of the answer is nine figures of 8 bytes at most; operators hold two figures each while they are summed.
@pytest.mark.parametrize(
    ("ask", "tokens", "most"), [(cap.tpot, "context_tokens", 329), (cap.ttft, "prompt_tokens", 400)]
)
def test_paired_arrays_take_little_memory_per_element(ask, tokens, most):
    model, hardware, deploy = cap.load_model("llama-3.1-8b"), part(), cap.Deployment(weights="bf16")
    count = np.arange(1, 20_001)
    pairs = {"batch": count % 500 + 1, tokens: count % 8000 + 16}
    ask(model, hardware, deploy, **pairs)

    tracemalloc.start()
    try:
        ask(model, hardware, deploy, **pairs)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes / count.size <= most
