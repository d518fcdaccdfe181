"""Time on links against messages counted here, and the figures of a part that ceilings rest on."""

from __future__ import annotations

import numpy as np
import pytest

import capacity as cap
from capacity.ceilings import attainable, comm_s, datasheet
from capacity.specs.hardware import HardwareSpec

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


# Two sums a layer and one for the table, each of 4096 values of 2 bytes a token; the head meets only the last token of
# a prompt (vLLM prunes the hidden states before its head), so a longer prompt gathers no more logits.
def test_a_longer_prompt_adds_sums_and_no_logits(linked, llama_3_8b):
    short, long = (comm_s(llama_3_8b, linked, DEPLOY, tokens=n, sequences=1)[0] for n in (4096, 8192))

    assert long - short == pytest.approx(moved_s(2 * 32 + 1, 4096 * 4096 * 2), rel=1e-9)


# A gather moves (n - 1) / n of the logits of all sequences, 128,256 values of 2 bytes each.
def test_more_prompts_add_their_logits_once_each(linked, llama_3_8b):
    one, many = (comm_s(llama_3_8b, linked, DEPLOY, tokens=8192, sequences=n)[0] for n in (1, 9))

    assert many - one == pytest.approx(8 * 128_256 * 2 * 3 / 4 / RATE, rel=1e-9)


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
    tokens, sequences = np.array([1, 8, 8192]), np.array([1, 8, 1])
    many = comm_s(llama_3_8b, linked, DEPLOY, tokens=tokens, sequences=sequences)[0]

    for index, (t, s) in enumerate(zip(tokens.tolist(), sequences.tolist(), strict=True)):
        assert many[index] == comm_s(llama_3_8b, linked, DEPLOY, tokens=t, sequences=s)[0]


def test_ceilings_name_the_figures_they_rest_on(linked, llama_3_8b, make_llama):
    bf16 = cap.Deployment(weights="bf16")
    large = datasheet(llama_3_8b, linked, bf16).figures
    small = datasheet(make_llama("small", 2, 256, 4, 4, 64, 512, 1000), linked, bf16).figures

    assert {"memory.bytes_per_s", "peak_flop_per_s.bf16"} <= set(large)
    assert "memory.l2_bytes" not in large  # 16 GB are read whatever the cache of 50 MB is
    assert "memory.l2_bytes" in small
    assert attainable(llama_3_8b, linked, bf16).figures == (
        "measured.read_bytes_per_s",
        "measured.gemm_flop_per_s.bf16",
    )
