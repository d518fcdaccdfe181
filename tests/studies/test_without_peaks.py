"""A part whose file gives memory and no peak: memory is answered, and of the times the side of the memory."""

from __future__ import annotations

import pytest

import capacity as cap
from capacity.cli import run
from capacity.units import GIB

BOARD = {
    "name": "Board",
    "memory": {"capacity_bytes": 64 * GIB, "bytes_per_s": 1e11},
    "sources": [{"fields": ["*"], "cite": "round figures of a test"}],
}
FP16 = cap.Deployment(weights="fp16", kv_cache="fp16")


def sized(context, **workload):
    asked = cap.Workload(prompt_tokens=context - 1, output_tokens=1, **workload)
    return cap.size(cap.load_model("llama-3.2-3b"), cap.load_hardware(BOARD), asked, FP16)


# 28 layers x 8 KV heads x 128 x 2 (keys, values) x 2 bytes = 114,688 B per token; x 786,432 = 84.0 GiB.
def test_the_cache_of_786_432_tokens_takes_84_gib_and_does_not_fit():
    sizing = sized(786_432)

    assert sizing.ledger[0].line("KV cache") == 114_688 * 786_432 == 84 * GIB
    assert (sizing.verdict, sizing.max_batch) == ("does not fit", 0)


# One step reads the 3,212,749,824 parameters at 2 bytes and the cache of 4,095 tokens: at 100 GB/s 68.95 ms.
def test_the_bound_of_a_step_is_that_of_its_memory_and_compute_times_are_unknown():
    sizing = sized(4_096)

    assert sizing.verdict == "fits"
    assert sizing.tpot.bound == pytest.approx((3_212_749_824 * 2 + 114_688 * 4_095) / 1e11, rel=1e-3)
    assert (sizing.tpot.roofline, sizing.ttft.bound, sizing.request_bound_s, sizing.ridge_format) == (None,) * 4
    assert "Board: no peak is recorded for this part, so compute times are unknown" in sizing.notes + sizing.ttft.notes
    assert "memory side; compute unknown" in " ".join(str(sizing).split())


def test_an_objective_of_a_time_that_is_unknown_is_not_said_to_be_met():
    sizing = sized(4_096, max_ttft_s=1.0)

    assert not sizing.missed
    assert "objective TTFT <= 1.000 s: unknown, for no peak of the part is recorded" in str(sizing)


def test_the_command_answers_with_the_exit_code_of_the_memory(tmp_path, capsys):
    file = tmp_path / "board.toml"
    file.write_text(
        'name = "Board"\n[memory]\ncapacity_bytes = 68_719_476_736\nbytes_per_s = 1e11\n'
        '[[sources]]\nfields = ["*"]\ncite = "round figures of a test"\n'
    )
    question = ["size", "llama-3.2-3b", str(file), "--weights", "fp16", "--batch", "1", "--context"]

    assert run([*question, "786432"]) == 1
    assert run([*question, "4096", "--operators"]) == 0
    assert run([*question, "4096", "--json"]) == 0
    capsys.readouterr()


def test_a_time_to_first_token_alone_is_refused_with_the_reason():
    with pytest.raises(cap.CapacityError, match="no peak is recorded"):
        cap.ttft(cap.load_model("llama-3.2-3b"), cap.load_hardware(BOARD), FP16, batch=1, prompt_tokens=100)
