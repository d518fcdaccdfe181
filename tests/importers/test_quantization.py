"""What a configuration says of storage becomes a checkpoint, or is refused by name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from capacity.errors import SpecError
from capacity.importers.quantization import checkpoint_of

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


# The shapes of these tables are those of published files: DeepSeek-V3 (fp8), Qwen AWQ and GPTQ releases,
# and the llm-compressor presets W4A16, W8A8 and FP8_DYNAMIC.
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
    found = checkpoint({"quant_method": "mxfp4", "modules_to_not_convert": kept})

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


def test_parts_that_a_file_leaves_alone_stay_plain():
    table = compressed(num_bits=8, type="float", strategy="channel")
    found = checkpoint(table | {"ignore": ["lm_head", "re:.*self_attn.*"]})

    assert found.format_of("attention") == "bf16"
    assert found.format_of("mlp") == "fp8_row"


def test_shipped_quantized_models_say_so_in_their_own_configuration():
    folder = Path(__file__).parents[2] / "capacity" / "data" / "models"
    for name in ("gpt-oss-20b", "deepseek-v3", "kimi-k2"):
        data = json.loads((folder / f"{name}.json").read_text())
        found, _ = checkpoint_of(data["config"], name)

        assert dict(found.parts) == data["checkpoint"]["parts"]
