"""Words that people type for number formats, and parts stored otherwise than the rest."""

from __future__ import annotations

import pytest

import capacity as cap
from capacity.cli import run
from capacity.units import GIB

QUESTION = ["size", "llama-3-8b", "nvidia-h100-sxm5-80gb", "--batch", "1", "--context", "2048"]


# "fp8" of vLLM (--quantization fp8, --kv-cache-dtype fp8) is e4m3 on CUDA devices.
def test_fp8_is_read_as_e4m3_and_said_to_be(capsys):
    assert run([*QUESTION, "--weights", "fp8", "--kv-cache", "fp8"]) == 0
    printed = capsys.readouterr().out

    assert "weights fp8 is read as fp8_e4m3" in printed
    assert "kv_cache fp8 is read as fp8_e4m3" in printed
    assert cap.Deployment(weights="FP8").weights == "fp8_e4m3"
    assert cap.Deployment(weights="fp8_e4m3").read_as == ()


def test_a_word_for_the_format_of_one_part_is_said_too():
    deploy = cap.Deployment(weights="bf16", overrides=[{"part": "lm_head", "format": "fp8"}])

    assert deploy.read_as == ("lm_head fp8 is read as fp8_e4m3",)
    assert deploy.overrides[0].format == "fp8_e4m3"


def test_what_was_read_survives_a_change_of_the_deployment():
    changed = cap.Deployment(weights="fp8").replace(tensor_parallel=2)

    assert changed.read_as == ("weights fp8 is read as fp8_e4m3",)


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("int4", ["int4_g128 (AWQ, GPTQ)", "int4_g64_affine (MLX)", "q4_k (GGUF)"]),
        ("awq", ["int4_g128 (most files)", "group_size"]),
        ("Q4_K_M", ["a mixture", "q4_k with --override lm_head:q6_k"]),
        ("w8a8", ["int8 or fp8_e4m3", "--activations"]),
    ],
)
def test_a_word_that_could_mean_several_formats_is_answered_with_them(capsys, word, meant):
    assert run([*QUESTION, "--weights", word]) == 2
    printed = capsys.readouterr().err

    assert all(part in printed for part in meant)


# A file of llama.cpp with q4_k weights and a q6_k head (the mixtures of its quantize tool), a q8_0 cache of 32,768
# tokens, passes of 512 tokens and all of the memory: 5.33 GiB of an RTX 4080 stay free. The table, 151,936 x 5,120 at
# 4.5 bits, and the head at 6.5625 bits are 1.00 GiB.
def test_parts_stored_otherwise_and_smaller_passes_are_options(capsys):
    options = ["--weights", "q4_k", "--override", "lm_head:q6_k", "--kv-cache", "q8_0", "--prefill-chunk", "512"]
    question = ["size", "qwen3-14b", "nvidia-rtx-4080-16gb", "--batch", "1", "--context", "32768"]
    assert run([*question, *options, "--memory-fraction", "1"]) == 0
    printed = capsys.readouterr().out

    assert printed.startswith("fits, 5.33 GiB to spare")
    assert round(151_936 * 5_120 * (4.5 + 6.5625) / 8 / GIB, 2) == 1.00


def test_layers_of_one_part_can_be_stored_otherwise(capsys):
    assert run([*QUESTION, "--weights", "int8", "--override", "mlp[0:16]:fp16", "--json"]) == 0
    assert '"layers": "0:16"' in capsys.readouterr().out
    assert run([*QUESTION, "--override", "mlp=int8"]) == 2
    assert "--override must look like lm_head:q6_k" in capsys.readouterr().err


# The table of qwen3-0.6b, 151,936 x 1,024, is its head: at 4 bits with a 16-bit scale and a 4-bit zero per 64 values
# (4.3125 bits) a step reads what is stored. All linear layers are 440,401,920 parameters; at 546 GB/s that is 0.61 ms.
def test_a_tied_head_is_read_in_the_format_its_table_is_stored_in(capsys):
    options = ["--weights", "int4_g64", "--override", "embedding:int4_g64"]
    assert run(["size", "qwen3-0.6b", "apple-m4-max-128gb", *options, "--batch", "1", "--context", "1", "--json"]) == 0
    import json

    found = json.loads(capsys.readouterr().out)
    stored_bytes = (151_936 * 1_024 + 440_401_920) * 4.3125 / 8

    assert found["weight_bytes"] == pytest.approx(stored_bytes, rel=2e-3)
    assert found["tpot"]["roofline"] == pytest.approx(stored_bytes / 546e9, rel=0.02)
    assert round(found["tpot"]["roofline"] * 1e3, 2) == pytest.approx(0.61, abs=0.03)
