"""A world model with an autoregressive head and its bare network are one case: `size`, `control` and the API agree."""

from __future__ import annotations

from math import ceil, floor

import numpy as np
import pytest

import capacity as cap
from capacity.demand.decisions import decision_phases
from capacity.demand.phases import decode_phase
from capacity.estimate.case import prepare
from capacity.estimate.decision import decide

CYCLE = {"period_s": 0.5, "sensing_s": 0.0, "preprocessing_s": 0.0, "network_s": 0.0}
WORLDS = cap.world_model_ids()
MAKES_TOKENS = [name for name in WORLDS if cap.load_world_model(name).head.kind == "autoregressive"]
OTHERS = [name for name in WORLDS if name not in MAKES_TOKENS]
PARTS = ("nvidia-h100-sxm5-80gb", "nvidia-jetson-agx-orin-64gb")
PLAIN, GRAPH = cap.Deployment(), cap.Deployment(launch_mode="graph")


def held(sizing):
    """What a sizing holds on a device, by use; blocks count with the cache."""
    found = {"weights": 0, "KV cache": 0, "state": 0, "activations": 0}
    for line in sizing.ledger[0].lines:
        use = line.name.partition(":")[0]
        found[use] = found.get(use, 0) + line.held_bytes
    return found


def bare(world, part, deploy, batch=1):
    work = cap.Workload(prompt_tokens=world.prompt_tokens, output_tokens=world.answer_tokens, concurrency=batch)
    return cap.size(world.model, part, work, deploy)


def times_of(estimate):
    """All that an estimate says of time but its verdict on memory and its notes."""
    return estimate.bound, estimate.bound_by, estimate.attainable, estimate.operators, estimate.rows


def test_there_are_world_models_of_both_kinds():
    assert {"openvla-7b", "example-robot", "mineworld-300m", "cosmos-1.0-autoregressive-4b"} <= set(MAKES_TOKENS)
    assert {"pi0", "openvla-oft", "oasis-500m", "dreamerv3-1m", "tdmpc2-5m"} <= set(OTHERS)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("name", MAKES_TOKENS)
def test_sizes_of_a_world_model_and_of_its_network_hold_the_same_bytes(name, batch):
    world, part = cap.load_world_model(name), cap.load_hardware(PARTS[0])
    one = held(cap.size(world, part, cap.Workload(concurrency=batch), PLAIN))
    other = held(bare(world, part, PLAIN, batch))
    residents = {item.name: item.held_bytes for item in world.residents if not item.offloaded}

    other.pop("KV cache, internal fragmentation", None)  # a session's cache is one growing buffer, without blocks
    assert {use: one.pop(use) for use in residents} == residents
    assert one == other


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("name", MAKES_TOKENS)
def test_a_decision_needs_the_bytes_of_a_sizing_of_as_many_sequences(name, batch):
    world, part = cap.load_world_model(name), cap.load_hardware(PARTS[0])
    sizing = cap.size(world, part, cap.Workload(concurrency=batch))
    plan = cap.control(world, part, robots=batch, formats=(), **CYCLE)

    assert plan.needed_bytes == sizing.ledger[0].total_bytes
    assert plan.usable_bytes == sizing.ledger[0].usable_bytes
    assert plan.verdict.fits is sizing.fits


# A 7B decoder of the Llama-2 shape: at the end of its feed-forward a token holds 4 x 4096 + 4 x 11,008 elements of 16
# bits, as in tests/validation/test_targets.py. 8 x (2,048 + 20) tokens are more than a chunk of 8,192.
@pytest.mark.parametrize(("batch", "chunk", "tokens"), [(1, 8192, 2068), (8, 8192, 8192), (1, 512, 512), (8, 1, 8)])
def test_activations_are_those_of_the_tokens_in_flight(batch, chunk, tokens):
    world, part = cap.load_world_model("example-robot"), cap.load_hardware(PARTS[0])
    deploy = cap.Deployment(prefill_chunk_tokens=chunk)
    sizing = cap.size(world, part, cap.Workload(concurrency=batch), deploy)

    encoder = cap.activation_bytes(world, deploy, batch=batch, tokens=1)  # images go through in one pass, chunk or not
    core = tokens * 2 * (4 * 4096 + 4 * 11_008)
    assert held(sizing)["activations"] == max(core, encoder)
    assert cap.activation_bytes(world, deploy, batch=batch, tokens=2068) == max(core, encoder)


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("name", MAKES_TOKENS)
def test_a_decode_pass_of_a_decision_is_a_decode_step_of_a_sizing_at_the_same_context(name, part):
    world, hardware = cap.load_world_model(name), cap.load_hardware(part)
    decode = cap.control(world, hardware, bound_only=True, **CYCLE).decision.phase("decode")
    # The prompt makes the first token; the passes that compute the first to the last but one make the others.
    context = world.prompt_tokens + world.answer_tokens / 2
    steps = [
        cap.tpot(world, hardware, PLAIN, batch=1, context_tokens=whole) for whole in (floor(context), ceil(context))
    ]

    asked = [
        decode_phase(world.model, PLAIN, batch=1, context_tokens=whole) for whole in (floor(context), ceil(context))
    ]

    assert decode.passes == world.answer_tokens - 1
    for figure, both in {
        "bound_s": [step.bound for step in steps],
        "roofline_s": [step.roofline for step in steps],
        "moved_bytes": [float(step.moved_bytes) for step in asked],  # whatever a last-level cache would keep of it
        "flop": [sum(row.flop for row in step.rows) for step in steps],
    }.items():
        assert getattr(decode, figure) == pytest.approx(decode.passes * np.mean(both), rel=1e-14)
        if context == floor(context):
            assert getattr(decode, figure) == decode.passes * both[0]
    assert decode.bound_by == f"{steps[0].bound_by}, {steps[0].largest_operator}"


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("name", MAKES_TOKENS)
@pytest.mark.parametrize("deploy", [PLAIN, cap.Deployment(weights="int8", kv_cache="fp8_e4m3")])
def test_tpot_of_a_world_model_is_that_of_its_network_to_the_bit(name, part, deploy):
    world, hardware = cap.load_world_model(name), cap.load_hardware(part)
    one, other = (cap.tpot(subject, hardware, deploy, batch=2, context_tokens=999) for subject in (world, world.model))
    assert times_of(one) == times_of(other)

    batches, contexts = np.array([[1], [2], [64]]), np.array([1, 2, 1000, 100_000])
    many, network = (
        cap.tpot(subject, hardware, deploy, batch=batches, context_tokens=contexts) for subject in (world, world.model)
    )
    assert np.array_equal(many.bound, network.bound)
    assert np.array_equal(many.attainable, network.attainable)
    assert np.array_equal(many.bound_by, network.bound_by)


@pytest.mark.parametrize("name", MAKES_TOKENS)
def test_ttft_of_a_world_model_is_encode_and_prefill_of_its_decision(name):
    world, part = cap.load_world_model(name), cap.load_hardware(PARTS[1])
    first = cap.ttft(world, part, GRAPH, batch=1, prompt_tokens=world.prompt_tokens)
    decision = cap.control(world, part, GRAPH, **CYCLE).decision
    before = [phase for phase in decision.phases if phase.name in ("encode", "prefill")]

    assert [phase.name for phase in before] == (["encode", "prefill"] if world.encoders else ["prefill"])
    assert first.bound == sum(phase.bound_s for phase in before)
    assert first.value == sum(phase.value_s for phase in before)
    assert cap.size(world, part, None, GRAPH).ttft.value == first.value


# A network that sees the images first and then only earlier tokens has a prompt like any other.
@pytest.mark.parametrize("name", MAKES_TOKENS)
def test_ttft_of_the_network_leaves_the_images_out(name):
    world, part = cap.load_world_model(name), cap.load_hardware(PARTS[1])
    network = cap.ttft(world.model, part, PLAIN, batch=1, prompt_tokens=world.prompt_tokens)
    prefill = cap.control(world, part, bound_only=True, **CYCLE).decision.phase("prefill")

    assert network.bound == prefill.bound_s if world.causal_prompt else network.bound <= prefill.bound_s


@pytest.mark.parametrize("name", MAKES_TOKENS)
def test_only_a_bare_network_with_encoders_leaves_out_encode(name):
    world, part = cap.load_world_model(name), cap.load_hardware(PARTS[0])
    encoders = [stage.name for stage in world.model.stages if stage.role == "encoder"]

    assert not any("encode of images" in text for text in cap.size(world, part).not_modelled)
    left_out = [text for text in bare(world, part, PLAIN).not_modelled if "encode of images" in text]
    assert [", ".join(encoders) in text for text in left_out] == [True] * bool(encoders)


@pytest.mark.parametrize("name", OTHERS)
def test_a_world_model_that_makes_no_tokens_is_not_sized(name):
    world, part = cap.load_world_model(name), cap.load_hardware(PARTS[0])
    sentence = (
        rf"^{name} has (no|an? \w+) head: its answer does not come token by token; ask for a decision with control$"
    )

    with pytest.raises(cap.CapacityError, match=sentence):
        cap.size(world, part)
    with pytest.raises(cap.CapacityError, match=sentence):
        cap.tpot(world, part, PLAIN, batch=1, context_tokens=1)
    with pytest.raises(cap.CapacityError, match=sentence):
        cap.ttft(world, part, PLAIN, batch=1, prompt_tokens=max(1, world.prompt_tokens))


def test_another_prompt_than_its_own_is_refused():
    world, part = cap.load_world_model("openvla-7b"), cap.load_hardware(PARTS[0])
    sentence = r"^openvla-7b has a prompt of 281 tokens \(images, text and state\)"  # 256 patches and 25 of text

    with pytest.raises(cap.CapacityError, match=sentence):
        cap.size(world, part, cap.Workload(prompt_tokens=2048))
    with pytest.raises(cap.CapacityError, match=sentence):
        cap.ttft(world, part, PLAIN, batch=1, prompt_tokens=2048)
    assert cap.size(world, part, cap.Workload(prompt_tokens=281)).fits


def test_launch_modes_by_phase_reach_the_phases_and_the_estimates():
    world, part = cap.load_world_model("openvla-7b"), cap.load_hardware(PARTS[1])
    mixed, eager, tuned = (
        cap.Deployment(launch_mode=mode) for mode in ({"decode": "eager", "default": "tuned"}, "eager", "tuned")
    )
    plans = [cap.control(world, part, deploy, formats=(), **CYCLE).decision for deploy in (mixed, eager, tuned)]
    of_mixed, of_eager, of_tuned = ({phase.name: phase for phase in plan.phases} for plan in plans)

    assert {name: phase.launch_mode for name, phase in of_mixed.items()} == {
        "encode": "tuned", "prefill": "tuned", "decode": "eager"
    }  # fmt: skip
    assert of_mixed["decode"] == of_eager["decode"] != of_tuned["decode"]
    assert [of_mixed[name] == of_tuned[name] != of_eager[name] for name in ("encode", "prefill")] == [True, True]
    assert plans[2].value_s < plans[0].value_s < plans[1].value_s
    sizings = [cap.size(world, part, None, deploy) for deploy in (mixed, eager, tuned)]
    assert sizings[0].tpot.value == sizings[1].tpot.value > sizings[2].tpot.value
    assert sizings[0].ttft.value == sizings[2].ttft.value < sizings[1].ttft.value


def test_a_phase_without_a_launch_mode_has_no_estimate_and_the_plan_names_it():
    world, part = cap.load_world_model("openvla-7b"), cap.load_hardware(PARTS[1])
    deploy = cap.Deployment(launch_mode={"decode": "graph"})
    plan = cap.control(world, part, deploy, formats=(), **CYCLE)

    assert plan.decision.value_s is None
    assert (
        "no estimate: no calibration covers phases without a launch mode (encode, prefill); the bound alone is judged"
        in plan.notes
    )
    sizing = cap.size(world, part, None, deploy)
    assert sizing.tpot.value == cap.size(world, part, None, GRAPH).tpot.value
    assert sizing.ttft.value is None


def test_control_without_a_launch_mode_takes_a_graph_and_says_so():
    world, part = cap.load_world_model("pi0"), cap.load_hardware(PARTS[0])
    silent, given = (cap.control(world, part, deploy, **CYCLE) for deploy in (None, GRAPH))

    assert "launch_mode = graph" in silent.assumed
    assert not any("launch_mode" in text for text in given.assumed)
    assert silent.decision == given.decision
    with pytest.raises(cap.CapacityError, match="bound_only judges no launch mode"):
        cap.control(world, part, GRAPH, bound_only=True, **CYCLE)


@pytest.mark.parametrize("mode", ["graph", {"default": "tuned"}])
def test_no_calibration_covers_two_devices(mode):
    world, part = cap.load_world_model("example-robot"), cap.load_hardware(PARTS[0])
    deploy = cap.Deployment(tensor_parallel=2, launch_mode=mode)
    plan, sizing = cap.control(world, part, deploy, formats=(), **CYCLE), cap.size(world, part, None, deploy)

    assert plan.decision.value_s is None
    assert plan.decision.bound_s < plan.decision.attainable_s
    assert "no estimate: no calibration covers 2 devices; the bound alone is judged" in plan.notes
    for estimate in (sizing.tpot, sizing.ttft):
        assert estimate.value is None
        assert any("covers 2 devices" in note for note in estimate.notes)
    assert times_of(sizing.tpot) == times_of(bare(world, part, deploy).tpot)


# nccl-tests: an all-reduce over two devices moves once its size, a gather half. A pass of the 32 layers sums hidden
# states of 4,096 elements of 16 bits after each mixer, each feed-forward and the table, and gathers the logits of
# 32,000 tokens for the last token: once for the prompt of 2,048 and in each of 19 further passes.
def test_the_attainable_decision_of_two_devices_counts_their_links(make_part):
    def decision_s(rate):
        table = make_part(gib=80).model_dump() | {
            "measured": {"read_bytes_per_s": 1.8e12, "gemm_flop_per_s": {"bf16": 250e12}},
            "links": {"kind": "link of a test", "bytes_per_s_per_direction": rate, "domain_devices": 8},
        }
        deploy = cap.Deployment(tensor_parallel=2)
        return cap.control(world, cap.load_hardware(table), deploy, formats=(), **CYCLE).decision

    world = cap.load_world_model("example-robot")
    slow, fast = decision_s(50e9), decision_s(100e9)

    moved = (2048 + 19) * 65 * 4096 * 2 + (1 + 19) * 32_000 * 2 / 2
    assert slow.bound_s == fast.bound_s
    assert slow.attainable_s - fast.attainable_s == pytest.approx(moved * (1 / 50e9 - 1 / 100e9), rel=1e-9)


def test_a_case_is_prepared_once_and_shared():
    world, part = cap.load_world_model("openvla-7b"), cap.load_hardware(PARTS[0])
    same = prepare(world, part, cap.Deployment(weights="bf16"))

    assert prepare(world, part, cap.Deployment(weights="bf16")) is same
    assert prepare(world.model, part, cap.Deployment(weights="bf16")) is not same
    decision = decide(same, decision_phases(world, same.deploy, batch=np.array([1, 2])))
    assert decision.bound_s.tolist() == [
        decide(same, decision_phases(world, same.deploy, batch=batch)).bound_s for batch in (1, 2)
    ]


# A time that counts links rests on their fixed times, which are not those of this part.
def test_attainable_times_say_what_their_links_rest_on():
    model, part = cap.load_model("llama-3-8b"), cap.load_hardware("nvidia-h100-sxm5-80gb")
    two, one = (
        cap.tpot(model, part, cap.Deployment(weights="bf16", tensor_parallel=ways), batch=1, context_tokens=64)
        for ways in (2, 1)
    )

    assert any(note.startswith("links: fixed times") for note in two.notes)
    assert not any(note.startswith("links:") for note in one.notes)


def test_how_freely_tokens_choose_experts_is_said_to_be_assumed():
    part, bf16 = cap.load_hardware("nvidia-h100-sxm5-80gb"), cap.Deployment(weights="bf16")
    routed, dense = (cap.size(cap.load_model(name), part, None, bf16) for name in ("qwen3-30b-a3b", "llama-3-8b"))
    stated = cap.Deployment(weights="bf16", routing_exponent=1.0)
    given = cap.size(cap.load_model("qwen3-30b-a3b"), part, None, stated)

    assert "routing_exponent = 0.85, for the experts of an attainable time" in routed.assumed
    assert routed.evidence["tpot.attainable"] == "assumed"
    assert not any("routing_exponent" in line for line in (*dense.assumed, *given.assumed))
    assert dense.evidence["tpot.attainable"] != "assumed"
