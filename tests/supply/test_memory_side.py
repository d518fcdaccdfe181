"""Ceilings of a part whose peaks are not recorded: its memory, and arithmetic in no time."""

from __future__ import annotations

import capacity as cap
from capacity.supply.memory_side import memory_ceilings, without_peaks
from capacity.units import Arithmetic

BF16 = frozenset({Arithmetic("bf16", "bf16")})
BOARD = {
    "name": "Board",
    "memory": {"capacity_bytes": 2**36, "bytes_per_s": 1e11},
    "sources": [{"fields": ["*"], "cite": "round figures of a test"}],
}


def test_the_fastest_rate_of_reading_memory_is_taken():
    stated = memory_ceilings(cap.load_hardware(BOARD), BF16)
    reason = {"value": 1.02, "reason": "the memory of a test is overclocked"}
    measured = {"measured": {"read_bytes_per_s": 1.02e11}, "exceptions": {"measured.read_bytes_per_s": reason}}
    faster = memory_ceilings(cap.load_hardware(BOARD | measured), BF16)

    assert (stated.bytes_per_s, stated.figures) == (1e11, ("memory.bytes_per_s",))
    assert (faster.bytes_per_s, faster.figures) == (1.02e11, ("measured.read_bytes_per_s",))
    assert stated.flop_per_s == {Arithmetic("bf16", "bf16"): float("inf")}


def test_only_a_part_without_any_peak_is_without_peaks():
    assert without_peaks(cap.load_hardware(BOARD)).startswith("Board: no peak is recorded for this part")
    assert without_peaks(cap.load_hardware("nvidia-h100-sxm5-80gb")) == ""
