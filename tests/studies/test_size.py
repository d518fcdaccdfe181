"""One sizing: verdict, margins, limits and what is echoed, against sums made here."""

from __future__ import annotations

import json

import pytest

import capacity as cap
from capacity.specs.hardware import HardwareSpec

MODEL, PART = "llama-3-8b", "nvidia-h100-sxm5-80gb"
BF16 = cap.Deployment(weights="bf16")


def sized(model=MODEL, part=PART, workload=None, deploy=BF16):
    return cap.size(cap.load_model(model), cap.load_hardware(part), workload or cap.Workload(), deploy)


def test_the_ledger_adds_up_to_its_total_and_its_margin():
    found = sized(workload=cap.Workload(concurrency=7, prompt_tokens=1000, output_tokens=11))
    ledger = found.ledger[0]

    assert ledger.total_bytes == sum(line.held_bytes for line in ledger.lines)
    assert ledger.margin_bytes == int(85_520_809_984 * 0.9) - ledger.total_bytes == found.margin_bytes
    assert sum(line.held_bytes for line in ledger.lines if line.name.startswith("weights")) == 8_030_261_248 * 2
    assert ledger.line("KV cache") == 7 * 1011 * 131_072
    assert ledger.line("KV cache, internal fragmentation") == 7 * (1024 - 1011) * 131_072


def test_request_latency_counts_the_first_token_once():
    found = sized(workload=cap.Workload(prompt_tokens=100, output_tokens=21))

    assert found.request_bound_s == pytest.approx(found.ttft.bound + 20 * found.tpot.bound)


def test_the_verdict_is_that_of_the_largest_batch():
    most = sized(workload=cap.Workload(prompt_tokens=4000, output_tokens=96)).max_batch

    for concurrency, verdict in ((most, True), (most + 1, False)):
        found = sized(workload=cap.Workload(prompt_tokens=4000, output_tokens=96, concurrency=concurrency))
        assert found.fits is verdict
        assert (found.margin_bytes >= 0) is verdict


def test_mixtral_on_one_h100_misses_what_the_sum_says():
    found = sized("mixtral-8x7b")
    needed = found.ledger[0].total_bytes

    assert not found.fits
    assert found.max_batch == 0
    assert found.max_context_tokens == 0
    assert -found.margin_bytes == needed - int(85_520_809_984 * 0.9)
    assert (found.verdict, found.binding) == ("does not fit", "weights")
    assert sized("mixtral-8x7b", deploy=BF16.replace(tensor_parallel=2)).fits


def test_every_pipeline_stage_has_a_ledger_and_the_heaviest_comes_first():
    found = sized(deploy=BF16.replace(pipeline_parallel=3))

    assert sorted(ledger.rank for ledger in found.ledger) == [0, 1, 2]
    assert found.devices == 3
    assert found.margin_bytes == min(ledger.margin_bytes for ledger in found.ledger)


def test_the_weights_of_all_pipeline_stages_are_those_of_one_device():
    one, three = sized(), sized(deploy=BF16.replace(pipeline_parallel=3))

    def weights(found):
        lines = [line for ledger in found.ledger for line in ledger.lines if line.name.startswith("weights")]
        return sum(line.held_bytes for line in lines)

    assert weights(three) == weights(one)


def test_context_is_bounded_by_positions_where_memory_allows_more():
    assert (sized().max_context_tokens, sized().max_context_bound_by) == (8192, "positions")
    crowded = sized(workload=cap.Workload(concurrency=200))
    assert crowded.max_context_bound_by == "memory"
    assert crowded.max_context_tokens < 8192


def test_context_beyond_the_positions_is_a_note_and_no_error():
    found = sized(workload=cap.Workload(prompt_tokens=10_000))

    assert any("beyond the 8,192 positions" in note for note in found.notes)


def test_what_was_given_is_not_echoed_as_assumed():
    given = cap.Deployment(weights="bf16", kv_cache="bf16", activations="bf16", memory_fraction=0.9)
    found = sized(workload=cap.Workload(prompt_tokens=1, output_tokens=1, concurrency=1), deploy=given)

    assert not [line for line in found.assumed if line.startswith(("kv_cache", "memory_fraction", "prompt_tokens"))]
    bare = cap.size(cap.load_model(MODEL), cap.load_hardware(PART))
    assert {"kv_cache = bf16", "memory_fraction = 0.9", "prompt_tokens = 2048"} <= set(bare.assumed)


# Quantised checkpoints of Llama keep embed_tokens and lm_head in 16 bits: `ignore = ["lm_head"]` of their
# configurations names the head, and only Linear layers are quantised at all.
def test_narrow_weights_say_which_parts_stay_in_16_bits():
    def left(**choices):
        deploy = cap.Deployment(**choices)
        found = cap.size(cap.load_model("llama-3.1-8b"), cap.load_hardware(PART), None, deploy)
        return [line for line in found.assumed if "leaves alone" in line]

    assert left(weights="fp8_e4m3") == ["embedding, lm_head = bf16, which weights = fp8_e4m3 leaves alone"]
    head = [{"part": "lm_head", "format": "int8"}]
    assert left(weights="int8", overrides=head) == ["embedding = bf16, which weights = int8 leaves alone"]
    assert left(weights="bf16") == left() == []


def test_an_unverified_figure_that_matters_is_echoed_and_one_that_does_not_is_not():
    faster = cap.load_hardware(PART).replace(**{"memory.bytes_per_s": 4e12})
    found = cap.size(cap.load_model(MODEL), faster, cap.Workload(), BF16)

    assert any("memory.bytes_per_s" in line for line in found.assumed)
    assert not any("fp64" in line for line in found.assumed)


@pytest.fixture
def measured_part(make_part):
    """A part whose measured rates, link and cache are of three kinds of origin."""

    def make(**changes):
        table = make_part().model_dump() | {
            "measured": {"read_bytes_per_s": 1.8e12, "gemm_flop_per_s": {"bf16": 250e12}},
            "links": {"kind": "NVLink4", "bytes_per_s_per_direction": 450e9, "domain_devices": 8},
        }
        return HardwareSpec.model_validate(table | changes)

    return make


def test_evidence_is_that_of_the_weakest_figure_and_only_of_figures_given(measured_part, make_part, llama_2_7b):
    def evidence(part, deploy=BF16):
        return cap.size(llama_2_7b, part, None, deploy).evidence

    sound = evidence(measured_part())
    assert (sound["tpot.bound"], sound["ttft.attainable"]) == ("computed", "published")
    assert sound["max_batch"] == sound["max_context"] == sound["activations"] == "assumed"
    assert "tpot.value" not in sound
    assert evidence(make_part())["tpot.attainable"] == "assumed"  # a share of the datasheet
    weak = evidence(measured_part(unverified=("measured.*",)))
    assert (weak["tpot.bound"], weak["tpot.attainable"]) == ("computed", "assumed")
    assert evidence(measured_part().replace(**{"memory.bytes_per_s": 1e12}))["tpot.bound"] == "assumed"
    link = measured_part(unverified=("links.*",))
    assert evidence(link)["tpot.attainable"] == "published"
    assert evidence(link, BF16.replace(tensor_parallel=2))["tpot.attainable"] == "assumed"


def test_weak_figures_are_named_with_what_is_wrong_with_them(measured_part, llama_2_7b):
    part = measured_part(unverified=("measured.read_bytes_per_s", "links.*", "memory.l2_bytes"))
    changed = part.replace(**{"peak_flop_per_s.bf16": 200e12})
    two = BF16.replace(tensor_parallel=2)

    one_device, two_devices = (cap.size(llama_2_7b, changed, None, deploy).assumed for deploy in (BF16, two))

    assert f"{part.name}: peak_flop_per_s.bf16 (replaced or inherited)" in one_device
    assert f"{part.name}: measured.read_bytes_per_s (unverified)" in one_device
    assert f"{part.name}: links.* (unverified)" in two_devices
    assert not any("links" in line or "l2" in line for line in one_device)


def test_replaced_figures_of_the_model_are_echoed():
    found = cap.size(cap.load_model(MODEL).replace(positions=1000), cap.load_hardware(PART), None, BF16)

    assert f"{MODEL}: positions" in found.assumed


# gpt-oss: OpenAI's files hold the experts in mxfp4 and the rest in bf16.
def test_narrow_parts_of_a_checkpoint_are_named_and_said_to_be_dequantised():
    found = cap.size(cap.load_model("gpt-oss-20b"), cap.load_hardware(PART))

    assert "weights = as stored (bf16, experts mxfp4)" in found.assumed
    assert "weights in mxfp4 (experts) are dequantised and computed in fp8_e4m3" in found.notes  # Hopper has no 4 bit
    int8 = BF16.replace(weights="int8", activations="int8")
    assert not any(
        "dequantised" in note for note in cap.size(cap.load_model(MODEL), cap.load_hardware(PART), None, int8).notes
    )


@pytest.mark.parametrize(("name", "value"), [("requests_per_s", 3.0), ("percentile", 99.0)])
def test_what_a_sizing_does_not_use_is_said(name, value):
    note = f"{name} does not enter the sizing of a replica, which is at the given concurrency"

    assert note in sized(workload=cap.Workload(**{name: value})).notes
    assert note not in sized().notes


def test_objectives_are_judged_at_the_bound():
    found = sized(workload=cap.Workload(max_ttft_s=1e-6, max_tpot_s=1.0))

    assert {(o.name, o.missed) for o in found.objectives} == {("TTFT", True), ("TPOT", False)}
    assert found.missed


def test_a_sizing_becomes_json_text_and_html():
    found = sized()

    assert json.loads(json.dumps(found.to_dict()))["ledger"][0]["margin_bytes"] == found.margin_bytes
    assert str(found).startswith("fits, ")
    assert found._repr_html_().startswith("<div>")


def test_every_figure_says_its_evidence_and_what_is_not_modelled_is_listed():
    found = sized()

    assert {line.evidence for line in found.ledger[0].lines} == {"computed", "assumed"}
    assert found.evidence["tpot.bound"] == "computed"
    assert found.not_modelled


def test_a_batch_that_the_deployment_forbids_does_not_fit(make_part, llama_2_7b):
    deploy = cap.Deployment(weights="bf16", max_sequences=1)
    sizing = cap.size(llama_2_7b, make_part(), cap.Workload(concurrency=4), deploy)
    assert not sizing.fits
    assert (sizing.verdict, sizing.binding) == ("does not fit", "max_sequences")
    assert str(sizing).startswith("does not fit: max_sequences 1 is below the 4 sequences requested")
    assert sizing.fits == sizing.tpot.fits
    assert (sizing.max_context_tokens, sizing.max_context_bound_by) == (0, "max_sequences")


def test_weights_beyond_all_models_are_one_sentence(make_llama, make_part):
    model = make_llama("vast", 8, 2**31, 2**16, 2**16, 2**15, 2**31, 2**31)
    with pytest.raises(cap.CapacityError, match=r"parameters, at most 1e\+15 are sized"):
        cap.max_batch(model, make_part(), cap.Deployment(weights="bf16"), context_tokens=1)


# Mixtral-8x7B in bf16 is 93.4 GB: two devices of 80 GB hold it.
def test_a_sizing_that_does_not_fit_says_on_how_many_devices_it_does():
    model, part = cap.load_model("mixtral-8x7b"), cap.load_hardware(PART)
    found = cap.size(model, part, cap.Workload(concurrency=1), cap.Deployment(weights="bf16"))

    assert not found.fits
    assert (found.enough.devices, found.enough.tensor_parallel) == (2, 2)
    assert "fits on 2 devices (--tensor-parallel 2)" in " ".join(str(found).split())
    assert (
        cap.size(model, part, cap.Workload(concurrency=1), cap.Deployment(weights="bf16", tensor_parallel=2)).enough
        is None
    )


# The fields that a workload leaves out are defaults, of a world model too; its prompt and answer are its own.
def test_defaults_of_a_workload_for_a_world_model_are_assumptions():
    world, part = cap.load_world_model("openvla-7b"), cap.load_hardware(PART)
    sizing = cap.size(world, part, cap.Workload(max_tpot_s=1.0))

    assert "concurrency = 1" in sizing.assumed
    assert not any(line.startswith(("prompt_tokens", "output_tokens")) for line in sizing.assumed)
    assert (sizing.prompt_tokens, sizing.workload["max_tpot_s"]) == (281, 1.0)
