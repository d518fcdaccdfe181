"""Shipped engines against what their start-up logs print."""

import pytest

import capacity as cap
from capacity.catalog.engines import load_engine
from capacity.engines.settings import with_settings
from capacity.errors import CapacityError
from capacity.estimate.case import prepare
from capacity.estimate.pool import cache_pool

GIB = 2**30
H100 = "nvidia-h100-sxm5-80gb"


def pool(model, deploy, *, context_tokens, part=H100):
    case = prepare(cap.load_model(model), cap.load_hardware(part), deploy)
    return cache_pool(case, context_tokens=context_tokens)


# llm-d-incubation/llm-d-planner, accuracy/accuracy_report.md (vLLM 0.19, H100, fraction 0.95): 58.11 GiB of
# Llama-3.1-8B, 58.1 requests of 8,192 tokens.
def test_the_pool_of_llama_3_1_8b_is_the_one_that_vllm_0_19_printed():
    held = pool(
        "llama-3.1-8b",
        cap.Deployment(weights="bf16", engine="vllm", engine_version="0.19", memory_fraction=0.95),
        context_tokens=8192,
    )

    assert held.pool_bytes / GIB == pytest.approx(58.11, rel=0.002)
    assert held.requests == pytest.approx(58.1, rel=0.002)
    assert held.tokens == held.blocks * 16


# The same report: 3.04 GiB per device of Qwen2.5-72B over two H100, where a rival's constants gave 4.89. The pool is a
# difference of large numbers: a hundredth of the weights moves it by a fifth.
def test_a_pool_of_two_devices_counts_the_libraries_of_tensor_parallelism():
    held = pool(
        "qwen2.5-72b",
        cap.Deployment(weights="bf16", engine="vllm", engine_version="0.19", memory_fraction=0.95, tensor_parallel=2),
        context_tokens=8192,
    )

    assert held.pool_bytes / GIB == pytest.approx(3.04, abs=0.08)


# vllm-project/vllm, start-up check of gpt-oss-120b (0.11 and newer): 4.79 GiB needed for 131,072 tokens. A layer of the
# window of 128 is charged with 127 + 8,192 tokens and one block more.
def test_a_request_of_gpt_oss_takes_windows_of_a_whole_pass():
    deploy = cap.Deployment(engine="vllm", engine_version="0.11")
    held = pool("gpt-oss-120b", deploy, context_tokens=131_072)

    assert held.request_bytes / GIB == pytest.approx(4.79, abs=0.005)
    blocks = 131_072 // 16 + -(-(127 + 8192) // 16) + 1
    assert held.request_bytes == blocks * 18 * 16 * 2 * 8 * 64 * 2


def test_latents_are_in_blocks_of_64_and_whole_on_every_rank():
    """vLLM 0.11.2 of DeepSeek-R1 on eight devices: 635,648 tokens in 41.6 GiB, 576 x 2 B in each of 61 layers."""
    deploy = cap.Deployment(engine="vllm", engine_version="0.11.2", tensor_parallel=8)
    held = pool("deepseek-r1", deploy, context_tokens=8192, part="nvidia-h200-sxm5-141gb")

    assert held.block_bytes == 64 * 61 * 576 * 2
    assert 41.6 * GIB // held.block_bytes * 64 == pytest.approx(635_648, rel=1e-3)


def test_the_line_of_tokens_changed_its_meaning():
    """vllm-project/vllm#51041: since 0.20.2 it is the requests of the longest context times its length."""
    old, new = (
        pool("gpt-oss-20b", cap.Deployment(engine="vllm", engine_version=version), context_tokens=131_072)
        for version in ("0.20.0", "0.20.2")
    )

    assert old.blocks == new.blocks
    assert old.tokens == old.blocks // 2 * 16  # two groups of 12 layers share the blocks
    assert new.tokens == int(new.requests * 131_072)


@pytest.mark.parametrize(
    ("part", "sequences", "chunk"),
    [(H100, 1024, 8192), ("nvidia-a100-sxm4-80gb", 256, 2048), ("nvidia-l4-pcie-24gb", 256, 2048)],
)
def test_settings_that_nobody_stated_follow_the_device(part, sequences, chunk):
    model, deploy = cap.load_model("llama-3.1-8b"), cap.Deployment(weights="bf16", engine="vllm")

    filled = with_settings(model, deploy, cap.load_hardware(part))

    assert (filled.max_sequences, filled.prefill_chunk_tokens) == (sequences, chunk)
    assert filled.memory_fraction == 0.92
    stated = with_settings(model, deploy.replace(max_sequences=7, memory_fraction=0.5), cap.load_hardware(part))
    assert (stated.max_sequences, stated.memory_fraction, stated.prefill_chunk_tokens) == (7, 0.5, chunk)
    assert "max_sequences" not in filled.model_fields_set


@pytest.mark.parametrize(
    ("version", "fraction", "inside", "note"),
    [
        ("0.6", 0.9, False, "vllm 0.6 is older than any known; the rules of 0.11 stand in"),
        ("0.19", 0.9, False, ""),
        ("v0.21.0rc1", 0.9, True, ""),
        ("0.27.1", 0.92, True, ""),
        ("0.31", 0.92, False, ""),
        ("1.4", 0.92, False, "vllm 1.4 is newer than any known; the rules of 0.31 stand in"),
    ],
)
def test_a_version_has_its_rules_or_those_of_the_nearest(version, fraction, inside, note):
    engine = load_engine("vllm", version)

    assert engine.defaults.memory_fraction == fraction
    assert engine.graphs.inside is inside
    assert (engine.version, engine.version_note) == (version, note)


@pytest.mark.parametrize("version", ["latest", "", "0.x", "0.19;rm"])
def test_a_version_that_is_none_is_refused(version):
    with pytest.raises(CapacityError, match=r"a version of vllm looks like 0\.19 or 0\.20\.2"):
        load_engine("vllm", version)


# SGLang windowed pools: 56,320 to 70,656 tokens in a log of 0.5.11; without windows the whole rest is one pool.
def test_pools_of_sglang_are_shared_by_ratio():
    case = prepare(
        cap.load_model("gpt-oss-20b"), cap.load_hardware(H100), cap.Deployment(engine="sglang", engine_version="0.5.11")
    )
    (kind,) = case.memory.kinds
    (held,) = kind.pools

    assert sorted((row.ratio, row.totals.caches[0].name) for row in held.by_ratio) == [
        (8, "KV cache of windows"),
        (10, "KV cache"),
    ]
    assert held.all_parts == 10  # of a model without states; the pool of states takes no share


# closure of TensorRT-LLM's printed figures: 70.48 GiB free after loading x 0.9 = 63.44 GiB.
def test_tensorrt_llm_takes_a_share_of_what_is_free_after_loading():
    case = prepare(
        cap.load_model("llama-2-7b"),
        cap.load_hardware(H100),
        cap.Deployment(weights="fp16", engine="tensorrt-llm", tensor_parallel=2),
    )
    (kind,) = case.memory.kinds
    free_bytes = case.budget.capacity_bytes - kind.loaded_bytes

    assert cache_pool(case, context_tokens=2048).pool_bytes == pytest.approx(0.9 * free_bytes, abs=1)
    assert int(0.9 * 75_677_323_756) / GIB == pytest.approx(63.44, rel=0.0005)


# llama.cpp, gpt-oss-20b with -np 1 -ub 512 at 131,072: 3,072 MiB for full layers, 18 MiB (768 cells) for windows.
def test_cells_of_llama_cpp_are_padded_and_reserved():
    deploy = cap.Deployment(weights="bf16", engine="llama.cpp")
    model = cap.load_model("gpt-oss-20b")
    ledger = cap.size(
        model, cap.load_hardware(H100), cap.Workload(prompt_tokens=131_071, output_tokens=1), deploy
    ).ledger[0]

    assert ledger.line("KV cache") == 3072 * 2**20
    held = ledger.line("KV cache of windows") + ledger.line("KV cache of windows, internal fragmentation")
    assert held == 18 * 2**20
