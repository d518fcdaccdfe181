"""A "does not fit" that hangs on an assumed fraction or chunk says so in its first line."""

from __future__ import annotations

import capacity as cap

MODEL, PART = cap.load_model("qwen3-14b"), cap.load_hardware("nvidia-rtx-4080-16gb")
STORED = {"weights": "q4_k", "kv_cache": "q8_0"}


def sized(batch, **deploy):
    workload = cap.Workload(prompt_tokens=32_767, output_tokens=1, concurrency=batch)
    return cap.size(MODEL, PART, workload, cap.Deployment(**STORED, **deploy))


# 32.52 MiB are missing of nine tenths of 16,376 MiB; the last tenth is 1.6 GiB.
def test_an_assumed_fraction_that_decides_is_named():
    sizing = sized(2)
    first = " ".join(str(sizing).split("\nqwen3-14b")[0].split())

    assert (sizing.verdict, [one.name for one in sizing.turned_by]) == ("does not fit", ["memory_fraction"])
    assert "missing per device at the assumed memory_fraction 0.9; it fits at 1" in first
    assert sized(2, memory_fraction=1.0).fits


def test_a_fraction_that_was_given_is_not_named():
    assert sized(2, memory_fraction=0.9, prefill_chunk_tokens=8192).turned_by == ()


# Under the whole memory the activations of 8,192 tokens are what is too much: 512 tokens take a sixteenth of them.
def test_an_assumed_chunk_that_decides_is_named():
    sizing = sized(2, memory_fraction=0.9)

    assert [(one.name, one.assumed, one.turning) for one in sizing.turned_by] == [("prefill_chunk_tokens", 8192, 512)]
    assert sized(2, memory_fraction=0.9, prefill_chunk_tokens=512).fits


def test_a_case_far_beyond_the_memory_hangs_on_no_assumption():
    assert sized(40).turned_by == ()
