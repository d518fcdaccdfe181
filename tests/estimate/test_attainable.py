"""Attainable times of replicas that span servers, against what SGLang reached with DeepSeek-V3 on H100 servers."""

from __future__ import annotations

import pytest

import capacity as cap
from capacity.demand.phases import decode_phase
from capacity.estimate.attainable import comm_s
from capacity.estimate.case import prepare

H100 = "nvidia-h100-sxm5-80gb"


# LMSYS, "Deploying DeepSeek with PD Disaggregation and Large-scale Expert Parallelism on 96 H100 GPUs", 2025-05-05:
# four servers of eight, 16,384 tokens per device; prompt tokens per second of one server, which overlaps half batches.
@pytest.mark.parametrize(("prompt_tokens", "reached"), [(1024, 57_674), (2048, 54_543), (4096, 50_302)])
def test_a_prefill_over_four_servers_is_a_little_above_what_was_reached(deepseek_v3, prompt_tokens, reached):
    deploy = cap.Deployment(weights="fp8_block128", data_parallel=32, expert_parallel=32, prefill_chunk_tokens=16_384)
    batch = 32 * (16_384 // prompt_tokens)
    found = cap.ttft(deepseek_v3, cap.load_hardware(H100), deploy, batch=batch, prompt_tokens=prompt_tokens)

    assert reached < 8 * 16_384 / found.attainable < 1.3 * reached < 8 * 16_384 / found.bound


# The same post: nine servers, 256 sequences per device at 2,000 tokens: 22,282 token/s per server. Here eight servers,
# since 256 experts do not divide into 72.
def test_a_decode_step_over_eight_servers_is_a_little_above_what_was_reached(deepseek_v3):
    deploy = cap.Deployment(weights="fp8_block128", data_parallel=64, expert_parallel=64)
    found = cap.tpot(deepseek_v3, cap.load_hardware(H100), deploy, batch=64 * 256, context_tokens=2050)

    assert 22_282 < 8 * 256 / found.attainable < 1.7 * 22_282
    note = "beyond 8 devices the network of HGX H100, 8 x 80 GB is assumed (InfiniBand NDR 400 Gb/s)"
    assert note in found.notes


def test_what_rests_on_a_network_that_no_one_named_is_assumed(llama_3_70b):
    part, workload = cap.load_hardware(H100), cap.Workload(prompt_tokens=100, output_tokens=100)
    near, far = (
        cap.size(llama_3_70b, part, workload, cap.Deployment(weights="bf16", tensor_parallel=8, pipeline_parallel=pp))
        for pp in (1, 2)
    )

    assert near.evidence["tpot.attainable"] != "assumed"
    assert far.evidence["tpot.attainable"] == "assumed"


# Sixteen devices in two servers, 80 layers of 8192 in 16 bits: a stage sums 2 x 40 times within its server, and its
# table and logits; the hidden state of a token goes over the network once, in 10 us and 16 kB at 50 GB/s.
def test_a_pipeline_over_two_servers_sends_over_the_network(llama_3_70b):
    def exchanged(pp):
        deploy = cap.Deployment(weights="bf16", tensor_parallel=8, pipeline_parallel=pp)
        case = prepare(llama_3_70b, cap.load_hardware(H100), deploy)
        return float(comm_s(case, decode_phase(llama_3_70b, deploy, batch=1, context_tokens=100)))

    assert exchanged(2) - exchanged(1) == pytest.approx(10e-6 + 8192 * 2 / 50e9, rel=1e-6)


# A part that no shipped server has: time on links beyond its domain is not modelled, and the reason is given.
def test_without_a_server_of_the_part_there_is_no_attainable_time_and_a_reason(llama_3_70b):
    part = cap.load_hardware(H100).replace(id="own-part")
    found = cap.tpot(llama_3_70b, part, cap.Deployment(weights="bf16", tensor_parallel=16), batch=1, context_tokens=100)

    assert found.attainable is None
    assert any("the link joins only 8 devices" in note for note in found.notes)
