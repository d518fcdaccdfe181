"""The mechanism of the memory table against what serving engines print: windows, pools, slots, budgets.

``tests/data/engine_memory_cases.csv`` has the printed figures with their sources (start-up logs of vLLM, SGLang and
llama.cpp, the memory page of TensorRT-LLM). Sizes of heads and layers are those of the models' own configurations.
"""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

import capacity as cap
from capacity.engines.budget import Budget
from capacity.engines.table import MemoryRow, memory_table_of
from capacity.estimate import memory, usage
from capacity.specs.engine import Pool

FILE = Path(__file__).parents[1] / "data" / "engine_memory_cases.csv"
CASES = {row["id"]: row for row in csv.DictReader(FILE.read_text(encoding="utf-8").splitlines())}
UNITS = {"GiB": 2**30, "MiB": 2**20, "tokens": 1, "requests": 1}
ONE_DEVICE = cap.Deployment(weights="bf16")


def given(case, field):
    """A figure that the log states as an input."""
    return int(CASES[case][field])


def printed(case):
    """The figure that the engine printed, to its own digits or to what the rounding of its inputs allows."""
    row = CASES[case]
    return pytest.approx(float(row["observed_value"]) * UNITS[row["observed_unit"]], rel=float(row["tolerance_rel"]))


def table_of(*rows, pools=(), chunk_tokens=8192):
    return memory_table_of(rows, chunk_tokens=chunk_tokens, pools=pools)


def held(row, sequences, context_tokens):
    """Bytes of one row."""
    (kind,) = table_of(row).kinds
    return int(usage.total_bytes(kind.totals, sequences=sequences, context_tokens=context_tokens))


def max_batch(table, budget, context_tokens):
    return int(memory.max_batch(table, budget, ONE_DEVICE, context_tokens=context_tokens))


def max_context(table, budget, batch=1):
    return int(memory.max_context(table, budget, ONE_DEVICE, batch=batch, positions=None)[0])


# ---- vLLM: a window is charged with the tokens of a pass and a block ----


def in_vllm(page_bytes, groups, window):
    """One group of full layers and some of sliding layers, which take blocks of one size from the same memory."""
    window = {"window_tokens": window - 1, "extra_tokens": 8192, "spare_blocks": 1}
    return table_of(
        MemoryRow("full", 0, pool="blocks", blocks="all", block_bytes=page_bytes, block_tokens=16),
        MemoryRow(
            "sliding", 0, pool="blocks", blocks="windowed", block_bytes=groups * page_bytes, block_tokens=16, **window
        ),
        pools=(Pool(name="blocks", rows=("full", "sliding")),),
    )


# gpt-oss-120b: 18 layers of each kind, 8 KV heads of 64, window 128.
def test_a_window_of_vllm_is_charged_with_the_tokens_of_a_pass():
    table = in_vllm(18 * 2 * 16 * 8 * 64 * 2, groups=1, window=128)
    needed = usage.total_bytes(table.kinds[0].totals, sequences=1, context_tokens=given("M079", "max_model_len"))

    assert int(needed) == printed("M079")
    assert max_context(table, Budget(given("M080", "input_kv_bytes"))) == printed("M080")


# Gemma-3-27B: 10 full layers and 52 sliding by 1024 in six groups of ten, 16 KV heads of 128. vLLM prints a concurrency
# of 50.05; with a window charged as its 1,024 tokens it would be 140.
def test_the_concurrency_that_vllm_prints_for_groups_of_sliding_layers():
    page_bytes = 10 * 2 * 16 * 16 * 128 * 2
    table, budget = in_vllm(page_bytes, groups=6, window=1024), Budget(given("M081", "input_kv_bytes"))
    context_tokens = given("M082", "max_model_len")
    one = usage.total_bytes(table.kinds[0].totals, sequences=1, context_tokens=context_tokens)

    assert budget.capacity_bytes / int(one) == printed("M082")
    assert max_batch(table, budget, context_tokens) == 50
    assert budget.capacity_bytes // page_bytes // 7 * 16 == printed("M081")


# Qwen3.8-27B with three draft tokens: 17 layers a group, blocks of 800 tokens of 3,276,800 bytes a layer, and four
# pages of state in each of three groups, from the same blocks.
def test_state_pages_of_vllm_leave_fewer_blocks_for_context():
    page_bytes = 17 * 3_276_800
    table = table_of(
        MemoryRow("KV cache", 0, pool="blocks", blocks="all", block_bytes=page_bytes, block_tokens=800),
        MemoryRow("state", 0, pool="blocks", sequence_bytes=12 * page_bytes),
        pools=(Pool(name="blocks", rows=("KV cache", "state")),),
    )
    budget = Budget(given("M105", "input_kv_bytes"))

    assert max_context(table, budget) == 139_200 == printed("M105")
    assert max_batch(table, budget, given("M107", "max_model_len")) == 1
    assert max_batch(table, budget, 139_201) == 0


# ---- SGLang: pools of state slots and of tokens; two pools of tokens in a ratio ----

# Qwen3.5-9B on two devices: 24 layers of 16 value heads with 128 x 128 of state in 32 bit and 3 x 4096 of convolution
# in 16 bit; 8 layers of two KV heads of 256.
SLOT_BYTES = 24 * (16 * 128 * 128 * 4 + 3 * 4096 * 2)
TOKEN_BYTES = 8 * 2 * 2 * 256 * 2
STATE_AND_TOKENS = (Pool(name="state", rows=("state",), parts=9), Pool(name="tokens", rows=("KV cache",), parts=10))


def in_sglang(pools):
    """Weights, a slot of state for each sequence and one more, and a pool of tokens."""
    names = {row: pool.name for pool in pools for row in pool.rows}
    state, tokens = names.get("state", ""), names.get("KV cache", "")
    weight_bytes = given("M141", "input_total_bytes") - given("M141", "input_free_bytes")
    return table_of(
        MemoryRow("weights", 0, loaded=True, fixed_bytes=weight_bytes),
        MemoryRow("state", 0, pool=state, fixed_bytes=SLOT_BYTES, sequence_bytes=SLOT_BYTES),
        MemoryRow("KV cache", 0, pool=tokens, blocks="all", block_bytes=TOKEN_BYTES),
        pools=pools,
    )


def free_before_load():
    return Budget(given("M141", "input_total_bytes"), float(CASES["M141"]["memory_fraction"]), "free before load")


def test_the_pools_of_sglang_share_what_weights_leave_nine_to_ten():
    table, budget = in_sglang(STATE_AND_TOKENS), free_before_load()
    rest_bytes = budget.planned_bytes() - table.kinds[0].loaded_bytes

    assert rest_bytes * 9 // 19 == printed("M141")
    assert rest_bytes * 10 // 19 == printed("M142")
    assert held(MemoryRow("state", 0, fixed_bytes=SLOT_BYTES, sequence_bytes=SLOT_BYTES), 186, 1) == pytest.approx(
        (4.38 + 0.10) * 2**30,
        rel=0.005,  # M139 and M140: 186 slots and one more
    )


# The log has 186 slots of state and 327,310 tokens: 186 short sequences, and ten of 32,731 tokens.
def test_all_pools_of_sglang_must_hold():
    table, budget = in_sglang(STATE_AND_TOKENS), free_before_load()

    assert max_batch(table, budget, 1) == given("M139", "max_sequences")
    assert max_context(table, budget) == pytest.approx(given("M130", "input_context_tokens"), rel=0.005)
    assert max_batch(table, budget, given("M130", "input_context_tokens") // 10) == 10
    # added up in one memory, both would hold more than either pool does
    summed = in_sglang(())
    assert max_batch(summed, budget, 1) > 300
    assert max_batch(summed, budget, given("M130", "input_context_tokens") // 10) == 18


# Gemma-4-26B-A4B in pages of 256: 5 full layers of 2 heads of 512 and 25 of 8 heads of 256, window 1,024. The log has
# the keys of both pools, 5.40 and 0.68 GiB, and their tokens.
def in_two_token_pools(window_tokens):
    full, sliding = (2 * 256 * elements * 2 for elements in (5 * 2 * 512, 25 * 8 * 256))
    window = {"blocks": "windowed", "window_tokens": window_tokens}
    return table_of(
        MemoryRow("full", 0, pool="tokens", ratio=5, blocks="all", block_bytes=full, block_tokens=256),
        MemoryRow("sliding", 0, pool="tokens", ratio=4, block_bytes=sliding, block_tokens=256, **window),
        pools=(Pool(name="tokens", rows=("full", "sliding"), ratios=(5, 4)),),
    )


def test_of_two_token_pools_a_sequence_takes_the_larger_share():
    budget = Budget(2 * int((float(CASES["N135"]["observed_value"]) + float(CASES["N136"]["observed_value"])) * 2**30))
    table = in_two_token_pools(1024)

    assert max_context(table, budget) == given("N136", "input_context_tokens")
    assert max_context(in_two_token_pools(2**20), budget) == given("N135", "input_context_tokens")
    assert max_batch(table, budget, 8192) == given("N136", "input_context_tokens") // 8192 == 8
    assert max_batch(table, budget, 1024) == given("N135", "input_context_tokens") // 1024 == 55


# Qwen3.6-27B: 48 layers of 48 value heads and 10,240 channels of convolution; 16 layers of 4 KV heads of 256.
def test_state_slots_are_reserved_from_the_start():
    conv, ssm = 48 * 3 * 10_240 * 2, 48 * 48 * 128 * 128 * 4
    slots = given("N182", "max_sequences")

    def state(slot_bytes, sequences):
        reserved = {"blocks": "preallocated", "slots": slots, "block_bytes": slot_bytes, "block_tokens": 2**31}
        return held(MemoryRow("state", 0, fixed_bytes=slot_bytes, **reserved), sequences, 32_768)

    assert state(conv, slots) == printed("N181")
    assert state(ssm, slots) == state(ssm, 1) == printed("N182")
    keys = MemoryRow("keys", 0, blocks="all", block_bytes=16 * 4 * 256 * 2)
    assert held(keys, 1, given("N183", "input_context_tokens")) == printed("N183")


# ---- llama.cpp: cells of all slots, padded to 256 ----

GPT_OSS_20B, GEMMA_2_2B = 12 * 2 * 8 * 64 * 2, 13 * 2 * 4 * 256 * 2  # bytes of a token in the layers of one kind


@pytest.mark.parametrize(
    ("case", "token_bytes", "blocks", "window"),
    [
        ("M182", GEMMA_2_2B, "unified", 4096),
        ("M184", GPT_OSS_20B, "unified", 128),
        ("M187", GPT_OSS_20B, "all", 0),
        ("M188", GPT_OSS_20B, "windowed", 128),
        ("X005", GPT_OSS_20B, "windowed", 128),
        ("X006", GPT_OSS_20B, "windowed", 128),
        ("X007", GPT_OSS_20B, "windowed", 128),
        ("X008", GPT_OSS_20B, "windowed", 128),
        ("X014", GPT_OSS_20B, "windowed", 128),
    ],
)
def test_the_caches_that_llama_cpp_prints(case, token_bytes, blocks, window):
    slots = given(case, "parallel_slots")
    context_tokens = given(case, "input_context_tokens") // slots
    extra = int(CASES[case]["ubatch"] or 0) if window else 0
    rule = {"blocks": blocks, "block_tokens": 256, "window_tokens": window, "extra_tokens": extra}

    assert held(MemoryRow("cache", 0, block_bytes=256 * token_bytes, **rule), slots, context_tokens) == printed(case)


def test_cells_of_llama_cpp_are_reserved_for_all_slots():
    reserved = {"blocks": "preallocated", "slots": 8, "slot_tokens": 2048}
    row = MemoryRow("cache", 0, block_bytes=256 * GPT_OSS_20B, block_tokens=256, **reserved)

    assert held(row, 1, 1) == held(row, 8, 2048) == printed("M187")
    assert held(row, 9, 1) == 9 * 2048 * GPT_OSS_20B


# ---- budgets ----


def test_vllm_plans_with_a_fraction_of_the_total():
    budget = Budget(given("M009", "input_total_bytes"), float(CASES["M009"]["memory_fraction"]))
    parts = ("weight", "non_torch", "activation")
    (kind,) = table_of(*[MemoryRow(part, 0, fixed_bytes=given("M010", f"input_{part}_bytes")) for part in parts]).kinds

    assert budget.planned_bytes() == printed("M009")
    assert budget.planned_bytes() - kind.totals.fixed_bytes == printed("M010")


# 0.9 of 70.48 GiB that the engine leaves, in 4,060 blocks of 64 tokens of 262,144 bytes: rounded up from 4,059.6.
def test_tensorrt_llm_plans_with_a_fraction_of_what_the_engine_leaves_and_rounds_blocks_up():
    free, loaded = given("M154", "input_free_bytes"), 7_000_000_000
    budget = Budget(free + loaded, float(CASES["M154"]["memory_fraction"]), "free after load")
    block = {"blocks": "all", "block_bytes": 64 * 262_144, "block_tokens": 64}

    def table(rounding):
        pools = (Pool(name="blocks", rows=("KV cache",), rounding=rounding),)
        return table_of(
            MemoryRow("weights", 0, loaded=True, fixed_bytes=loaded),
            MemoryRow("KV cache", 0, pool="blocks", **block),
            pools=pools,
        )

    assert budget.planned_bytes(loaded) - loaded == printed("M154")
    assert max_context(table("ceil"), budget) == given("M153", "input_context_tokens") == 4060 * 64
    assert max_context(table("floor"), budget) == 4059 * 64
    assert printed("M154") == 4060 * 64 * 262_144


# 100 bytes, half of them planned with, 10 taken by others. What lies outside has the other half less what others take
# of it: all 10 where the plan is half of what is free, none where the plan itself is what pays for them.
@pytest.mark.parametrize(
    ("of", "planned", "outside"),
    [("total", 40, 50), ("free before load", 45, 45), ("free after load", 20 + 35, 35)],
)
def test_rows_outside_the_fraction_lie_in_what_the_plan_leaves(of, planned, outside):
    budget = Budget(100, 0.5, of, reserved_bytes=10)
    rows = [MemoryRow("weights", 0, loaded=True, fixed_bytes=20), MemoryRow("state", 0, sequence_bytes=1)]

    def with_graphs(size):
        return table_of(*rows, MemoryRow("graphs", 0, inside=False, fixed_bytes=size))

    assert budget.planned_bytes(20) == planned
    assert budget.outside_bytes(planned) == outside
    assert max_batch(with_graphs(outside), budget, 1) == planned - 20
    assert max_batch(with_graphs(outside + 1), budget, 1) == 0
