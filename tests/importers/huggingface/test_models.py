"""What a configuration may say, what is assumed where it says nothing, and what is refused."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from capacity.catalog.models import load_model
from capacity.demand.parameters import parameter_count
from capacity.errors import SpecError
from capacity.importers.huggingface.facts import facts_of
from capacity.importers.huggingface.model import import_model
from capacity.specs.model import Attention, Experts, LatentAttention

CONFIGS = sorted((Path(__file__).parents[2] / "data" / "model_configs").glob("*.json"))
LLAMA = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 32000, "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
}  # fmt: skip
# The basic shapes of other types are those of llama; only what matters to a test is written out.
GPT_OSS = LLAMA | {"model_type": "gpt_oss", "num_local_experts": 4, "num_experts_per_tok": 2, "head_dim": 64}
LATENT = LLAMA | {
    "model_type": "deepseek_v3", "q_lora_rank": 64, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 8, "num_experts_per_tok": 2,
    "moe_intermediate_size": 64, "n_shared_experts": 1, "first_k_dense_replace": 3, "num_nextn_predict_layers": 1,
}  # fmt: skip


def spans(config):
    """The span of each layer, in order."""
    decoder = import_model(config).decoder
    found = {index: group.mixer.span for group in decoder.layers for index in group.indices}
    return [found[index] for index in range(decoder.layer_count)]


def test_a_dictionary_a_file_and_its_folder_give_one_model(tmp_path):
    file = tmp_path / "config.json"
    file.write_text(json.dumps(LLAMA))

    from_file, from_folder = import_model(file), import_model(str(tmp_path))

    assert from_file == from_folder
    assert from_file.stages == import_model(LLAMA).stages
    assert from_file.name == tmp_path.name


def test_a_byte_order_mark_is_harmless(tmp_path):
    file = tmp_path / "config.json"
    file.write_bytes(b"\xef\xbb\xbf" + json.dumps(LLAMA).encode())

    assert import_model(file).decoder.layer_count == 32


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "the file is empty"),
        (b"  \n", "the file is empty"),
        (b'{"model_type": "llama", "hidden', "not valid JSON .*cut off"),
        (b"[1, 2]", "expected a JSON object, got a list"),
        (b"3", "got a number"),
        (b'"llama"', "got a string"),
        (b"[" * 10_000 + b"]" * 10_000, "nested too deeply"),
        (b'{"a":' * 10_000 + b"1" + b"}" * 10_000, "nested too deeply"),
        (
            b'{"model_type": "llama", "vocab_size": 9, "hidden_size": NaN}',
            "hidden_size must be a whole number, got nan",
        ),
        (b'{"model_type": "llama", "hidden_size": -Infinity}', "hidden_size must be a whole number, got -inf"),
        (b'{"hidden_size": 1' + b"0" * 5000 + b"}", "thousands of digits"),
        (b'{"rope_theta": 1e999}', "1e999 is too large a number"),
        (b'{"rope_scaling": {"factor": -1e400}}', "-1e400 is too large a number"),
        (b'{"hidden_size": 4096, "hidden_size": 8192}', "key 'hidden_size' is given more than once"),
        (b'{"rope_scaling": {"factor": 1, "factor": 2}}', "key 'factor' is given more than once"),
        (b"\xff\xfe\x00", "not UTF-8"),
        (b"{}", "model_type is missing"),
        (b'{"model_type": ["llama"]}', "model_type must be a string"),
        (b'{"model_type": null}', "model_type must be a string"),
    ],
)
def test_a_file_that_is_no_configuration_is_one_sentence(tmp_path, content, sentence):
    file = tmp_path / "config.json"
    file.write_bytes(content)

    with pytest.raises(SpecError, match=sentence) as error:
        import_model(file)
    assert str(file) in str(error.value)
    assert "\n" not in str(error.value)


def test_missing_and_too_large_files_are_refused(tmp_path):
    with pytest.raises(SpecError, match="no such file"):
        import_model(tmp_path / "nothing.json")
    with pytest.raises(SpecError, match=r"the folder has no config\.json"):
        import_model(tmp_path)
    large = tmp_path / "config.json"
    large.write_bytes(b" " * 10_000_001)
    with pytest.raises(SpecError, match="too large"):
        import_model(large)


def test_what_is_no_regular_file_is_refused_and_not_waited_for(tmp_path):
    pipe = tmp_path / "config.json"
    os.mkfifo(pipe)

    for path in (pipe, "/dev/zero"):
        with pytest.raises(SpecError, match="not a regular file"):
            import_model(path)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"num_hidden_layers": 10**400}, "num_hidden_layers must be between 1 and 2000"),
        ({"num_hidden_layers": 10_001}, "num_hidden_layers must be between 1 and 2000"),
        ({"num_hidden_layers": 0}, "num_hidden_layers must be between"),
        ({"num_hidden_layers": -1}, "num_hidden_layers must be between"),
        ({"num_hidden_layers": True}, "num_hidden_layers must be a whole number, got True"),
        ({"num_hidden_layers": 32.0}, "num_hidden_layers must be a whole number"),
        ({"num_hidden_layers": "32"}, "num_hidden_layers must be a whole number"),
        ({"num_hidden_layers": [32]}, "num_hidden_layers must be a whole number"),
        ({"num_attention_heads": 0}, "num_attention_heads must be between"),
        ({"num_attention_heads": 3}, "num_attention_heads = 3 does not divide the hidden size"),
        ({"num_key_value_heads": 5}, "32 query heads do not divide into 5 KV heads"),
        ({"hidden_size": 2**40}, "hidden_size must be between"),
        ({"attention_bias": "yes"}, "attention_bias must be true or false"),
        ({"tie_word_embeddings": 1}, "tie_word_embeddings must be true or false"),
        ({"layer_types": "full_attention"}, "layer_types must be a list, got a string"),
        ({"layer_types": ["full_attention"] * 31}, "layer_types has 31 entries for 32 layers"),
        ({"layer_types": ["linear_attention"] * 32}, "layer_types holds 'linear_attention'; supported: full_attention"),
        ({"layer_types": [None] * 32}, "layer_types holds None"),
        ({"layer_types": ["sliding_attention"] * 32}, "is needed for sliding_attention layers"),
    ],
)
def test_a_value_that_cannot_be_names_its_key(change, sentence):
    with pytest.raises(SpecError, match=sentence):
        import_model(LLAMA | change)


@pytest.mark.parametrize(
    "key",
    ["attention_sink_size", "num_memory_experts", "kv_compression", "mtp_layers", "lora_rank", "vision_config",
     "cross_attention_layers", "hidden_size_per_layer", "extra_experts", "conv_width", "ssm_state_size",
     "num_key_value_groups", "multi_query_group_num", "num_query_groups", "d_model"],
)  # fmt: skip
def test_an_unknown_key_that_may_change_memory_is_refused_by_name(key):
    with pytest.raises(SpecError, match=f"{key} = 7 may change memory and is not supported for type llama"):
        import_model(LLAMA | {key: 7})


def test_an_unknown_key_of_no_weight_and_a_null_are_noted():
    model = import_model(LLAMA | {"favourite_colour": "red", "num_memory_experts": None})

    assert "ignored keys: favourite_colour, num_memory_experts" in model.notes


def test_an_unknown_type_is_refused_with_the_nearest_names():
    with pytest.raises(SpecError, match=r"unknown model_type 'lama'; nearest: .*llama"):
        import_model(LLAMA | {"model_type": "lama"})


def test_two_names_of_one_fact_must_agree():
    assert import_model(GPT_OSS | {"experts_per_token": 2}).decoder
    with pytest.raises(
        SpecError, match="num_experts_per_tok = 2 and experts_per_token = 3 name the same fact and disagree"
    ):
        import_model(GPT_OSS | {"experts_per_token": 3})


def test_a_default_of_the_class_is_taken_with_a_note_where_files_leave_it_out():
    gemma = LLAMA | {"model_type": "gemma3_text", "head_dim": 128, "sliding_window": 512}
    del gemma["vocab_size"]
    model = import_model(gemma)

    # transformers 5.24.0, Gemma3TextConfig: 262208; the text_config of google/gemma-3-4b-it says no vocab_size
    assert model.vocabulary == 262_208
    assert "vocab_size is absent: assumed 262208, the default of type gemma3_text" in model.notes
    assert model.assumed == ("vocab_size",)


@pytest.mark.parametrize(
    "key", ["num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "vocab_size"]
)
def test_a_shape_that_every_file_of_the_type_says_is_not_taken_from_its_class(key):
    with pytest.raises(SpecError, match=f"{key} is missing; .*cannot replace a shape"):
        import_model({name: value for name, value in LLAMA.items() if name != key})
    with pytest.raises(SpecError, match="hidden_size is missing"):
        import_model({"model_type": "llama", "d_model": 8192, "vocab_size": 32000})


@pytest.mark.parametrize("key", ["n_routed_experts", "num_experts_per_tok", "moe_intermediate_size"])
def test_the_experts_of_a_file_are_not_taken_from_its_class(key):
    with pytest.raises(SpecError, match=f"{key} is missing; .*cannot replace a shape"):
        import_model({name: value for name, value in LATENT.items() if name != key})


def test_absent_positions_are_said_to_be_those_of_the_type():
    model = import_model({key: value for key, value in LLAMA.items() if key != "max_position_embeddings"})

    assert model.positions == 2048
    assert "max_position_embeddings is absent: assumed 2048, the default of type llama" in model.notes


@pytest.mark.parametrize(("kind", "tied"), [("llama", False), ("gemma", True), ("gemma2", True), ("qwen2", False)])
def test_whether_a_silent_file_ties_its_head_is_up_to_the_class(kind, tied):
    silent = {key: value for key, value in LLAMA.items() if key != "tie_word_embeddings"}
    head = import_model(
        silent | {"model_type": kind, "head_dim": 128} if kind != "qwen2" else silent | {"model_type": kind}
    )

    assert next(tensor for tensor in head.decoder.after if tensor.name == "lm_head").tied is tied


def test_a_head_size_of_its_own_is_not_the_hidden_size_over_heads():
    mixer = import_model(LLAMA | {"head_dim": 96}).decoder.layers[0].mixer

    assert isinstance(mixer, Attention)
    assert mixer.head_size == 96


def test_mistral_slides_in_every_layer_unless_its_window_is_null():
    assert set(spans(LLAMA | {"model_type": "mistral", "sliding_window": 4096})) == {"sliding"}
    assert set(spans(LLAMA | {"model_type": "mistral", "sliding_window": None})) == {"full"}


def test_qwen_slides_only_where_it_says_so():
    # Qwen2.5 files carry sliding_window 131072 with use_sliding_window false.
    qwen = LLAMA | {"model_type": "qwen2", "sliding_window": 131072, "max_window_layers": 28}

    assert set(spans(qwen | {"use_sliding_window": False})) == {"full"}
    assert spans(qwen | {"use_sliding_window": True}) == ["full"] * 28 + ["sliding"] * 4


@pytest.mark.parametrize(
    ("kind", "first", "period"), [("gemma2", "sliding", 2), ("gemma3_text", "sliding", 6), ("olmo3", "sliding", 4)]
)
def test_the_last_layer_of_each_period_sees_everything(kind, first, period):
    found = spans(LLAMA | {"model_type": kind, "sliding_window": 512, "head_dim": 128})

    assert found[0] == first
    assert [index for index, span in enumerate(found) if span == "full"] == list(range(period - 1, 32, period))


def test_a_list_of_layer_types_decides():
    types = ["full_attention", "sliding_attention"] * 16

    assert spans(GPT_OSS | {"sliding_window": 128, "layer_types": types}) == ["full", "sliding"] * 16


def test_llama_4_sees_chunks_where_it_has_rotary_positions():
    llama4 = LLAMA | {"model_type": "llama4_text", "num_local_experts": 4, "num_experts_per_tok": 1}
    llama4 |= {"intermediate_size_mlp": 64, "head_dim": 128, "attention_chunk_size": 8192}

    assert spans(llama4)[:4] == ["chunked", "chunked", "chunked", "full"]
    assert spans(llama4 | {"no_rope_layers": [0] * 31 + [1]}) == ["full"] * 31 + ["chunked"]
    with pytest.raises(SpecError, match="no_rope_layers has 2 entries for 32 layers"):
        import_model(llama4 | {"no_rope_layers": [0, 1]})


# SmolLM3Config, as a public GitHub file quotes it (text-index id 51907060414): it slides where nothing is rotary.
def test_smollm3_slides_where_it_has_no_rotary_positions():
    smollm = LLAMA | {"model_type": "smollm3", "sliding_window": 512, "use_sliding_window": True}

    assert spans(smollm)[:4] == ["full", "full", "full", "sliding"]
    assert spans(smollm | {"no_rope_layers": [1] * 31 + [0]}) == ["full"] * 31 + ["sliding"]
    assert set(spans(smollm | {"use_sliding_window": False})) == {"full"}


def test_a_pattern_of_letters_is_read_where_no_list_of_layer_types_is():
    exaone = LLAMA | {"model_type": "exaone4", "sliding_window": 512, "sliding_window_pattern": "LLLG"}

    assert spans(exaone) == ["sliding", "sliding", "sliding", "full"] * 8
    assert set(spans(exaone | {"layer_types": ["full_attention"] * 32})) == {"full"}
    for pattern in ("LLLS", "LLG", ""):
        with pytest.raises(SpecError, match=r"sliding_window_pattern = .* must be of L and G"):
            spans(exaone | {"sliding_window_pattern": pattern})


# The keys and shapes of published files: HuggingFaceTB/SmolLM3-3B (text-index ids 71621538784 and 59164739030; 3.08B
# parameters on its page), LGAI-EXAONE/EXAONE-4.0-32B (id 57006440881 for the keys; its card: 64 layers, 40 and 8 heads,
# vocabulary 102,400, 30.95B parameters without embeddings), microsoft/Phi-4-mini-instruct (id 61558565367; 3.8B).
SMOLLM3_3B = {
    "architectures": ["SmolLM3ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0, "hidden_act": "silu",
    "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 11008, "max_position_embeddings": 65536,
    "max_window_layers": 28, "mlp_bias": False, "model_type": "smollm3", "no_rope_layer_interval": 4,
    "no_rope_layers": [1, 1, 1, 0] * 9, "num_attention_heads": 16, "num_hidden_layers": 36, "num_key_value_heads": 4,
    "pretraining_tp": 2, "rms_norm_eps": 1e-06, "rope_scaling": None, "rope_theta": 5000000.0, "sliding_window": None,
    "tie_word_embeddings": True, "torch_dtype": "bfloat16", "use_cache": True, "use_sliding_window": False,
    "vocab_size": 128256,
}  # fmt: skip
EXAONE_4_32B = {
    "architectures": ["Exaone4ForCausalLM"], "model_type": "exaone4", "head_dim": 128, "hidden_act": "silu",
    "hidden_size": 5120, "intermediate_size": 27392, "max_position_embeddings": 131072, "num_attention_heads": 40,
    "num_hidden_layers": 64, "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_theta": 1000000,
    "layer_types": ["sliding_attention", "sliding_attention", "sliding_attention", "full_attention"] * 16,
    "sliding_window": 4096, "sliding_window_pattern": "LLLG", "tie_word_embeddings": False, "torch_dtype": "bfloat16",
    "use_cache": True, "vocab_size": 102400,
}  # fmt: skip
PHI_4_MINI = {
    "_name_or_path": "Phi-4-mini-instruct", "architectures": ["Phi3ForCausalLM"], "attention_bias": False,
    "attention_dropout": 0.0, "bos_token_id": 199999, "embd_pdrop": 0.0, "eos_token_id": 199999, "full_attn_mod": 1,
    "hidden_act": "silu", "hidden_size": 3072, "initializer_range": 0.02, "intermediate_size": 8192,
    "interpolate_factor": 1, "lm_head_bias": False, "max_position_embeddings": 131072, "mlp_bias": False,
    "model_type": "phi3", "num_attention_heads": 24, "num_hidden_layers": 32, "num_key_value_heads": 8,
    "original_max_position_embeddings": 4096, "pad_token_id": 199999, "partial_rotary_factor": 0.75, "resid_pdrop": 0.0,
    "rms_norm_eps": 1e-05, "rope_scaling": {"long_factor": [1], "short_factor": [1], "type": "longrope"},
    "rope_theta": 10000.0, "sliding_window": 262144, "tie_word_embeddings": True, "torch_dtype": "bfloat16",
    "use_cache": True, "vocab_size": 200064,
}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "outside_embeddings", "billions"),
    [(SMOLLM3_3B, False, 3.08), (EXAONE_4_32B, True, 30.95), (PHI_4_MINI, False, 3.84)],
    ids=["smollm3-3b", "exaone-4.0-32b", "phi-4-mini"],
)
def test_published_files_are_read_to_the_parameters_on_their_cards(config, outside_embeddings, billions):
    count = parameter_count(import_model(config))
    embeddings = count.embedding + count.lm_head if outside_embeddings else 0

    assert round((count.total - embeddings) / 1e9, 2) == billions


def test_phi_of_another_attention_pattern_is_refused():
    with pytest.raises(SpecError, match="full_attn_mod is supported for type phi3 only as 1, got 2"):
        import_model(PHI_4_MINI | {"full_attn_mod": 2})


def test_latent_attention_has_one_latent_a_token_and_dense_first_layers():
    first, second = import_model(LATENT).decoder.layers

    assert isinstance(first.mixer, LatentAttention)
    assert first.mixer.latent_size == 512 + 64
    assert first.indices == (0, 1, 2)
    assert isinstance(second.feed_forward, Experts)
    assert second.feed_forward.shared_intermediate_size == 64


def test_multi_token_prediction_is_noted_and_not_counted():
    with_layer = import_model(LATENT)
    without = import_model(LATENT | {"num_nextn_predict_layers": 0})

    assert parameter_count(with_layer).total == parameter_count(without).total
    assert any(note.startswith("num_nextn_predict_layers = 1: ") for note in with_layer.notes)


def test_more_experts_a_token_than_experts_are_refused():
    with pytest.raises(SpecError, match="9 experts per token, but only 8 experts"):
        import_model(LATENT | {"num_experts_per_tok": 9})


# Published by baichuan-inc in the table of the Baichuan-13B README: 7,000,559,616 and 13,264,901,120.
@pytest.mark.parametrize(
    ("hidden", "layers", "width", "parameters"),
    [(4096, 32, 11008, 7_000_559_616), (5120, 40, 13696, 13_264_901_120)],
)
def test_baichuan_has_the_published_parameters(hidden, layers, width, parameters):
    config = {
        "model_type": "baichuan", "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": layers,
        "intermediate_size": width, "vocab_size": 64000, "model_max_length": 4096, "tie_word_embeddings": False,
    }  # fmt: skip
    assert parameter_count(import_model(config)).total == parameters


# github mapengAdam/qianwen-72B: config.json and the total_size of the index, 144,575,840,256 bytes of bf16.
def test_the_first_qwen_counts_gate_and_up_together():
    config = {
        "model_type": "qwen", "hidden_size": 8192, "intermediate_size": 49152, "kv_channels": 128, "no_bias": True,
        "num_hidden_layers": 80, "num_attention_heads": 64, "vocab_size": 152064, "seq_length": 32768,
        "tie_word_embeddings": False,
    }  # fmt: skip
    assert parameter_count(import_model(config)).total == 72_287_920_128


# models/internlm/internlm2-7b as the oracle maps it to the llama class.
def test_internlm2_has_the_parameters_of_its_llama_twin():
    shapes = {"hidden_size": 4096, "intermediate_size": 14336, "num_key_value_heads": 8, "vocab_size": 92544}

    assert parameter_count(import_model(LLAMA | shapes | {"model_type": "internlm2"})).total == 7_737_708_544


@pytest.mark.parametrize(
    ("name", "positions"),
    [("falcon-7b", 2048), ("bloom", 2048), ("deepseek-v2", 163_840), ("deepseek-v2-lite", 163_840), ("yi-34b", 4096)],
)
def test_no_shipped_model_is_without_positions(name, positions):
    assert load_model(name).positions == positions


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_positions_that_a_file_leaves_out_are_those_of_its_type(path):
    table = json.loads(path.read_text())
    table = table.get("text_config", table)
    try:
        default = facts_of(table["model_type"]).defaults.get("max_position_embeddings")
    except (SpecError, KeyError):
        return  # a type that is not supported is refused, and has no default
    table.pop("max_position_embeddings", None)
    table.pop("model_max_length", None)
    try:
        model = import_model(table)
    except SpecError:
        return  # a learned table of positions, or a shape that other keys do not give
    assert default is None or model.positions == default


def test_the_length_that_engines_serve_is_taken_with_a_note():
    model = import_model(LLAMA | {"model_type": "cohere", "max_position_embeddings": 4096, "model_max_length": 65_536})

    assert model.positions == 65_536
    assert "max_position_embeddings is 4,096 and model_max_length 65,536: the latter is taken" in model.notes


# tiiuae/falcon-40b and falcon-180B, config.json; both leave tie_word_embeddings out, and num_ln_in_parallel_attn.
FALCON_40B = {
    "model_type": "falcon", "hidden_size": 8192, "num_attention_heads": 128, "num_hidden_layers": 60, "num_kv_heads": 8,
    "multi_query": True, "new_decoder_architecture": True, "parallel_attn": True, "alibi": False, "bias": False,
    "vocab_size": 65024, "torch_dtype": "bfloat16",
}  # fmt: skip
FALCON_180B = FALCON_40B | {"hidden_size": 14848, "num_attention_heads": 232, "num_hidden_layers": 80}


# total_size of the index file of falcon-180B over two bytes is 179,522,565,120, with a head of its own.
def test_the_large_falcons_are_read():
    untied = import_model(FALCON_180B | {"tie_word_embeddings": False})

    assert parameter_count(untied).total == 179_522_565_120
    assert parameter_count(import_model(FALCON_180B)).total == 179_522_565_120 - 65_024 * 14_848
    assert parameter_count(import_model(FALCON_40B)).total == 65_024 * 8192 + 2 * 8192 + 60 * (
        8192 * (128 + 2 * 8) * 64 + 8192 * 8192 + 8 * 8192 * 8192 + 4 * 8192
    )


def test_the_first_files_of_falcon_give_the_same_models():
    old = {"model_type": "RefinedWeb", "n_head": 128, "n_head_kv": 8, "n_layer": 60}
    renamed = {key: value for key, value in FALCON_40B.items() if not key.startswith(("num_", "new_", "multi_"))} | old
    falcon_7b = load_model("falcon-7b")
    small = {"model_type": "RefinedWebModel", "hidden_size": 4544, "n_head": 71, "n_layer": 32, "vocab_size": 65024,
             "multi_query": True, "parallel_attn": True, "bias": False, "alibi": False}  # fmt: skip

    assert import_model(renamed).stages == import_model(FALCON_40B).stages
    assert import_model(small).stages == falcon_7b.stages


# QWenConfig of the first files (Alibaba Cloud, 2023-08): n_embd, n_head, n_layer, n_positions, ffn_hidden_size.
def test_the_first_names_of_qwen_are_read():
    old = {"model_type": "qwen", "n_embd": 2048, "n_layer": 24, "n_head": 16, "ffn_hidden_size": 11008,
           "n_positions": 8192, "kv_channels": 128, "vocab_size": 151936, "no_bias": True,
           "tie_word_embeddings": False}  # fmt: skip
    new = {"model_type": "qwen", "hidden_size": 2048, "num_hidden_layers": 24, "num_attention_heads": 16,
           "intermediate_size": 11008, "max_position_embeddings": 8192, "kv_channels": 128, "vocab_size": 151936,
           "no_bias": True, "tie_word_embeddings": False}  # fmt: skip

    assert import_model(old).stages == import_model(new).stages
    assert import_model(old).positions == 8192
    # Qwen-1.8B: 1.84 billion, the model card of Qwen/Qwen-1_8B
    assert round(parameter_count(import_model(old)).total / 1e9, 2) == 1.84


def test_a_missing_key_names_the_keys_that_hold_a_likely_value():
    with pytest.raises(
        SpecError, match=r"hidden_size is missing.*; the file has d_model = 4096, which type olmo does not"
    ):
        import_model({"model_type": "olmo", "d_model": 4096, "n_heads": 32, "n_layers": 32, "vocab_size": 50304})


# CohereLabs/c4ai-command-r7b-12-2024 config.json has layer_switch 4; the class reads it as sliding_window_pattern.
def test_a_layer_switch_is_the_period_of_the_windows():
    config = next(json.loads(path.read_text()) for path in CONFIGS if "command-r7b-12" in path.name)
    config = {
        key: value for key, value in config.items() if key not in ("_oracle", "layer_types", "sliding_window_pattern")
    }

    assert config["layer_switch"] == 4
    assert spans(config) == ["sliding", "sliding", "sliding", "full"] * 8
    with pytest.raises(SpecError, match=r"layer_switch = 8.* disagree"):
        import_model(config | {"layer_switch": 8, "sliding_window_pattern": 4})
    with pytest.raises(SpecError, match="use_parallel_block is supported for type cohere2 only as true"):
        import_model(config | {"use_parallel_block": False})


def test_a_constant_is_refused_only_where_it_matters(tmp_path):
    file = tmp_path / "config.json"
    table = LLAMA | {"temperature": float("inf"), "rope_scaling": {"factor": float("nan")}, "top_p": 0.9}
    file.write_text(json.dumps(table))

    for model in (import_model(file), import_model(table), load_model(tmp_path)):
        assert parameter_count(model).total == parameter_count(import_model(LLAMA)).total
        assert any(note == "ignored keys: rope_scaling (not a finite number), temperature (not a finite number)"
                   for note in model.notes)  # fmt: skip
    with pytest.raises(SpecError, match="num_hidden_layers must be a whole number, got inf"):
        import_model(LLAMA | {"num_hidden_layers": float("inf")})
    with pytest.raises(SpecError, match="mtp_layers = nan may change memory"):
        import_model(LLAMA | {"mtp_layers": float("nan")})


# mistralai/Mistral-Small-3.2: model_type mistral3 around a text part of a supported type.
def test_a_wrapper_says_that_its_text_part_alone_is_understood():
    text = LLAMA | {"model_type": "ministral3", "head_dim": 128}
    wrapper = {"model_type": "mistral3", "text_config": text, "vision_config": {"model_type": "pixtral"}}

    with pytest.raises(SpecError, match="only its text part is understood: give its text_config, of type ministral3"):
        import_model(wrapper)
    assert import_model(text).decoder.layer_count == 32
