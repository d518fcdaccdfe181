"""Bounds that a review found beaten, by a published speed or by an argument: each with the figure it must have now.

Counts are made here from the shapes of the public configurations; published speeds carry their sources.
"""

from __future__ import annotations

import pytest

import capacity as cap

GB10, L40S, H200 = "nvidia-gb10-128gb", "nvidia-l40s-pcie-48gb", "nvidia-h200-sxm5-141gb"
H100, MI300X, RTX_4090, RTX_3090 = (
    "nvidia-h100-sxm5-80gb",
    "amd-mi300x-oam-192gb",
    "nvidia-rtx-4090-24gb",
    "nvidia-rtx-3090-24gb",
)
# Files of GGUF: attention, head and table in q8_0, a cache of 16 bits; the experts of gpt-oss in mxfp4.
GGUF = cap.Deployment(weights="q8_0", kv_cache="fp16")
FORMATS = {"gpt-oss-120b": GGUF.replace(overrides=[{"part": "experts", "format": "mxfp4"}]), "qwen3-30b-a3b": GGUF}

# llama-batched-bench on a DGX Spark, decode phase: ggml-org/llama.cpp benches/dgx-spark.md, commit 4c7e989, 2025-11-02,
# build 6918. Batch, context, and tokens per second of all sequences together.
SPARK = [
    ("gpt-oss-120b", 8, 528, 146.62),
    ("gpt-oss-120b", 16, 528, 220.03),
    ("gpt-oss-120b", 32, 528, 312.58),
    ("gpt-oss-120b", 16, 4112, 176.49),
    ("gpt-oss-120b", 32, 4112, 230.99),
    ("gpt-oss-120b", 16, 8208, 149.75),
    ("gpt-oss-120b", 32, 8208, 196.58),
    ("qwen3-30b-a3b", 8, 528, 154.87),
    ("qwen3-30b-a3b", 16, 528, 232.94),
    ("qwen3-30b-a3b", 32, 528, 345.01),
    ("qwen3-30b-a3b", 16, 4112, 162.54),
]


def on_a_spark(model, batch, context):
    return cap.tpot(cap.load_model(model), cap.load_hardware(GB10), FORMATS[model], batch=batch, context_tokens=context)


# Each of these beats the roofline of experts that are visited independently, by up to a factor of 1.48.
@pytest.mark.parametrize(("model", "batch", "context", "tokens_per_s"), SPARK)
def test_experts_that_tokens_share_do_not_beat_the_bound(model, batch, context, tokens_per_s):
    found, measured_s = on_a_spark(model, batch, context), batch / tokens_per_s

    assert found.bound < measured_s < 1.005 * found.roofline


# gpt-oss-120b: 36 layers of width 2880, 64 query and 8 KV heads of 64, every other layer with a window of 128; 128
# experts of inner width 2880, of which a token visits 4, with biases; a vocabulary of 201,088. q8_0 takes 8.5 bits,
# mxfp4 4.25.
def test_the_bound_of_a_batch_on_experts_reads_those_of_one_token():
    attention = 36 * (2880 * (64 + 8 + 8) * 64 + 64 * 64 * 2880)
    experts, biases = 36 * 4 * 3 * 2880 * 2880, 36 * 4 * 3 * 2880
    moved = (attention + 201_088 * 2880) * 8.5 / 8 + experts * 4.25 / 8 + 36 * 2880 * 128 * 2 + biases * 2
    cached = 18 * 527 + 18 * 127  # tokens of all layers
    moved += 32 * cached * 2 * 8 * 64 * 2
    found = on_a_spark("gpt-oss-120b", 32, 528)

    assert found.bound == pytest.approx((moved - 24 * 2**20) / 273e9, rel=3e-3)
    assert found.bound_by == "memory"


# Qwen3-30B-A3B: 48 layers of width 2048, 32 query and 4 KV heads of 128, 128 experts of 768, of which a token visits 8.
@pytest.mark.parametrize(("batch", "context"), [(8, 528), (32, 528), (16, 4112)])
def test_the_bound_of_a_batch_on_experts_reads_the_whole_cache(batch, context):
    layer = 2048 * (32 + 4 + 4) * 128 + 32 * 128 * 2048 + 8 * 3 * 2048 * 768
    moved = (48 * layer + 151_936 * 2048) * 8.5 / 8 + 48 * 2048 * 128 * 2
    moved += batch * (context - 1) * 48 * 2 * 4 * 128 * 2

    found = on_a_spark("qwen3-30b-a3b", batch, context)

    assert found.bound == pytest.approx((moved - 24 * 2**20) / 273e9, rel=3e-3)


# A prompt of 16 tokens visits experts too, in the mean 7.92 of 8.
def test_the_bound_of_a_short_prompt_reads_the_experts_of_one_token():
    model, part = cap.load_model("mixtral-8x7b"), cap.load_hardware(H100)
    found = cap.ttft(model, part, cap.Deployment(weights="bf16", tensor_parallel=2), batch=1, prompt_tokens=16)

    layer = (4096 * (32 + 8 + 8) * 128 + 32 * 128 * 4096) / 2 + 4096 * 8 + 2 * 3 * 4096 * 14336 / 2
    moved = 2 * (32 * layer + 32000 * 4096 / 2)
    assert found.bound == pytest.approx((moved - 50 * 2**20) / 3.35e12, rel=3e-3)
    assert found.roofline > 3 * found.bound


# TinyChat, AWQ with fp16 accumulation: mit-han-lab/llm-awq tinychat/README.md, commit d6e797a, 2025-07; TensorRT-LLM
# v0.5: NVIDIA/TensorRT-LLM docs/source/performance.md, commit 138f96d, first token of one prompt, to 1 ms.
FIRST_TOKENS = [
    ("llama-3-8b", RTX_4090, {"weights": "int4_g128"}, 1024, 64.0),
    ("gpt-j-6b", L40S, {"weights": "fp8_e4m3", "kv_cache": "fp8_e4m3"}, 128, 12.0),
    ("gpt-j-6b", L40S, {"weights": "fp8_e4m3", "kv_cache": "fp8_e4m3"}, 2048, 71.0),
    ("llama-2-7b", L40S, {"weights": "fp8_e4m3", "kv_cache": "fp8_e4m3"}, 128, 14.0),
    ("llama-2-7b", L40S, {"weights": "fp8_e4m3", "kv_cache": "fp8_e4m3"}, 2048, 73.0),
]


@pytest.mark.parametrize(("model", "part", "formats", "prompt", "measured_ms"), FIRST_TOKENS)
def test_arithmetic_that_no_one_states_does_not_beat_the_bound(model, part, formats, prompt, measured_ms):
    found = cap.ttft(
        cap.load_model(model), cap.load_hardware(part), cap.Deployment(**formats), batch=1, prompt_tokens=prompt
    )

    assert found.bound * 1e3 <= measured_ms


def llama_2_7b_prefill_flop(tokens):
    """31 layers on all tokens; of the last, keys and values on all and the rest, as the head, on the last token."""
    keys, rest = 2 * 4096 * 4096, 2 * 4096 * 4096 + 3 * 4096 * 11008
    matrices = 31 * (keys + rest) * tokens + keys * tokens + rest + 4096 * 32000
    return 2 * matrices + 4 * 4096 * (31 * tokens * (tokens + 1) / 2 + tokens)


# A GeForce multiplies fp16 twice as fast with fp16 accumulation (NVIDIA's Ada and GA102 whitepapers), and the best runs
# of these two exceed the sheet in bf16: the bound takes that ratio.
GEFORCE = [(RTX_4090, 330.3e12 * 178.8 / 165.2), (RTX_3090, 142.3e12 * 78.0 / 71.2)]


@pytest.mark.parametrize(("name", "flop_per_s"), GEFORCE)
def test_a_bound_of_16_bits_takes_the_fastest_16_bit_path(name, flop_per_s):
    found = cap.ttft(
        cap.load_model("llama-2-7b"), cap.load_hardware(name), cap.Deployment(), batch=1, prompt_tokens=2048
    )

    assert found.bound == pytest.approx(llama_2_7b_prefill_flop(2048) / flop_per_s, rel=1e-3)


# fp8 checkpoints of DeepSeek state a dynamic activation scheme, so their products run in fp8 unless told otherwise.
@pytest.mark.parametrize("name", ["deepseek-v3", "kimi-k2"])
def test_a_checkpoint_with_an_activation_scheme_computes_in_it(name):
    model, part = cap.load_model(name), cap.load_hardware(H200)
    stored = cap.Deployment(data_parallel=8, expert_parallel=8)
    numbers = {"batch": 8, "prompt_tokens": 4096}
    as_stated, fp8, bf16 = (
        cap.ttft(model, part, stored.replace(**choice), **numbers)
        for choice in ({}, {"activations": "fp8_e4m3"}, {"activations": "bf16"})
    )

    assert (as_stated.bound, as_stated.roofline) == (fp8.bound, fp8.roofline)
    assert as_stated.bound < 0.6 * bf16.bound
    assert not [line for line in as_stated.assumed if line.startswith("activations")]


# Llama-3-70B: 80 layers of width 8192, 64 query and 8 KV heads of 128, inner width 28672, vocabulary 128,256.
KEYS_70B = 2 * 8192 * 1024
LAYER_70B = KEYS_70B + 2 * 8192 * 8192 + 3 * 8192 * 28672
PROMPT = 32_768


@pytest.mark.parametrize("stages", [2, 4, 8])
def test_the_first_token_of_a_pipeline_falls_as_the_number_of_its_stages(stages):
    """The first stage does its layers on all tokens; only the last stage may leave out work and has the head."""
    pairs = PROMPT * (PROMPT + 1) / 2
    layer = 2 * LAYER_70B * PROMPT + 4 * 8192 * pairs
    model, part = cap.load_model("llama-3-70b"), cap.load_hardware(H200)
    found = cap.ttft(
        model, part, cap.Deployment(weights="bf16", pipeline_parallel=stages), batch=1, prompt_tokens=PROMPT
    )

    assert found.bound == pytest.approx(80 / stages * layer / 989.4e12, rel=1e-3)
    last = layer * 80 / stages + 2 * 8192 * 128_256
    assert found.roofline == pytest.approx(last / 989.4e12, rel=1e-3)


# Eight chunks of 4096 tokens pass eight stages in 8 + 7 turns of an eighth of the longest stage.
def test_chunks_fill_a_pipeline_before_they_flow():
    model, part = cap.load_model("llama-3-70b"), cap.load_hardware(H200)
    filled, whole = (
        cap.ttft(
            model,
            part,
            cap.Deployment(weights="bf16", pipeline_parallel=8, prefill_chunk_tokens=chunk),
            batch=1,
            prompt_tokens=PROMPT,
        )
        for chunk in (4096, PROMPT)
    )

    assert filled.attainable / whole.attainable == pytest.approx((8 + 7) / 8 / 8, rel=1e-9)
    assert filled.bound == whole.bound < filled.attainable


# Eight data-parallel ranks at batch 9: one holds two sequences and seven hold one, and each takes its own steps.
# Llama-3.1-8B has the shapes of Llama-3-8B; 4095 tokens of 131,072 bytes lie in the cache of each.
def test_the_throughput_of_unequal_ranks_adds_up_rank_by_rank():
    weights, token = 2 * (8_030_261_248 - 4096 * 128_256), 131_072
    one, two = ((weights + held * 4095 * token - 50 * 2**20) / 3.35e12 for held in (1, 2))
    workload = cap.Workload(concurrency=9, prompt_tokens=3968, output_tokens=256)
    deploy = cap.Deployment(weights="bf16", data_parallel=8)

    found = cap.size(cap.load_model("llama-3.1-8b"), cap.load_hardware(H100), workload, deploy)

    assert found.tokens_per_s_bound == pytest.approx(2 / two + 7 / one, rel=3e-4)
    assert found.tokens_per_s_bound > 9 / two


# What a cache holds of the weights need not be read: only the rest is. Llama-3.2-1B: 16 layers of width 2048, 32 query
# and 8 KV heads of 64, inner width 8192, tied vocabulary of 128,256 in 16 bits; Qwen2.5-0.5B: 24 layers of width 896,
# 14 query and 2 KV heads of 64, inner width 4864, tied vocabulary of 151,936. int8 has a 4-byte scale per output row.
SMALL = [
    ("llama-3.2-1b", 4, 16, 2048, 32, 8, 8192, 128_256, 0),
    ("qwen2.5-0.5b", 2, 24, 896, 14, 2, 4864, 151_936, 1),
]


@pytest.mark.parametrize(("name", "ways", "layers", "width", "heads", "kv_heads", "inner", "vocabulary", "bias"), SMALL)
def test_only_weights_beyond_the_cache_are_read(name, ways, layers, width, heads, kv_heads, inner, vocabulary, bias):
    rows = (heads + 2 * kv_heads) * 64
    elements = width * rows + heads * 64 * width + 3 * width * inner
    scales = 4 * (rows / ways + width + 2 * inner / ways + width)
    norms = 2 * (2 * width * layers + width)
    layer = elements / ways + scales + bias * 2 * rows / ways
    moved = layers * layer + norms + 2 * width * vocabulary / ways
    deploy = cap.Deployment(weights="int8", tensor_parallel=ways)
    found = cap.tpot(cap.load_model(name), cap.load_hardware(MI300X), deploy, batch=1, context_tokens=1)

    assert found.bound == pytest.approx((moved - 256 * 2**20) / 5.3e12, rel=3e-3)
    assert found.roofline == pytest.approx(moved / 5.3e12, rel=3e-3)


def test_a_byte_beyond_the_cache_costs_the_time_of_a_byte():
    """Weights that grow past the last-level cache: the bound grows from the time of the arithmetic without a step."""
    model, deploy = cap.load_model("qwen2.5-0.5b"), cap.Deployment(weights="bf16", activations="bf16")
    part = cap.load_hardware(MI300X).replace(**{"peak_flop_per_s.bf16": 1e18, "peak_flop_per_s.fp16": 1e18})
    moved = int(sum(row.moved_bytes for row in cap.tpot(model, part, deploy, batch=1, context_tokens=1).rows))

    def step_s(cache_bytes):
        cached = part.replace(**{"memory.last_level_cache_bytes": cache_bytes})
        return cap.tpot(model, cached, deploy, batch=1, context_tokens=1).bound

    held, outside = step_s(moved), [2**14, 2**14 + 1, 2**20, 2**28]
    assert step_s(moved + 1) == step_s(2 * moved) == held < 2**14 / 5.3e12
    for missing in outside:
        assert step_s(moved - missing) == pytest.approx(missing / 5.3e12, rel=1e-9)
