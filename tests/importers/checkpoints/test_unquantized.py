"""Lists of modules that a quantised checkpoint leaves alone: read by layer and part, or refused with the entry."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

import capacity as cap
from capacity.errors import SpecError
from capacity.importers.huggingface.model import import_model

CONFIGS = Path(__file__).parents[2] / "data" / "model_configs"
FP8_ROW = {"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128}
WEIGHTS = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": True}
PACKED = {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": WEIGHTS}}}


def config(name):
    data = json.loads((CONFIGS / f"{name}.json").read_text())
    return {key: value for key, value in data.items() if not key.startswith("_") and key != "quantization_config"}


LLAMA_405B = config("meta-llama__Meta-Llama-3.1-405B")
DEEPSEEK = config("deepseek-ai__DeepSeek-V3")
KIMI = config("moonshotai__Kimi-K2-Instruct")
MIXTRAL = config("mistralai__Mixtral-8x7B-v0.1")


def stored(model, table):
    return import_model(model | {"quantization_config": table}).checkpoint


def weight_bytes(model, table):
    return cap.weight_bytes(import_model(model | {"quantization_config": table}), cap.Deployment())


# The Llama 3 paper, arXiv 2407.21783, section 6.2: feed-forward layers in FP8 with a scale a row, self-attention and
# the first and last layer left unquantised. 405,853,388,800 parameters (tests/data/model_oracle.csv).
def test_metas_fp8_release_keeps_attention_and_two_layers_in_bf16():
    alone = [f"model.layers.{i}.self_attn.{name}_proj" for i in range(126) for name in "qkvo"]
    alone += [f"model.layers.{i}.mlp.{name}_proj" for i in (0, 125) for name in ("down", "gate", "up")]
    narrow, rows = 124 * 3 * 16_384 * 53_248, 124 * (2 * 53_248 + 16_384)

    found = weight_bytes(LLAMA_405B, FP8_ROW | {"modules_to_not_convert": alone})

    assert found == 2 * (405_853_388_800 - narrow) + narrow + 4 * rows


# github ai-dynamo/aiconfigurator src/aiconfigurator/model_configs/nvidia--DeepSeek-V3-0324-NVFP4_hf_quant_config.json
# at 6d449daaff3cde16ce997454494020b79988ac32; the shapes of one layer's attention are those of the DeepSeek-V3 report.
def test_nvidias_fp4_release_of_deepseek_v3_keeps_attention_in_bf16():
    alone = [f"model.layers.{i}.{name}" for i in range(61) for name in ("self_attn*", "input_layernorm")]
    alone += [f"model.layers.{i}.mlp.gate" for i in range(3, 61)]
    alone += ["lm_head", "model.embed_tokens", "model.norm", "model.layers.61*"]
    table = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4", "exclude_modules": alone}}
    one_layer = 7168 * 1536 + 1536 * 128 * 192 + 7168 * 576 + 512 * 128 * 256 + 128 * 128 * 7168

    more = weight_bytes(DEEPSEEK, table) - weight_bytes(DEEPSEEK, {"quant_algo": "NVFP4"})

    assert more == 61 * one_layer * (16 - 4.5) / 8
    assert stored(DEEPSEEK, table).format_of("experts") == "nvfp4"


def test_what_modelopt_writes_next_to_a_configuration_is_read(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_405B))
    modelopt = {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}}
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(modelopt))

    assert import_model(tmp_path).checkpoint.format_of("mlp") == "fp8_e4m3"


# quantization_config.ignore in github ai-dynamo/aiconfigurator model_configs/nvidia--Kimi-K2.5-NVFP4_config.json
# at 202f06a3006ee74d8d7054c11f1d81495eddb611, which Kimi-K2-Thinking has as well.
KIMI_IGNORE = ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*", r"re:.*mlp\.(gate|up|gate_up|down)_proj.*"]


def test_shared_experts_in_another_format_than_the_routed_ones_are_refused_by_name():
    with pytest.raises(
        SpecError, match=r"shared_experts\.gate_proj and .*mlp\.experts\.0\.gate_proj are stored in different formats"
    ):
        stored(KIMI, PACKED | {"ignore": KIMI_IGNORE})


def test_an_expression_leaves_alone_what_it_finds():
    found = stored(KIMI, PACKED | {"ignore": [entry for entry in KIMI_IGNORE if "shared" not in entry]})

    assert dict(found.parts) == {"experts": "int4_g32_symmetric"}
    assert stored(KIMI, PACKED | {"ignore": ["lm_head", "re:.*mlp.*"]}).parts.keys() == {"attention"}


# github MiniMaxAI MiniMax-M2 config.json, as a public GitHub file quotes it (text-index id 61561352996)
def test_a_list_of_what_no_method_quantises_changes_nothing():
    table = {"quant_method": "fp8", "fmt": "float8_e4m3fn", "weight_block_size": [128, 128]}
    alone = ["gate", "e_score_correction_bias", "lm_head"]

    assert stored(MIXTRAL, table | {"modules_to_not_convert": alone}) == stored(MIXTRAL, table)


@pytest.mark.parametrize("entry", ["self_attn", "model.layers.*.self_attn", "model.layers.*.self_attn*", "*self_attn*"])
@pytest.mark.parametrize(
    ("table", "key"),
    [
        (FP8_ROW, "modules_to_not_convert"),
        (AWQ, "modules_to_not_convert"),
        (GPTQ, "modules_to_not_convert"),
        ({"quant_method": "fp8"}, "ignored_layers"),
        ({"load_in_8bit": True}, "llm_int8_skip_modules"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "ignore"),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "exclude_modules"),
        (PACKED, "ignore"),
    ],
)
def test_every_method_heeds_its_list(table, key, entry):
    found = stored(LLAMA_405B, table | {key: [entry]})

    assert found.format_of("attention", 3) == "bf16"
    assert found.format_of("mlp", 3) != "bf16"


def test_single_layers_are_left_unquantised_in_runs():
    found = stored(LLAMA_405B, AWQ | {"modules_to_not_convert": ["model.layers.7", "model.layers.8.mlp"]})

    assert [found.format_of("mlp", layer) for layer in (6, 7, 8, 9)] == ["int4_g128", "bf16", "bf16", "int4_g128"]
    assert [found.format_of("attention", layer) for layer in (6, 7, 8)] == ["int4_g128", "bf16", "int4_g128"]
    assert len(found.overrides) == 2


# TheBloke's GPTQ releases of Mixtral list what is quantised inside a layer; GPTQModel lists what is not.
def test_lists_of_gptq_say_what_is_quantised_or_what_is_not():
    inside = [["self_attn.k_proj", "self_attn.v_proj", "self_attn.q_proj"], ["self_attn.o_proj"]]

    assert stored(MIXTRAL, GPTQ | {"modules_in_block_to_quantize": inside}).parts.keys() == {"attention", "mlp"}
    assert "attention" not in stored(MIXTRAL, GPTQ | {"dynamic": {"-:.*attn.*": {}}}).parts


def test_targets_of_compressed_tensors_say_what_is_quantised():
    group = {"weights": WEIGHTS, "targets": [r"re:.*experts\..*"]}
    found = stored(MIXTRAL, PACKED | {"config_groups": {"group_0": group}})
    group["targets"].append("Linear")
    every = stored(MIXTRAL, PACKED | {"config_groups": {"group_0": group}, "ignore": ["re:.*gate$"]})

    assert found.parts.keys() == {"mlp", "experts"}
    assert every.parts.keys() == {"attention", "mlp", "experts", "lm_head"}


# The tensors of a head of 128,256 x 16,384: those of GPTQ are qweight and qzeros, eight values in each 32 bits, and
# scales of 16 bits for each 128 inputs; those of compressed-tensors weight_packed and weight_scale, for each 32 here.
def test_a_head_that_is_quantised_has_the_bytes_of_its_tensors():
    plain = 2 * 128_256 * 16_384
    grouped = 4 * (16_384 // 8) * 128_256 + 2 * 128 * 128_256 + 4 * 128 * (128_256 // 8)
    packed = 4 * 128_256 * (16_384 // 8) + 2 * 128_256 * (16_384 // 32)
    group = {"weights": WEIGHTS, "targets": ["Linear"]}
    linear = PACKED | {"config_groups": {"group_0": group}}

    kept = weight_bytes(LLAMA_405B, GPTQ | {"lm_head": False})
    assert kept - weight_bytes(LLAMA_405B, GPTQ | {"lm_head": True}) == plain - grouped
    assert weight_bytes(LLAMA_405B, GPTQ | {"lm_head": True, "dynamic": {"-:lm_head": {}}}) == kept
    for alone in ("lm_head", "re:.*lm_head", "language_model.lm_head"):
        kept = weight_bytes(LLAMA_405B, linear | {"ignore": [alone]})
        assert kept - weight_bytes(LLAMA_405B, linear | {"ignore": []}) == plain - packed


def test_a_head_that_is_tied_and_quantised_is_refused():
    tied = LLAMA_405B | {"tie_word_embeddings": True}

    for table in (GPTQ | {"lm_head": True}, PACKED):
        with pytest.raises(SpecError, match="lm_head is quantised, which is not supported for a head that is tied"):
            stored(tied, table)
    assert "lm_head" not in stored(tied, PACKED | {"ignore": ["lm_head"]}).parts
    with pytest.raises(SpecError, match="lm_head must be true or false, got 'yes'"):
        stored(LLAMA_405B, GPTQ | {"lm_head": "yes"})


# MixtralSparseMoeBlock.gate is nn.Linear in transformers 4.57.1, and MixtralTopKRouter without one in 5.0.0; the router
# of DeepSeek-V3 is a parameter in both.
def test_a_router_that_may_be_a_linear_layer_must_be_listed_by_name():
    for ignore in (["lm_head"], ["lm_head", "model.layers.0.block_sparse_moe.gate"]):
        with pytest.raises(
            SpecError, match=r"block_sparse_moe\.gate is not listed in `ignore`, and library versions disagree"
        ):
            stored(MIXTRAL, PACKED | {"ignore": ignore})

    found = stored(MIXTRAL, PACKED | {"ignore": ["lm_head", r"re:.*block_sparse_moe\.gate$"]})
    assert found.parts.keys() == stored(DEEPSEEK, PACKED | {"ignore": ["lm_head"]}).parts.keys()
    assert found.format_of("router") == found.format_of("lm_head") == "bf16"


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        (
            {"modules_to_not_convert": ["transformer.blocks"]},
            "modules_to_not_convert names 'transformer.blocks', which is",
        ),
        ({"modules_to_not_convert": [""]}, "names '', which is not a known module"),
        (
            {"modules_to_not_convert": ["model.layers.0.mlp.down_proj"]},
            "down_proj and .*gate_proj are stored in different formats",
        ),
        ({"modules_to_not_convert": "self_attn"}, "must be a list of module names"),
        ({"modules_to_not_convert": [3]}, "must be a list of module names"),
        ({"ignore": ["x"] * 20_001}, "20,001 entries; at most 20,000"),
        ({"ignore": ["re:("]}, r"'\(', which is not an unambiguous regular expression"),
        ({"ignore": ["re:[[a]"]}, r"'\[\[a\]', which is not an unambiguous regular expression"),
        ({"ignore": ["re:(a+)+$"]}, "no group may be repeated"),
        ({"ignore": ["re:" + "a?" * 30 + "b"]}, "4 repeats"),
        ({"ignore": ["re:" + "(a|b)" * 30]}, "4 groups"),
        ({"ignore": ["*" + "a*" * 30]}, "4 repeats"),
        ({"dynamic": {"lm_head": {}}}, "dynamic 'lm_head' is not supported"),
        ({"dynamic": ["-:.*"]}, "dynamic must be an object, got a list"),
        ({"modules_in_block_to_quantize": [["mlp.c_fc"]]}, "modules_in_block_to_quantize names 'mlp.c_fc'; supported"),
    ],
)
def test_a_list_that_is_not_understood_is_refused_with_its_entry(table, sentence):
    with pytest.raises(SpecError, match=sentence):
        stored(LLAMA_405B, AWQ | table)


def test_a_target_that_is_not_understood_is_refused():
    groups = {"a": {"weights": WEIGHTS, "targets": ["LlamaMLP"]}}

    with pytest.raises(SpecError, match=r"config_groups\.a\.targets names 'LlamaMLP'; supported"):
        stored(LLAMA_405B, PACKED | {"config_groups": groups})


def test_a_single_unquantised_expert_is_refused():
    with pytest.raises(SpecError, match=r"experts\.0\.w1 and .*experts\.1\.w1 are stored in different formats"):
        stored(MIXTRAL, AWQ | {"modules_to_not_convert": ["model.layers.0.block_sparse_moe.experts.0"]})
    with pytest.raises(
        SpecError, match=r"names 'model\.layers\.0\.block_sparse_moe\.experts\.5', which is not a known module"
    ):
        stored(MIXTRAL, AWQ | {"modules_to_not_convert": ["model.layers.0.block_sparse_moe.experts.5"]})


@pytest.mark.parametrize("expression", ["re:.*.*.*.*z", "re:(.*|.*)(.*|.*)z", "re:(a|a|a|a|m|m)(o|o|o)(d|d|d)(e|e)z"])
def test_no_expression_takes_long(expression):
    start = time.process_time()
    with pytest.raises(SpecError):
        stored(LLAMA_405B, AWQ | {"modules_to_not_convert": [expression]})

    assert time.process_time() - start < 5


def test_a_long_list_over_many_layers_is_read_at_once():
    deep = LLAMA_405B | {"num_hidden_layers": 2_000}
    alone = [f"model.layers.{i}.self_attn.{name}_proj" for i in range(1_000) for name in "qkvo"]
    start = time.process_time()
    found = stored(deep, AWQ | {"modules_to_not_convert": alone + ["model.norm"] * 16_000})

    assert time.process_time() - start < 10
    assert [found.format_of("attention", layer) for layer in (0, 999, 1_000)] == ["bf16", "bf16", "int4_g128"]


@pytest.mark.parametrize(
    "entries",
    [
        [f"re:model.layers.{i}.self_attn.*" for i in range(9_000)],
        [f"model.layers.{i}.self_attn*" for i in range(9_000)],
        ["re:.*.*.*.*z", "lm_head"],
    ],
)
def test_many_expressions_over_many_modules_are_refused_and_not_waited_for(entries):
    deep = LLAMA_405B | {"num_hidden_layers": 2_000}
    start = time.process_time()
    with pytest.raises(SpecError, match=r"among 14,00\d modules takes too long"):
        stored(deep, AWQ | {"modules_to_not_convert": entries})

    assert time.process_time() - start < 10


def test_a_file_that_modelopt_adds_later_is_seen(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_405B))
    before = cap.load_model(tmp_path).checkpoint.format_of("mlp")
    (tmp_path / "hf_quant_config.json").write_text(json.dumps({"quantization": {"quant_algo": "FP8"}}))

    assert (before, cap.load_model(tmp_path).checkpoint.format_of("mlp")) == ("bf16", "fp8_e4m3")
