"""Storage that is not read: each method by its name, with formats near in size, and a way that leads out."""

from __future__ import annotations

import pytest

import capacity as cap
from capacity.cli import run

LLAMA = {
    "model_type": "llama", "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 22,
    "num_attention_heads": 32, "num_key_value_heads": 4, "vocab_size": 32000, "max_position_embeddings": 4096,
    "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}  # fmt: skip
LINEAR = 22 * (2048 * (2048 + 2 * 256 + 2048) + 3 * 2048 * 5632)  # query, keys and values, output; gate, up, down
TABLES = 2 * 32000 * 2048 + 45 * 2048  # table, head and norms


@pytest.mark.parametrize(
    ("stored", "sentence"),
    [
        ({"quant_method": "torchao", "quant_type": "int4_weight_only"}, "quant_method 'torchao' is not read here"),
        ({"quant_method": "hqq", "quant_config": {}}, "near in size: int4_g64_affine at 4 bits"),
        ({"quant_method": "eetq"}, "near in size: int8, a scale for each row"),
        ({"quant_method": "quanto", "weights": "int8"}, "near in size: int8, fp8_e4m3 or int4_g128"),
        ({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "uint4"}}}, "dtype 'uint4'"),
        (
            {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4",
             "bnb_4bit_use_double_quant": True},
            "near in size: nf4, 4.5 bits a value",
        ),
    ],
)  # fmt: skip
def test_a_method_that_is_not_read_is_named_with_what_is_near(stored, sentence):
    with pytest.raises(cap.CapacityError) as refused:
        cap.load_model(LLAMA | {"quantization_config": stored})

    assert sentence in str(refused.value)
    assert "leave quantization_config out and give --weights" in str(refused.value)


@pytest.mark.parametrize("key", ["quantize", "quantization"])
def test_storage_that_other_keys_name_is_refused_with_the_way_out(key):
    mixed = {"group_size": 64, "bits": 4, "model.layers.0.self_attn.q_proj": {"group_size": 64, "bits": 8}}
    value = {"quantize": "w8a8_dynamic", "quantization": mixed}[key]

    with pytest.raises(cap.CapacityError, match=f"leave {key} out and give --weights"):
        cap.load_model(LLAMA | {key: value})


# What the refusals name: without the object, --weights int8 counts each linear weight as a byte with a scale of 4 bytes
# for each output row; eetq keeps its scales in 16 bits.
def test_the_way_out_is_taken_on_the_command_line(tmp_path, capsys):
    import json

    file = tmp_path / "config.json"
    file.write_text(json.dumps(LLAMA))
    question = ["size", str(file), "nvidia-l40s-pcie-48gb", "--weights", "int8", "--kv-cache", "fp8", "--json"]

    assert run([*question, "--activations", "int8", "--override", "lm_head:int8"]) == 0
    found = json.loads(capsys.readouterr().out)
    rows = 22 * (2048 + 2 * 256 + 2048 + 2 * 5632 + 2048) + 32000
    assert found["weight_bytes"] == LINEAR + 32000 * 2048 + 4 * rows + 2 * (TABLES - 32000 * 2048)


# Both files of the review: AutoRound packs as GPTQ does, 4 bits with a 16-bit scale and a 4-bit zero for 128 values;
# MLX has a scale and a bias of 16 bits for 32 values, in the table and the head too.
@pytest.mark.parametrize(
    ("stored", "linear_bits", "table_bits"),
    [
        (
            {"quantization_config": {"quant_method": "auto-round", "bits": 4, "group_size": 128, "sym": True,
                                     "packing_format": "auto_round:auto_gptq"}},
            4 + 20 / 128, 16,
        ),
        ({"quantization": {"group_size": 32, "bits": 8}}, 8 + 32 / 32, 8 + 32 / 32),
    ],
)  # fmt: skip
def test_files_that_were_refused_in_a_circle_are_read(stored, linear_bits, table_bits):
    model = cap.load_model(LLAMA | stored)
    norm_bits = 16 * 45 * 2048

    bits = LINEAR * linear_bits + 2 * 32000 * 2048 * table_bits + norm_bits
    assert cap.weight_bytes(model, cap.Deployment()) == bits / 8


@pytest.mark.parametrize(
    "stored",
    [
        {"quantization": {"group_size": 32, "bits": 8}},
        {"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128}},
        {"quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic"}},
    ],
)
def test_lines_of_a_dense_model_do_not_speak_of_experts(stored):
    model = cap.load_model(LLAMA | stored)
    printed = str(cap.size(model, cap.load_hardware("nvidia-l40s-pcie-48gb")))

    assert "expert" not in printed
    assert "experts" not in model.checkpoint.parts


def test_no_key_inside_passes_unseen():
    weights = {"num_bits": 8, "type": "float", "strategy": "channel", "zeta": 1}
    inputs = {"num_bits": 8, "type": "float", "strategy": "token", "dynamic": True, "eta": "x"}
    group = {"targets": ["Linear"], "weights": weights, "input_activations": inputs, "theta": True}
    stored = {
        "quant_method": "compressed-tensors", "format": "float-quantized", "ignore": ["lm_head"], "iota": 1,
        "config_groups": {"group_0": group}, "kv_cache_scheme": {"num_bits": 8, "type": "float", "kappa": 1},
    }  # fmt: skip
    note = next(
        note for note in cap.load_model(LLAMA | {"quantization_config": stored}).notes if "ignored keys" in note
    )

    place = "config_groups.group_0"
    assert note.startswith("ignored keys of quantization_config: iota, ")
    unseen = {f"{place}.theta", f"{place}.weights.zeta", f"{place}.input_activations.eta", "kv_cache_scheme.kappa"}
    assert unseen <= set(note.partition(": ")[2].split(", "))


# Values of JSON that Python writes and JSON has not (json.dumps of an infinite float).
def test_a_constant_that_is_no_number_is_listed_as_ignored(tmp_path):
    file = tmp_path / "config.json"
    import json

    file.write_text(json.dumps(LLAMA | {"temperature": float("inf")}))

    assert any("temperature (not a finite number)" in note for note in cap.load_model(file).notes)
