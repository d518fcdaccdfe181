"""What a configuration says of storage becomes a checkpoint, or is refused by name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import capacity as cap
from capacity.errors import SpecError
from capacity.importers.checkpoints.quantization import checkpoint_of
from capacity.importers.huggingface.model import import_model

LINEAR = ("attention", "mlp", "experts")
KEPT = ("embedding", "lm_head", "router", "norm", "vision")


def checkpoint(quantization, dtype="bfloat16"):
    return checkpoint_of({"torch_dtype": dtype, "quantization_config": quantization}, "config.json")[0]


def compressed(**weights):
    return {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": {"weights": weights}},
        "ignore": ["lm_head"],
    }


# The parameters of these tables are those of published files: DeepSeek-V3 (fp8), Qwen AWQ and GPTQ releases,
# and the llm-compressor presets W4A16, W8A8 and FP8_DYNAMIC. The exclusion lists: test_unquantized.py.
@pytest.mark.parametrize(
    ("table", "name"),
    [
        ({"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}, "fp8_block128"),
        ({"quant_method": "fp8", "activation_scheme": "static"}, "fp8_e4m3"),
        ({"quant_method": "fp8", "fmt": "e5m2"}, "fp8_e5m2"),
        ({"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0}, "fp8_row"),
        ({"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}, "int4_g128"),
        ({"quant_method": "awq", "w_bit": 4, "q_group_size": 64}, "int4_g64"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True, "desc_act": False}, "int4_g128"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": True}, "int4_g32"),
        ({"quant_method": "gptq", "bits": 8, "group_size": 128}, "int8_g128"),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, "int8"),
        ({"quant_method": "gptq", "bits": 4, "group_size": -1}, "int4_row"),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "int8"),
        ({"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}, "nf4"),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "fp8_e4m3"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4"),
        (compressed(num_bits=8, type="float", strategy="channel"), "fp8_row"),
        (compressed(num_bits=8, type="float", strategy="tensor"), "fp8_e4m3"),
        (compressed(num_bits=8, type="float", strategy="block", block_structure=[128, 128]), "fp8_block128"),
        (compressed(num_bits=8, type="int", strategy="channel", symmetric=True), "int8"),
        (compressed(num_bits=4, type="int", strategy="group", group_size=128, symmetric=True), "int4_g128_symmetric"),
        (compressed(num_bits=4, type="int", strategy="group", group_size=128, symmetric=False), "int4_g128"),
        (compressed(num_bits=4, type="float", strategy="tensor_group", group_size=16), "nvfp4"),
    ],
)
def test_a_method_is_the_format_of_the_linear_parts_and_the_rest_stays_plain(table, name):
    found = checkpoint(table)

    assert {found.format_of(part) for part in LINEAR} == {name}
    assert {found.format_of(part) for part in KEPT} == {"bf16"}


# openai/gpt-oss config.json, quantization_config
def test_mxfp4_is_for_experts_alone():
    kept = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]
    file = Path(__file__).parents[2] / "data" / "model_configs" / "openai__gpt-oss-20b.json"
    config = {key: value for key, value in json.loads(file.read_text()).items() if not key.startswith("_")}
    config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": kept}
    found = import_model(config).checkpoint

    assert found.format_of("experts") == "mxfp4"
    assert {found.format_of(part) for part in ("attention", "router", "embedding", "lm_head")} == {"bf16"}
    with pytest.raises(SpecError, match="mxfp4 is supported for experts only"):
        checkpoint({"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]})


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"quant_method": "gptqq", "bits": 4}, "unknown quant_method 'gptqq'; nearest: gptq"),
        ({"quant_method": "quip"}, "unknown quant_method 'quip'"),
        ({}, "unknown quant_method 'None'"),
        ({"quant_method": 4}, "unknown quant_method '4'"),
        ({"quant_method": "fp8", "weight_block_size": [64, 64]}, r"weight_block_size \[64, 64\] is not supported"),
        ({"quant_method": "gptq", "bits": 3, "group_size": 128}, "3 bits with group_size 128 is not a known"),
        ({"quant_method": "awq", "bits": "four", "group_size": 128}, "'four' bits with group_size 128"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "fp4"}, "with nf4, got 'fp4'"),
        ({"quant_method": "compressed-tensors"}, "config_groups must be an object"),
        ({"quant_method": "compressed-tensors", "config_groups": {"a": 3}}, "weights must be an object"),
        (compressed(num_bits=6, type="float", strategy="tensor"), "6 bits, type 'float'"),
        (compressed(num_bits=4, type="int", strategy="group", group_size=48, symmetric=False), "int4_g48"),
        ("fp8", "quantization_config must be an object, got a string"),
    ],
)
def test_an_unknown_method_or_shape_is_refused(table, sentence):
    with pytest.raises(SpecError, match=sentence):
        checkpoint(table)


PACK = compressed(num_bits=4, type="int", strategy="group", group_size=128, symmetric=True)
NF4 = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
INT8 = compressed(num_bits=8, type="int", strategy="channel", symmetric=True)


# Keys and values of the formats' own configurations: CompressionFormat, SparsityCompressionConfig and QuantizationArgs
# of compressed-tensors 0.12.2, BitsAndBytesConfig of transformers 4.57.1, and fmt of DeepSeek-V3.
@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        (
            PACK | {"sparsity_config": {"format": "sparse-24-bitmask"}},
            "format 'sparse-24-bitmask' is not supp.*: dense",
        ),
        (PACK | {"sparsity_config": {"format": "sparse-bitmask"}}, "sparsity_config: format 'sparse-bitmask'"),
        (PACK | {"sparsity_config": 24}, "sparsity_config must be an object, got a number"),
        (PACK | {"format": "marlin-24"}, "format 'marlin-24' is not supported; supported: pack-quantized, nvfp4-pack"),
        (PACK | {"format": "int-quantized"}, "weights of 4 bits: format 'int-quantized' is not supported"),
        (INT8 | {"format": "dense"}, "weights of 8 bits: format 'dense' is not supported"),
        (
            NF4 | {"bnb_4bit_use_double_quant": True},
            "bnb_4bit_use_double_quant true is not supported; supported: false",
        ),
        (NF4 | {"bnb_4bit_use_double_quant": "true"}, "bnb_4bit_use_double_quant must be true or false, got 'true'"),
        (NF4 | {"load_in_4bit": "true"}, "load_in_4bit must be true or false, got 'true'"),
        ({"load_in_8bit": "false"}, "load_in_8bit must be true or false, got 'false'"),
        (NF4 | {"load_in_8bit": True}, "load_in_4bit and load_in_8bit are both true; allowed is one"),
        ({"load_in_8bit": True, "llm_int8_has_fp16_weight": True}, "llm_int8_has_fp16_weight true is not supported"),
        ({"quant_method": "fp8", "fmt": "e3m4"}, "fmt 'e3m4' is not supported; supported: e4m3"),
        ({"quant_method": "fp8", "fmt": ["e4m3"]}, r"fmt \['e4m3'\] is not supported"),
        ({"quant_method": "fp8", "fmt": "e5m2", "weight_block_size": [128, 128]}, "'e5m2' with weight_block_size"),
        (
            compressed(num_bits=8, type="float", strategy="block", block_structure=[64, 128]),
            r"block_structure \[64, 128\] is not supported; supported: \[128, 128\]",
        ),
        (compressed(num_bits=8, type="float", strategy="block"), "block_structure None is not supported"),
        (
            compressed(num_bits=4, type="float", strategy="tensor_group", group_size=32),
            "tensor_group with group_size 32 is not supported; supported: 16",
        ),
        ({"quant_algo": "NVFP4", "group_size": 32}, "NVFP4 with group_size 32 is not supported; supported: 16"),
        (compressed(num_bits=[8], type="float", strategy="tensor"), r"weights of \[8\] bits, type 'float'"),
        (compressed(num_bits=8, type="float", strategy=["tensor"]), "strategy .'tensor'. are not supported"),
        ({"quant_method": "modelopt", "quant_algo": ["FP8"]}, "unknown quant_algo"),
        (
            compressed(num_bits=4, type="int", strategy="group", group_size=128, symmetric="false"),
            "symmetric must be true or false, got 'false'",
        ),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128, "lm_head": True}, "a model whose head is not known"),
    ],
)
def test_a_key_that_changes_what_is_stored_is_not_read_past(table, sentence):
    with pytest.raises(SpecError, match=sentence):
        checkpoint(table)


def test_values_that_store_every_number_change_nothing():
    said = {"sparsity_config": {"format": "dense", "sparsity_structure": "unstructured"}, "format": "pack-quantized"}

    assert checkpoint(PACK | said) == checkpoint(PACK)
    assert checkpoint(INT8 | {"format": "int-quantized"}) == checkpoint(INT8)
    assert checkpoint(NF4 | {"bnb_4bit_use_double_quant": False, "load_in_8bit": False}) == checkpoint(NF4)
    assert checkpoint({"quant_method": "fp8", "fmt": "float8_e4m3fn"}) == checkpoint({"quant_method": "fp8"})


def test_the_two_names_of_one_table_must_agree():
    both = {"torch_dtype": "bfloat16", "quantization_config": PACK, "compression_config": PACK}

    assert checkpoint_of(both, "config.json")[0] == checkpoint(PACK)
    with pytest.raises(SpecError, match="quantization_config and compression_config name the same fact and disagree"):
        checkpoint_of(both | {"compression_config": INT8}, "config.json")
    for key in ("quantization_config", "compression_config"):
        with pytest.raises(SpecError, match="sparse-24-bitmask"):
            checkpoint_of({key: {"sparsity_config": {"format": "sparse-24-bitmask"}, **PACK}}, "config.json")
    with pytest.raises(SpecError, match="sparse-bitmask"):
        checkpoint_of({"torch_dtype": "bfloat16", "sparsity_config": {"format": "sparse-bitmask"}}, "config.json")


def test_a_bare_data_type_is_an_assumed_checkpoint_with_a_note():
    found, notes = checkpoint_of({"torch_dtype": "float16"}, "config.json")

    assert (found.default, found.evidence) == ("fp16", "assumed")
    assert "fp16" in notes[0]


def test_nothing_said_of_storage_is_no_checkpoint():
    assert checkpoint_of({}, "config.json") == (None, ())
    assert checkpoint_of({"torch_dtype": "auto"}, "config.json") == (None, ())


@pytest.mark.parametrize("dtype", ["float12", 16, ["bfloat16"]])
def test_an_unknown_data_type_is_refused(dtype):
    with pytest.raises(SpecError, match=r"torch_dtype .* is unknown"):
        checkpoint_of({"torch_dtype": dtype}, "config.json")


@pytest.mark.parametrize("method", ["awq", "gptq"])
def test_a_group_size_that_is_not_said_is_not_guessed(method):
    # AwqConfig and GPTQConfig of transformers mean 128 by it, other writers one scale a row.
    with pytest.raises(SpecError, match="quantization_config: group_size is missing"):
        checkpoint({"quant_method": method, "bits": 4})


# total_size of openai/gpt-oss-20b's model.safetensors.index.json (public GitHub file, text-index id 31112482743);
# the model card of gpt-oss (arXiv 2508.10925, table 1) prints 12.8 and 60.8 GiB.
def test_gpt_oss_has_the_bytes_of_its_published_files():
    small = cap.weight_bytes(cap.load_model("gpt-oss-20b"), cap.Deployment())
    large = cap.weight_bytes(cap.load_model("gpt-oss-120b"), cap.Deployment())

    assert small == 13_761_264_768
    assert (round(small / 2**30, 1), round(large / 2**30, 1)) == (12.8, 60.8)


# vLLM 0.11 on eight devices prints 79.739 GiB of weights on each, the rotary table and absorbed matrices with them
# (public GitHub file, text-index id 54698501030).
def test_deepseek_v3_in_fp8_has_the_bytes_that_vllm_logs():
    held = cap.weight_bytes(cap.load_model("deepseek-v3"), cap.Deployment(tensor_parallel=8)) / 2**30

    assert 0.99 * 79.739 < held <= 79.739


@pytest.mark.parametrize(
    "name", ["gpt-oss-20b", "gpt-oss-120b", "deepseek-v3", "deepseek-r1", "kimi-k2", "minimax-m2.5"]
)
def test_a_shipped_model_and_its_own_configuration_say_the_same_of_storage(name):
    data = json.loads((Path(cap.__file__).parent / "data" / "models" / f"{name}.json").read_text())

    assert cap.load_model(name).checkpoint.parts == import_model(data["config"]).checkpoint.parts
