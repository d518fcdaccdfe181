"""Methods that describe storage in words of their own, MLX, AutoRound and Quark: read, or refused with the way out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import capacity as cap
from capacity.errors import SpecError
from capacity.importers.huggingface.model import import_model

CONFIGS = Path(__file__).parents[2] / "data" / "model_configs"
ADVICE = "out and give --weights, with --activations, --kv-cache and --override where they differ"


def config(name):
    data = json.loads((CONFIGS / f"{name}.json").read_text())
    return {key: value for key, value in data.items() if not key.startswith(("_", "quantization"))}


LLAMA_8B = config("meta-llama__Meta-Llama-3.1-8B")
LLAMA_3B = config("meta-llama__Llama-3.2-3B")
LLAMA_70B = config("meta-llama__Llama-3.3-70B-Instruct")
QWEN_30B = config("Qwen__Qwen3-30B-A3B")
FOUR_BITS = {"group_size": 64, "bits": 4}


def stored(model, table, key="quantization_config"):
    return import_model(model | {"torch_dtype": "bfloat16", key: table})


# Storage sizes of the pinned model cards of exo (github exo-explore/exo, its test of NCCL model cards, public
# text-index id 67131247648): mlx-community's Llama-3.2-3B, Llama-3.1-8B and Llama-3.3-70B Instruct-4bit.
@pytest.mark.parametrize(
    ("model", "published"), [(LLAMA_3B, 1_807_423_488), (LLAMA_8B, 4_517_404_672), (LLAMA_70B, 39_688_355_840)]
)
def test_mlx_checkpoints_have_the_bytes_of_their_files(model, published):
    assert cap.weight_bytes(stored(model, FOUR_BITS, "quantization"), cap.Deployment()) == published


# The same list: Qwen3-Coder-30B-A3B-Instruct-4bit, whose shapes are those of Qwen3-30B-A3B. mlx-lm keeps the routers of
# this type at 8 bits (mlx_lm/models/qwen3_moe.py, quant_predicate) and writes each under its name.
def test_an_mlx_checkpoint_with_routers_of_eight_bits_has_the_bytes_of_its_files():
    routers = {f"model.layers.{layer}.mlp.gate": {"group_size": 64, "bits": 8} for layer in range(48)}
    model = stored(QWEN_30B, FOUR_BITS | routers, "quantization")

    assert cap.weight_bytes(model, cap.Deployment()) == 17_180_913_664
    assert model.checkpoint.format_of("router") == "int8_g64_affine"


def test_mlx_may_write_its_table_twice_and_modules_may_differ():
    twice = stored(LLAMA_8B | {"quantization": FOUR_BITS}, FOUR_BITS)
    mode = stored(LLAMA_8B, {"group_size": 32, "bits": 4, "mode": "mxfp4"}, "quantization")
    wide = {
        f"model.layers.{layer}.mlp.{name}_proj": {"bits": 6} for layer in (0, 1, 31) for name in ("gate", "up", "down")
    }
    mixed = stored(LLAMA_8B, FOUR_BITS | wide | {"lm_head": False}, "quantization").checkpoint

    assert twice.checkpoint == stored(LLAMA_8B, FOUR_BITS, "quantization").checkpoint
    assert mode.checkpoint.format_of("embedding") == mode.checkpoint.format_of("mlp", 3) == "mxfp4"
    assert [mixed.format_of("mlp", layer) for layer in (0, 2, 31)] == [
        "int6_g64_affine",
        "int4_g64_affine",
        "int6_g64_affine",
    ]
    assert mixed.format_of("lm_head") == "bf16"


# 4.5 and 6.5 bits a value: two 16-bit numbers for 64 values.
def test_affine_groups_cost_half_a_bit_a_value():
    values = 4096 * 4096
    for bits in (4, 6):
        model = stored(LLAMA_8B, {"group_size": 64, "bits": bits}, "quantization")
        queries = cap.weight_bytes(model, cap.Deployment()) - cap.weight_bytes(
            stored(LLAMA_8B | {"head_dim": 64}, {"group_size": 64, "bits": bits}, "quantization"), cap.Deployment()
        )
        # half of the heads' width: query and output lose half of 4096 x 4096 each, key and value half of 1024 x 4096
        assert queries == 32 * (2 * values + 2 * values // 4) // 2 * (bits + 0.5) / 8


ROUND = {"quant_method": "auto-round", "bits": 4, "group_size": 128, "sym": True}


# vLLM 0.11 auto_round.py: these packings are those of GPTQ and AWQ.
@pytest.mark.parametrize("packing", ["auto_round:auto_gptq", "auto_round:auto_awq"])
def test_auto_round_packs_as_gptq(packing):
    gptq = stored(LLAMA_8B, {"quant_method": "gptq", "bits": 4, "group_size": 128}).checkpoint
    found = stored(LLAMA_8B, ROUND | {"packing_format": packing, "autoround_version": "0.5.1", "iters": 200}).checkpoint

    assert found == gptq
    assert stored(LLAMA_8B, ROUND | {"extra_config": {"lm_head": {"bits": 16}}}).checkpoint == gptq


def quark(weight="fp8_e4m3", scheme="per_tensor", inputs="fp8_e4m3", **more):
    return {
        "quant_method": "quark",
        "global_quant_config": {
            "weight": {"dtype": weight, "qscheme": scheme, "is_dynamic": False},
            "input_tensors": inputs and {"dtype": inputs, "qscheme": "per_tensor", "is_dynamic": False},
            "output_tensors": None,
            "bias": None,
        },
        "exclude": ["lm_head"],
        "export": {"kv_cache_group": [], "pack_method": "reorder", "weight_format": "real_quantized"},
        "layer_quant_config": {},
        "layer_type_quant_config": {},
        "algo_config": None,
        "quant_mode": "eager_mode",
    } | more


# Keys and values as Quark exports them (quark/torch/quantization/config/config.py; amd/Llama-3.1-8B-Instruct-FP8-KV).
def test_quark_states_weights_activations_and_cache():
    outputs = {"output_tensors": {"dtype": "fp8_e4m3", "qscheme": "per_tensor"}}
    cached = {"layer_quant_config": {"*k_proj": outputs, "*v_proj": outputs},
              "export": {"kv_cache_group": ["*k_proj", "*v_proj"], "weight_format": "real_quantized"}}  # fmt: skip

    plain, kept = stored(LLAMA_8B, quark()).checkpoint, stored(LLAMA_8B, quark() | cached).checkpoint

    assert (plain.format_of("mlp"), plain.activations, plain.kv_cache) == ("fp8_e4m3", "fp8_e4m3", None)
    assert kept.kv_cache == "fp8_e4m3"
    assert plain.format_of("lm_head") == "bf16"
    four = quark("fp4", "per_group", inputs=None)
    four["global_quant_config"]["weight"]["group_size"] = 32
    assert stored(LLAMA_8B, four).checkpoint.format_of("mlp") == "mxfp4"
    assert stored(LLAMA_8B, four).checkpoint.activations is None


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {"quantization_config": {"quant_method": "torchao", "quant_type": "int4_weight_only"}},
            "quant_method 'torchao'",
        ),
        ({"quantization_config": {"quant_method": "hqq"}}, "quant_method 'hqq' is not read here"),
        ({"quantization": {"group_size": 64, "bits": 7}}, "7 bits with group_size 64 and mode affine"),
        ({"quantization": {"group_size": 64, "bits": 4, "mode": "nvfp4"}}, "4 bits with group_size 64 and mode nvfp4"),
        ({"quantization": FOUR_BITS | {"zeros": 3}}, "zeros must be an object, true or false"),
        ({"quantization": FOUR_BITS | {"model.layers.0.foo": {"bits": 8}}}, "names 'model.layers.0.foo'; supported"),
        ({"quantization": FOUR_BITS | {"lm_head": {"bits": 8, "rank": 3}}}, "lm_head: rank is not understood"),
        ({"quantization": FOUR_BITS | {"model.layers.0.self_attn.v_proj": {"bits": 6}}}, "stored in different formats"),
        ({"quantization": FOUR_BITS, "quantization_config": ROUND}, "name the same fact and disagree"),
        ({"quantization": "int4"}, "quantization must be an object, got a string"),
        ({"quantize": "w8a8_dynamic"}, "quantize = 'w8a8_dynamic' may change memory"),
        ({"quantization_config": ROUND | {"packing_format": "auto_round:fp8"}}, "packing_format 'auto_round:fp8'"),
        ({"quantization_config": ROUND | {"act_bits": 8}}, "act_bits 8 is not supported"),
        ({"quantization_config": ROUND | {"extra_config": {"lm_head": {"bits": 8}}}}, "lm_head has 8 bits"),
        ({"quantization_config": ROUND | {"data_type": "mx_fp"}}, "data_type 'mx_fp' is not supported"),
        ({"quantization_config": quark("int4", "per_group")}, "dtype 'int4', qscheme 'per_group' is not supported"),
        ({"quantization_config": quark(layer_quant_config={"*.mlp.*": {}})}, "a configuration of their own"),
        ({"quantization_config": quark(kv_bits=8)}, "kv_bits = 8 is not understood"),
    ],
)
def test_what_is_not_read_is_refused_with_the_way_out(change, sentence):
    with pytest.raises(SpecError, match=sentence) as error:
        import_model(LLAMA_8B | change)
    key = "quantize" if "quantize" in change else next(iter(change))
    assert f"leave {key} {ADVICE}" in str(error.value) or "disagree" in str(error.value)


# The way out is one: the same file without the key is read, and the deployment says the rest.
def test_the_way_out_leads_somewhere():
    plain = import_model(LLAMA_8B)

    assert cap.weight_bytes(plain, cap.Deployment(weights="int4_g128", kv_cache="fp8_e4m3")) < 6e9
