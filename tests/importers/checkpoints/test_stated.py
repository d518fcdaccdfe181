"""What a checkpoint states of its cache and activations reaches the answer, and nothing in it passes unseen."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import capacity as cap
from capacity.errors import CapacityError

LLAMA = {
    "model_type": "llama", "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 22,
    "num_attention_heads": 32, "num_key_value_heads": 4, "vocab_size": 32000, "max_position_embeddings": 4096,
    "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip
WEIGHTS = {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True, "dynamic": False}
INPUTS = {"num_bits": 8, "type": "float", "strategy": "token", "dynamic": True, "symmetric": True}
PACKED = {
    "quant_method": "compressed-tensors", "format": "float-quantized", "ignore": ["lm_head"],
    "config_groups": {"group_0": {"targets": ["Linear"], "weights": WEIGHTS, "input_activations": INPUTS}},
}  # fmt: skip
FP8_CACHE = {"num_bits": 8, "type": "float", "strategy": "tensor", "dynamic": False, "symmetric": True}
MODELOPT = {"quant_method": "modelopt", "quant_algo": "FP8"}
FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}


def groups(**changes):
    group = {"targets": ["Linear"], "weights": WEIGHTS, "input_activations": INPUTS} | changes
    return {"config_groups": {"group_0": group}}


def stored(table):
    return cap.load_model(LLAMA | {"quantization_config": table})


# 22 layers, keys and values of 4 heads of 64, one byte each: 11,264 bytes per token, 1,024 tokens.
@pytest.mark.parametrize("scheme", [FP8_CACHE, "FP8", "fp8_e4m3"])
def test_a_stated_cache_is_kept_as_stated(scheme):
    model = stored(PACKED | {"kv_cache_scheme": scheme})
    part = cap.load_hardware("nvidia-l40s-pcie-48gb")
    found = cap.size(model, part)

    assert cap.kv_cache_bytes(model, cap.Deployment(), batch=1, context_tokens=1024) == 11_534_336
    assert cap.max_batch(model, part, cap.Deployment(), context_tokens=4096) == pytest.approx(904, rel=0.01)
    assert "kv_cache = fp8_e4m3, as the checkpoint states" in found.assumed


def test_weights_of_eight_bits_alone_leave_the_cache_at_sixteen():
    model = stored(PACKED | {"kv_cache_scheme": None})

    assert cap.kv_cache_bytes(model, cap.Deployment(), batch=1, context_tokens=1024) == 2 * 11_534_336
    other = cap.Deployment(weights="bf16")
    stated = stored(PACKED | {"kv_cache_scheme": FP8_CACHE})
    assert cap.kv_cache_bytes(stated, other, batch=1, context_tokens=1024) == 2 * 11_534_336


def test_a_cache_of_modelopt_is_read():
    table = {"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "ignore": ["lm_head"]}

    assert (stored(table).checkpoint.kv_cache, stored(table).checkpoint.activations) == ("fp8_e4m3", "fp8_e4m3")


@pytest.mark.parametrize("table", [PACKED, FP8])
def test_stated_activations_bound_a_prefill_at_their_own_peak(table):
    model, part = stored(table), cap.load_hardware("nvidia-h200-sxm5-141gb")
    first = cap.ttft(model, part, cap.Deployment(), batch=1, prompt_tokens=4096)
    wide = cap.ttft(model, part, cap.Deployment(activations="bf16"), batch=1, prompt_tokens=4096)

    assert model.checkpoint.activations == "fp8_e4m3"
    assert first.roofline < 0.7 * wide.roofline
    assert not any("activations not stated" in line for line in cap.size(model, part).assumed)


# Llama-3.1-8B: 32 layers, 8 KV heads of 128, keys and values of a byte: 65,536 B a token, so 4.00 GiB of 65,536.
# A prompt of 4,096 tokens takes at least 62.45 ms at the bf16 peak of an H200 and 33.6 ms at most where linear layers
# compute in fp8.
def test_llama_3_1_8b_as_stored_in_fp8_with_an_fp8_cache():
    text = (Path(__file__).parents[2] / "data" / "model_configs" / "meta-llama__Meta-Llama-3.1-8B.json").read_text()
    config = {key: value for key, value in json.loads(text).items() if not key.startswith(("_", "quantization"))}
    static = INPUTS | {"dynamic": False, "strategy": "tensor"}
    table = PACKED | groups(input_activations=static) | {"kv_cache_scheme": FP8_CACHE}
    model = cap.load_model(config | {"torch_dtype": "bfloat16", "quantization_config": table})
    part, deploy = cap.load_hardware("nvidia-h200-sxm5-141gb"), cap.Deployment()

    assert cap.kv_cache_bytes(model, deploy, batch=1, context_tokens=65_536) == 65_536 * 65_536 == 4 * 2**30
    assert cap.ttft(model, part, deploy, batch=1, prompt_tokens=4096).bound <= 0.0336


def test_weights_alone_state_no_activations():
    weights_only = {"group_0": {"targets": ["Linear"], "weights": WEIGHTS, "input_activations": None}}

    assert stored(PACKED | {"config_groups": weights_only}).checkpoint.activations is None
    assert stored({"quant_method": "awq", "bits": 4, "group_size": 128}).checkpoint.activations is None


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"kv_bits": 8}, "kv_bits = 8 is not understood and may say how something is stored"),
        ({"kv_cache_scheme": "int3"}, "kv_cache_scheme 'int3' is not understood; known: fp8"),
        ({"kv_cache_scheme": 8}, "kv_cache_scheme must be an object or a name"),
        ({"kv_cache_scheme": "fp8", "kv_cache_quant_algo": "INT8"}, "name the same fact and disagree"),
        ({"activation_precision": "int4"}, "activation_precision = 'int4' is not understood"),
        ({"activation_scheme": "dynamic"}, "activation_scheme = 'dynamic' is not understood"),
        ({"kv_cache_scheme": FP8_CACHE | {"rank": 8}}, "kv_cache_scheme: rank = 8 is not understood"),
        (groups(weights=WEIGHTS | {"outlier_bits": 16}), "weights: outlier_bits = 16 is not understood"),
        (groups(input_activations=INPUTS | {"kv_bits": 4}), "input_activations: kv_bits = 4 is not understood"),
        (groups(input_activations=INPUTS | {"num_bits": 6}), "input_activations: 'float' of 6 bits is not supported"),
        (groups(output_activations=INPUTS), "output_activations = .* is not supported"),
        (groups(residual_bits=8), "group_0: residual_bits = 8 is not understood"),
        ({"transform_config": {"config_groups": {"u": 1}}}, "transform_config = .* is not supported"),
        ({"sparsity_config": {"format": "dense", "blocks": 4}}, "sparsity_config: blocks = 4 is not understood"),
    ],
)
def test_nothing_in_it_passes_unseen(changes, sentence):
    with pytest.raises(CapacityError, match=sentence) as error:
        stored(PACKED | changes)
    assert "leave quantization_config out and give --weights" in str(error.value)


# A key that one method reads says nothing in the table of another, and is not passed over there.
@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"quant_method": "awq", "bits": 4, "group_size": 128, "activation_scheme": "static"}, "activation_scheme"),
        ({"quant_method": "awq", "bits": 4, "group_size": 128, "kv_bits": 8}, "kv_bits = 8 is not understood"),
        (FP8 | {"dequantize": True}, "dequantize True is not supported; supported: false"),
        (FP8 | {"bits": 4}, "bits = 4 is not understood"),
        (MODELOPT | {"moe_quant_algo": "NVFP4"}, "moe_quant_algo 'NVFP4' is not"),
        (MODELOPT | {"quantized_layers": {"a": {}}}, "quantized_layers = "),
        (
            MODELOPT | {"config_groups": {"a": {"weights": {"num_bits": 4, "type": "float"}}}},
            "weights of 4 bits, 'float', contradict FP8",
        ),
    ],
)  # fmt: skip
def test_a_key_of_another_method_is_refused(table, sentence):
    with pytest.raises(CapacityError, match=sentence):
        stored(table)


# quantization_config of moonshotai/Kimi-K3 (tests/data/model_configs): mxfp4, no activation scheme, no cache.
def test_a_group_of_mxfp4_weights_is_read():
    weights = {"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32, "scale_dtype": "torch.uint8"}
    layout = {"quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized", "ignore": ["lm_head"]}
    found = stored(layout | groups(weights=weights, input_activations=None)).checkpoint

    assert (found.format_of("mlp"), found.activations, found.kv_cache) == ("mxfp4", None, None)
    with pytest.raises(CapacityError, match="float groups of 16 values are not supported"):
        stored(layout | groups(weights=weights | {"group_size": 16}))


# NVIDIA's files state the cache in hf_quant_config.json, also where config.json has a table of its own.
def test_the_cache_is_read_from_the_file_of_modelopt(tmp_path):
    own = {"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["lm_head"]}
    beside = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}
    (tmp_path / "config.json").write_text(json.dumps(LLAMA | {"quantization_config": own}))
    assert cap.load_model(tmp_path).checkpoint.kv_cache is None

    (tmp_path / "hf_quant_config.json").write_text(json.dumps(beside))
    assert cap.load_model(tmp_path).checkpoint.kv_cache == "fp8_e4m3"

    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    assert cap.load_model(tmp_path).checkpoint.kv_cache == "fp8_e4m3"


def test_a_key_without_a_size_is_noted():
    assert any("ignored keys of quantization_config: colour" in note for note in stored(PACKED | {"colour": 1}).notes)
