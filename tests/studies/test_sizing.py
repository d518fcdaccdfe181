"""One sizing: verdict, margins, limits and what is echoed, against sums made here."""

from __future__ import annotations

import json

import pytest

import capacity as cap

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
    assert ledger.line("kv cache") == 7 * 1011 * 131_072
    assert ledger.line("kv cache, unused rest of blocks") == 7 * (1024 - 1011) * 131_072


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
    assert "missing" in found.verdict
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


def test_an_unverified_figure_that_matters_is_echoed_and_one_that_does_not_is_not():
    faster = cap.load_hardware(PART).replace(**{"memory.bytes_per_s": 4e12})
    found = cap.size(cap.load_model(MODEL), faster, cap.Workload(), BF16)

    assert any("memory.bytes_per_s" in line for line in found.assumed)
    assert not any("fp64" in line for line in found.assumed)


def test_objectives_are_judged_at_the_bound():
    found = sized(workload=cap.Workload(max_ttft_s=1e-6, max_tpot_s=1.0))

    assert {(o.name, o.missed) for o in found.objectives} == {("TTFT", True), ("TPOT", False)}
    assert found.missed


def test_a_sizing_becomes_json_text_and_html():
    found = sized()

    assert json.loads(json.dumps(found.to_dict()))["ledger"][0]["margin_bytes"] == found.margin_bytes
    assert found.verdict in str(found)
    assert found._repr_html_().startswith("<table>")


def test_every_figure_says_its_evidence_and_what_is_not_modelled_is_listed():
    found = sized()

    assert {line.evidence for line in found.ledger[0].lines} == {"computed", "assumed"}
    assert found.evidence["tpot.bound"] == "computed"
    assert found.not_modelled


def test_a_batch_that_the_deployment_forbids_does_not_fit(make_part, llama_2_7b):
    deploy = cap.Deployment(weights="bf16", max_sequences=1)
    sizing = cap.size(llama_2_7b, make_part(), cap.Workload(concurrency=4), deploy)
    assert not sizing.fits
    assert sizing.verdict == "does not fit: max_sequences 1 is below the 4 sequences asked for"
    assert sizing.fits == sizing.tpot.fits


def test_weights_beyond_all_bytes_are_one_sentence(make_llama, make_part):
    model = make_llama("vast", 8, 2**31, 2**16, 2**16, 2**15, 2**31, 2**31)
    with pytest.raises(cap.CapacityError, match=r"more than 2\^62 bytes"):
        cap.max_batch(model, make_part(), cap.Deployment(weights="bf16"), context_tokens=1)
