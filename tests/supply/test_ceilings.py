"""Time on links against messages counted here, the order of measured rates, and the figures that ceilings rest on."""

from __future__ import annotations

import numpy as np
import pytest

import capacity as cap
from capacity.catalog.parts import hardware_ids
from capacity.demand.phases import prefill_phase
from capacity.estimate.attainable import comm_s
from capacity.estimate.case import prepare
from capacity.specs.calibration import TypicalShare
from capacity.specs.hardware import HardwareSpec
from capacity.supply.ceilings import bound_ceilings, measured_ceilings
from capacity.units import Arithmetic

RATE = 450e9  # NVLink4, each direction
DEPLOY = cap.Deployment(weights="bf16", tensor_parallel=4)


@pytest.fixture
def linked(make_part):
    """A part whose link and read rate are known; the read rate and the cache have no good source."""
    table = make_part().model_dump() | {
        "links": {"kind": "NVLink4", "bytes_per_s_per_direction": RATE, "domain_devices": 8},
        "measured": {"read_bytes_per_s": 1.8e12, "gemm_flop_per_s": {"bf16": 250e12}},
        "unverified": ("measured.read_bytes_per_s", "memory.l2_bytes", "links.bytes_per_s_per_direction"),
    }
    table["memory"]["l2_bytes"] = 50_000_000
    return HardwareSpec.model_validate(table)


def moved_s(messages, size_bytes):
    """nccl-tests: an all-reduce over n devices moves 2 (n - 1) / n of its size at the bus bandwidth."""
    return messages * 2 * (4 - 1) / 4 * size_bytes / RATE


def links_s(model, part, batch, prompt_tokens):
    """Time on links of the prefill of ``batch`` prompts."""
    phase = prefill_phase(model, DEPLOY, batch=batch, prompt_tokens=prompt_tokens)
    return comm_s(prepare(model, part, DEPLOY), phase)


# Two sums per layer and one for the table, each of 4096 values of 2 bytes per token; the head meets only the last token
# of a prompt (vLLM prunes the hidden states before its head), so a longer prompt gathers no more logits.
def test_a_longer_prompt_adds_sums_and_no_logits(linked, llama_3_8b):
    short, long = (links_s(llama_3_8b, linked, 1, tokens) for tokens in (4096, 8192))

    assert long - short == pytest.approx(moved_s(2 * 32 + 1, 4096 * 4096 * 2), rel=1e-9)


# A gather moves (n - 1) / n of the logits of all sequences, 128,256 values of 2 bytes each; 8192 tokens either way.
def test_more_prompts_add_their_logits_once_each(linked, llama_3_8b):
    one, many = links_s(llama_3_8b, linked, 1, 8192), links_s(llama_3_8b, linked, 8, 1024)

    assert many - one == pytest.approx(7 * 128_256 * 2 * 3 / 4 / RATE, rel=1e-9)


def test_the_attainable_ttft_takes_the_logits_of_each_prompt_once(linked, llama_3_8b):
    """Between two batches of prompts of 4096 tokens: products at the measured rate, sums, and logits of the last."""
    first, second = (cap.ttft(llama_3_8b, linked, DEPLOY, batch=n, prompt_tokens=4096).attainable for n in (4, 8))

    rank_parameters = (8_030_261_248 - 2 * 128_256 * 4096 - 65 * 4096) / 4
    attention = 32 * 4 * 32 / 4 * 128 * 4096 * 4097 / 2
    products = 4 * (2 * rank_parameters * 4096 + attention) / 250e12
    sums = moved_s(65, 4 * 4096 * 4096 * 2)
    logits = 4 * 128_256 * 2 * 3 / 4 / RATE
    assert second - first == pytest.approx(products + sums + logits, rel=1e-3)


def test_links_of_arrays_equal_their_scalars(linked, llama_3_8b):
    batches, prompts = np.array([1, 8, 3]), np.array([1, 1, 8192])
    many = links_s(llama_3_8b, linked, batches, prompts)

    for index, (batch, prompt) in enumerate(zip(batches.tolist(), prompts.tolist(), strict=True)):
        assert many[index] == links_s(llama_3_8b, linked, batch, prompt)


def test_ceilings_name_the_figures_they_rest_on(linked, llama_3_8b, make_llama):
    bf16 = cap.Deployment(weights="bf16")
    large = prepare(llama_3_8b, linked, bf16)
    small = prepare(make_llama("small", 2, 256, 4, 4, 64, 512, 1000), linked, bf16)

    for case in (large, small):  # a cache of 50 MB keeps that much, of 16 GB as of 10 MB
        named = {"memory.bytes_per_s", "peak_flop_per_s.bf16", "memory.l2_bytes"}
        assert named <= set(case.decode_ceilings.figures)
    assert large.measured_ceilings(large.arithmetic).figures == (
        "measured.read_bytes_per_s",
        "measured.gemm_flop_per_s.bf16",
    )


TYPICAL = TypicalShare(memory=0.9, flop=0.8)
IN_BF16 = frozenset({Arithmetic("bf16", "bf16")})
READS = {"read_bytes_per_s": 1.8e12, "gemv_bytes_per_s": 1.7e12, "read_bytes_per_s_typical": 1.6e12}


def measured_part(make_part, **measured):
    """A part of which some rates were measured."""
    return HardwareSpec.model_validate(make_part().model_dump() | {"measured": measured})


# DESIGN 4: the measured read rate is taken in the order read, gemv, typical; the fixed time of a matrix-vector product
# (measured together with its rate: time = fixed + bytes / rate) belongs to that rate alone.
@pytest.mark.parametrize(
    ("known", "taken", "launch_s"),
    [
        (("read_bytes_per_s", "gemv_bytes_per_s", "read_bytes_per_s_typical"), "read_bytes_per_s", 0.0),
        (("read_bytes_per_s", "read_bytes_per_s_typical"), "read_bytes_per_s", 0.0),
        (("gemv_bytes_per_s", "read_bytes_per_s_typical"), "gemv_bytes_per_s", 3e-6),
        (("read_bytes_per_s_typical",), "read_bytes_per_s_typical", 0.0),
    ],
)
def test_the_measured_read_rate_is_taken_in_one_order(make_part, known, taken, launch_s):
    part = measured_part(make_part, gemv_fixed_s=3e-6, **{name: READS[name] for name in known})
    found = measured_ceilings(part, IN_BF16, TYPICAL)

    assert (found.bytes_per_s, found.launch_s) == (READS[taken], launch_s)
    assert f"measured.{taken}" in found.figures
    assert ("measured.gemv_fixed_s" in found.figures) == (launch_s > 0)
    assert found.cache_bytes == 0


# The fixed time was measured with a rate that is not known, and has no part in a share of the datasheet.
def test_a_typical_share_of_the_datasheet_stands_in_for_a_read_rate(make_part):
    part = measured_part(make_part, gemm_flop_per_s={"bf16": 250e12}, gemv_fixed_s=3e-6)
    found = measured_ceilings(part, IN_BF16, TYPICAL)

    assert found.bytes_per_s == 0.9 * part.memory.bytes_per_s
    assert (found.launch_s, found.assumed) == (0.0, True)
    assert found.notes == (f"no measured read rate of {part.name}: a typical share of its datasheet stands in",)


# MI250X, Radeon, GeForce, TPU, Gaudi, Trainium: of half of the parts no read rate was measured.
@pytest.mark.parametrize("part_id", hardware_ids())
def test_every_part_with_a_peak_has_an_attainable_time(part_id):
    part, model = cap.load_hardware(part_id), cap.load_model("llama-3-8b")
    if not part.peak_flop_per_s or part.memory.capacity_bytes is None:
        pytest.skip("a part without a peak, or whose memory is not given")
    deploy = cap.Deployment(weights="bf16")
    found = cap.size(model, part, cap.Workload(), deploy)
    measured = measured_ceilings(part, prepare(model, part, deploy).arithmetic, TYPICAL)

    assert found.tpot.bound <= found.tpot.attainable
    assert found.ttft.bound <= found.ttft.attainable
    assert (found.evidence["tpot.attainable"] == "assumed") >= measured.assumed


# What lasts is what a run of minutes gets: sustained before typical before the best burst; where no matrix rate was
# measured a share of the datasheet stands in, with a note.
@pytest.mark.parametrize(
    ("tables", "rate"),
    [
        ({"sustained": 200e12, "typical": 220e12, "burst": 250e12}, 200e12),
        ({"typical": 220e12, "burst": 250e12}, 220e12),
        ({"burst": 250e12}, 250e12),
        ({}, 0.8 * 312e12),
    ],
)
def test_the_measured_matrix_rate_is_the_one_that_lasts_longest(make_part, tables, rate):
    fields = {
        "sustained": "gemm_flop_per_s_sustained",
        "typical": "gemm_flop_per_s_typical",
        "burst": "gemm_flop_per_s",
    }
    rates = {fields[name]: {"bf16": value} for name, value in tables.items()}
    found = measured_ceilings(measured_part(make_part, read_bytes_per_s=1.8e12, **rates), IN_BF16, TYPICAL)

    assert found.flop_per_s == {Arithmetic("bf16", "bf16"): rate}
    assert any("a typical share of its datasheet stands in" in note for note in found.notes) == (not tables)
    assert found.assumed == (not tables)


@pytest.mark.parametrize("part_id", hardware_ids())
def test_no_measured_rate_of_the_catalogue_beats_its_bound(part_id):
    """A bound is what nothing beats, so each rate that a source saw a part reach lies at or below its ceilings."""
    part = cap.load_hardware(part_id)
    tables = (part.measured.gemm_flop_per_s, part.measured.gemm_flop_per_s_sustained)
    seen = [item for table in (*tables, part.measured.gemm_flop_per_s_typical) for item in table.items()]
    reads = (part.measured.read_bytes_per_s, part.measured.read_bytes_per_s_typical, part.measured.gemv_bytes_per_s)

    found = bound_ceilings(part, frozenset(Arithmetic(path, path) for path, _ in seen))

    assert all(found.flop_per_s[Arithmetic(path, path)] >= rate * (1 - 1e-12) for path, rate in seen)
    assert all(found.bytes_per_s >= rate for rate in reads if rate)


# gpu-flops-bench saw an RTX 5090 multiply bf16 at 254 TFLOP/s; NVIDIA prints 209.5. A prompt of 8192 tokens of
# Llama-3.1-8B takes 2 FLOP for each matrix weight and token and the causal half of attention.
def test_the_ttft_bound_of_an_rtx_5090_takes_the_rate_that_was_reached():
    part, model = cap.load_hardware("nvidia-rtx-5090-32gb"), cap.load_model("llama-3.1-8b")
    deploy = cap.Deployment(weights="bf16", activations="bf16")
    found = cap.ttft(model, part, deploy, batch=1, prompt_tokens=8192)

    kept = 2 * 4096 * 1024
    matrices = 8_030_261_248 - 2 * 128_256 * 4096
    last = matrices / 32 - kept  # of the last layer all but keys and values is needed for the last token alone
    flop = 2 * (matrices - last) * 8192 + 31 * 4 * 32 * 128 * 8192 * 8193 / 2
    assert found.bound == pytest.approx(flop / 254e12, rel=0.005)
    assert found.attainable is None or found.bound <= found.attainable
    assert any("measured.gemm_flop_per_s.bf16 of NVIDIA RTX 5090 is 1.21 times" in note for note in found.notes)


def test_a_part_below_its_datasheet_has_no_such_note():
    part, model = cap.load_hardware("nvidia-a100-sxm4-80gb"), cap.load_model("llama-3.1-8b")
    found = cap.ttft(model, part, cap.Deployment(weights="bf16"), batch=1, prompt_tokens=8192)

    assert not any("datasheet" in note for note in found.notes)


# Apple states fp16 and fp32 rates of its M2 Max and no bf16 one; nobody states a rate of a whole EPYC socket here.
def test_a_format_without_a_path_is_answered_with_every_path_there_is():
    model, deploy = cap.load_model("llama-3.1-8b"), cap.Deployment(weights="bf16")

    stated = deploy.replace(activations="bf16")
    with pytest.raises(cap.CapacityError, match=r"has no bf16 path; choose activations among: fp16, fp32$"):
        cap.tpot(model, cap.load_hardware("apple-m2-max-96gb"), stated, batch=1, context_tokens=128)
    with pytest.raises(cap.CapacityError, match="no peak is recorded for this part"):
        cap.ttft(model, cap.load_hardware("amd-epyc-9654-socket"), deploy, batch=1, prompt_tokens=128)
    with pytest.raises(cap.CapacityError, match="has no bf16 path; it has: fp16, fp32"):
        cap.ridge_point(cap.load_hardware("apple-m2-max-96gb"), "bf16")


def test_a_part_without_bf16_computes_bf16_weights_in_fp16_and_says_so():
    part = cap.load_hardware("apple-m2-max-96gb")
    found = cap.tpot(cap.load_model("llama-3.1-8b"), part, cap.Deployment(weights="bf16"), batch=1, context_tokens=128)

    assert found.bound > 0
    assert any("has no bf16 path: bf16 is computed in fp16" in note for note in found.notes)


# Intel Gaudi 3: 1,677 TFLOP/s in bf16, of which 1,243 were measured; 459 in fp16, never measured.
def test_a_rate_of_bf16_says_nothing_of_a_slower_fp16_path():
    part = cap.load_hardware("intel-gaudi-3-oam-128gb")
    bf16, fp16 = (Arithmetic(name, name) for name in ("bf16", "fp16"))
    found = measured_ceilings(part, frozenset((bf16, fp16)), TypicalShare(memory=0.8, flop=0.5))

    assert found.flop_per_s[bf16] == 1243e12
    assert found.flop_per_s[fp16] == pytest.approx(459e12 * 1243 / 1677)
