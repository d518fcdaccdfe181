"""Words of published tables: labels that no shipped table has are read like those that it has."""

from __future__ import annotations

import re

import pytest

import capacity as cap
from capacity.files import package_data
from capacity.units import number_format
from capacity.validation.published_names import (
    LeftOut,
    cache_format_of_label,
    formats_of_label,
    model_of_label,
    parts_of_label,
    rules,
    runs_eagerly,
)


@pytest.mark.parametrize(
    ("label", "parts"),
    [
        ("NVIDIA GeForce RTX 4090", {"nvidia-rtx-4090-24gb"}),
        ("4x RTX 4090", {"nvidia-rtx-4090-24gb"}),
        ("NVIDIA A100-SXM4-80GB", {"nvidia-a100-sxm4-80gb"}),
        ("A100 80GB", {"nvidia-a100-sxm4-80gb", "nvidia-a100-pcie-80gb"}),
        ("H100 80GB HBM3", {"nvidia-h100-sxm5-80gb", "nvidia-h100-pcie-80gb"}),
        ("H100 NVL", {"nvidia-h100-nvl-94gb"}),
        ("L4", {"nvidia-l4-pcie-24gb"}),
        ("L40", {"nvidia-l40-pcie-48gb"}),
        ("GB200", {"nvidia-gb200-nvl72-186gb"}),
        ("AMD Instinct MI325X", {"amd-mi325x-oam-256gb"}),
        ("Radeon RX 7900 XTX", {"amd-radeon-rx-7900-xtx-24gb"}),
        ("M4 Max 36GB", {"apple-m4-max-128gb"}),
        ("M3 Ultra 80c", {"apple-m3-ultra-512gb"}),
        ("Jetson Orin Nano Super 8GB", {"nvidia-jetson-orin-nano-super-8gb"}),
        ("Jetson AGX Orin (32GB)", {"nvidia-jetson-agx-orin-32gb"}),
        ("DGX Spark", {"nvidia-gb10-128gb"}),
        ("TPU v6e", {"google-tpu-v6e-32gb"}),
        ("Gaudi 3", {"intel-gaudi-3-oam-128gb"}),
        ("Ryzen AI Max+ 395", {"amd-ryzen-ai-max-395-128gb"}),
    ],
)
def test_a_label_means_the_parts_that_have_all_its_words(label, parts):
    assert set(parts_of_label(label)) == parts


@pytest.mark.parametrize("label", ["RTX 4090 D", "RTX 4090D", "RTX 6000", "A100X", "M4 Pro", "H100 SXM 64GB", "3090"])
def test_a_label_with_a_word_too_many_or_too_few_means_no_part(label):
    with pytest.raises(LeftOut, match="part not shipped"):
        parts_of_label(label)


@pytest.mark.parametrize("part", [part for part in cap.hardware_ids() if "thread" not in part])
def test_every_part_is_meant_by_its_own_id(part):
    assert part in parts_of_label(part)


@pytest.mark.parametrize(
    ("label", "model"),
    [
        ("unsloth/Llama-3.2-3B-Instruct-GGUF", "llama-3.2-3b"),
        ("Llama3.1-8B", "llama-3.1-8b"),
        ("mistralai/Mistral-7B-Instruct-v0.3", "mistral-7b-v0.3"),
        ("TheBloke/Llama-2-13B-chat-AWQ", "llama-2-13b"),
        ("Qwen/Qwen3-30B-A3B-Thinking-2507-FP8", "qwen3-30b-a3b"),
        ("mistralai/Mistral-Large-Instruct-2407", "mistral-large-2407"),
        ("deepseek-ai/DeepSeek-V3-0324", "deepseek-v3"),
        ("moonshotai/Kimi-K2-Instruct-0905", "kimi-k2"),
        ("Qwen2.5 Coder 32B", "qwen2.5-32b"),
        ("lmsys/vicuna-13b-v1.5", "llama-2-13b"),
        ("microsoft/Phi-4-mini-instruct", "phi-4-mini"),
    ],
)
def test_a_label_means_a_shipped_model_in_any_spelling(label, model):
    assert model_of_label(label) == model


@pytest.mark.parametrize(
    "label",
    ["mistralai/Mistral-7B-Instruct-v0.2", "Llama-3.1-8B-speculator", "deepseek-ai/DeepSeek-V3.3", "Qwen3-32B-pruned"],
)
def test_a_label_of_another_model_means_none(label):
    with pytest.raises(LeftOut, match="model not shipped"):
        model_of_label(label)


@pytest.mark.parametrize("model", cap.model_ids())
def test_every_model_is_meant_by_its_own_id(model):
    if not isinstance(cap.load_model(model), type(cap.load_model("llama-2-7b"))):
        pytest.skip("a world model")
    assert model_of_label(model) == model


# Bits a weight as llama.cpp and ExLlama print them: no format that stands for a label is wider.
@pytest.mark.parametrize(
    ("label", "bits"),
    [
        ("GGUF Q4_K_S", 4.58),
        ("gguf-q4_k_m", 4.83),
        ("gguf-ud-q4_k_xl", 4.6),
        ("gguf-iq3_s", 3.44),
        ("gguf-iq4_xs", 4.25),
        ("gguf-q3_k_m", 3.89),
        ("gguf-q5_k_m", 5.67),
        ("exl3-4.0bpw-mul1", 4.0),
        ("exl3-6.0bpw", 6.0),
        ("EXL2 3.0", 3.0),
        ("W4A16 g128 (AWQ)", 4.16),
        ("GPTQ g128", 4.13),
        ("4-bit", 4.0),
        ("fp8-dynamic", 8.01),
        ("nvfp4", 4.51),
    ],
)
def test_a_format_that_stands_for_a_label_has_at_most_its_bits(label, bits):
    assert number_format(formats_of_label(label)["weights"]).effective_bits <= bits


@pytest.mark.parametrize("label", ["EXL2 2.4", "gguf-iq2_xs", "W4A16 (assumed)", "q4_k_m-reap25", "", "fp12"])
def test_a_format_narrower_than_any_that_is_known_is_left_out(label):
    with pytest.raises(LeftOut, match="not expressed"):
        formats_of_label(label)


def test_a_cache_that_is_not_stated_may_be_the_narrowest():
    assert [cache_format_of_label(label) for label in ("", "FP16", "K q4_0 V q8_0")] == ["fp8_e4m3", "fp16", "q4_0"]
    with pytest.raises(LeftOut, match="cache"):
        cache_format_of_label("turbo")


@pytest.mark.parametrize(
    ("engine", "eager"), [("HF transformers 4.57", True), ("PyTorch eager", True), ("vLLM", False)]
)
def test_engines_that_launch_from_python_are_named_with_a_source(engine, eager):
    assert runs_eagerly(engine) is eager
    assert all(row["cite"] for row in package_data.toml("data/published/engines_eager.toml")["engine"])


def test_every_rule_names_what_exists():
    reading = rules()
    assert set(reading["models"]["same_network"].values()) <= set(cap.model_ids())
    for rule in reading["formats"]:
        for key in {"weights", "head", "attention"} & set(rule):
            assert number_format(rule[key]).name == rule[key]
    for name in ("formats", "kv_cache", "units", "apart", "served", "with_prefill"):
        assert all(re.compile(rule["pattern"]) for rule in reading[name])
