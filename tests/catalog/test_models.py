"""Models by name, path and table: everything shipped loads, says where it comes from, and is counted as published."""

from __future__ import annotations

import json
import time

import pytest

from capacity.catalog.models import load_model, model_ids
from capacity.demand.parameters import parameter_count
from capacity.errors import SpecError

# total_size of the index of each checkpoint, as tests/data/model_oracle.csv cites them (column published_source);
# for Llama-2 in fp32 and less the rotary buffers.
PUBLISHED_PARAMETERS = {
    "llama-2-7b": 6_738_415_616,
    "llama-2-13b": 13_015_864_320,
    "llama-2-70b": 68_976_648_192,
    "bloom": 176_247_271_424,
    "gemma-2b": 2_506_172_416,
    "devstral-small-2507": 23_572_403_200,
    "granite-3b-code": 3_482_503_680,
    "mixtral-8x22b": 140_620_634_112,
    "gpt-j-6b": 6_050_882_784,  # counted by transformers 5.24.0 on the meta device
    "qwen3-4b": 4_022_468_096,
    "tinyllama-1.1b": 1_100_048_384,
}
# Rounded as their makers print them.
PUBLISHED_BILLIONS = {
    "deepseek-v3": 671, "gpt-oss-120b": 117, "gpt-oss-20b": 21, "dbrx": 132, "deepseek-v2": 236, "falcon-180b": 180,
    "codellama-34b": 34, "internlm-20b": 20, "granite-4.1-8b": 8, "phi-3.5-mini": 4,
}  # fmt: skip
FIRST = {
    "llama-2-7b", "llama-3-8b", "llama-3.1-8b", "llama-3-70b", "llama-3.3-70b", "mixtral-8x7b", "qwen2.5-7b",
    "qwen2.5-72b", "qwen3-8b", "gemma-3-27b", "gpt-oss-20b", "gpt-oss-120b", "deepseek-v3",
}  # fmt: skip
TINY = {"model_type": "llama", "hidden_size": 4, "num_attention_heads": 2, "num_hidden_layers": 1}
TINY |= {"intermediate_size": 8, "vocab_size": 3, "tie_word_embeddings": True, "max_position_embeddings": 16}


def test_at_least_forty_five_models_are_shipped_and_the_first_among_them():
    assert len(model_ids()) >= 45
    assert set(model_ids()) >= FIRST


@pytest.mark.parametrize("name", model_ids())
def test_a_shipped_model_loads_with_its_checkpoint_and_sources(name):
    model = load_model(name)

    assert model.name == name
    assert model.checkpoint is not None
    assert {"config.*", "checkpoint.*"} <= {field for source in model.sources for field in source.fields}
    assert all(source.confidence for source in model.sources)


@pytest.mark.parametrize("name", model_ids())
def test_a_stored_format_is_called_published_only_where_a_source_states_it_of_this_model(name):
    model = load_model(name)
    source = next(source for source in model.sources if "checkpoint.*" in source.fields)

    assert (model.checkpoint.evidence == "assumed") == (source.confidence == "C")
    assert ("assumed" in source.cite) == (model.checkpoint.evidence == "assumed")


@pytest.mark.parametrize("name", PUBLISHED_PARAMETERS)
def test_a_shipped_model_has_the_published_parameters(name):
    assert parameter_count(load_model(name)).total == PUBLISHED_PARAMETERS[name]


@pytest.mark.parametrize("name", PUBLISHED_BILLIONS)
def test_a_shipped_model_has_the_billions_that_its_makers_print(name):
    assert round(parameter_count(load_model(name)).total / 1e9) == PUBLISHED_BILLIONS[name]


# github mistralai/mistral-inference#53 quotes 32768 from config.json, whose window is 4096; github xorbitsai/inference
# doc/source/models/builtin/llm/mistral-large-instruct.rst: context length 131072 of Mistral-Large-Instruct-2407.
@pytest.mark.parametrize(("name", "positions"), [("mistral-7b-v0.1", 32_768), ("mistral-large-2407", 131_072)])
def test_a_shipped_model_has_the_published_positions(name, positions):
    assert load_model(name).positions == positions


def test_a_stored_format_that_a_table_claims_without_a_source_is_assumed():
    assert load_model({"config": TINY, "checkpoint": {"default": "fp8_row"}}).checkpoint.evidence == "assumed"


# 26,953,662,464 bytes: Llama-2-7B in fp32, twice the 13,476,831,232 of its parameters at 16 bits.
def test_a_model_that_knows_the_bytes_of_its_files_can_be_changed():
    stored = {"default": "fp32", "total_bytes": 26_953_662_464}
    changed = load_model({"config": TINY, "checkpoint": stored}).replace(positions=8192)

    assert (changed.positions, changed.checkpoint.total_bytes) == (8192, 26_953_662_464)


@pytest.mark.parametrize("size", [0, -5, True, "5", 5.5, 2**53])
def test_a_size_that_no_files_have_is_refused(size):
    with pytest.raises(SpecError, match=r"checkpoint: total_bytes: "):
        load_model({"config": TINY, "checkpoint": {"default": "fp32", "total_bytes": size}})


def test_a_second_load_takes_microseconds():
    load_model("deepseek-v3")
    start = time.perf_counter()
    for _ in range(100):
        load_model("deepseek-v3")

    assert (time.perf_counter() - start) / 100 < 1e-3


def test_an_unknown_name_is_refused_with_the_nearest():
    with pytest.raises(SpecError, match="unknown model 'lama-2-7b'; nearest: llama-2-7b"):
        load_model("lama-2-7b")


def test_a_user_folder_holds_models_of_its_own(tmp_path, monkeypatch):
    (tmp_path / "mine.json").write_text(json.dumps(TINY))
    shape = {"id": "ours", "name": "ours", "config": TINY, "checkpoint": {"default": "fp16"}}
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "ours.json").write_text(json.dumps(shape))
    monkeypatch.setenv("CAPACITY_PATH", str(tmp_path))

    assert {"mine", "ours", "llama-3-8b"} <= set(model_ids())
    assert load_model("mine").stages == load_model("ours").stages == load_model(TINY).stages
    assert load_model("ours").checkpoint.default == "fp16"
    assert load_model("mine", folders=[]).name == "mine"


def test_a_file_that_changed_is_read_again(tmp_path):
    file = tmp_path / "mine.json"
    file.write_text(json.dumps(TINY))
    before = load_model(file)
    file.write_text(json.dumps(TINY | {"num_hidden_layers": 12}))

    assert before.decoder.layer_count == 1
    assert load_model(file).decoder.layer_count == 12


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"config": TINY, "weights": "fp16"}, "unknown field 'weights'"),
        ({"config": [TINY]}, "config must be an object, got a list"),
        ({"config": TINY, "notes": "one"}, "notes must be a list of strings"),
        ({"config": TINY, "checkpoint": {"default": "fp17"}}, "unknown number format 'fp17'"),
        ({"config": TINY, "sources": [{"fields": ["config.*"]}]}, "sources 1: cite is missing"),
    ],
)
def test_a_faulty_model_file_is_one_sentence(tmp_path, table, sentence):
    file = tmp_path / "faulty.json"
    file.write_text(json.dumps(table))

    with pytest.raises(SpecError, match=sentence):
        load_model(file)


@pytest.mark.parametrize("name", ["no/such/folder", "missing.json", "nul\0l"])
def test_a_path_to_nothing_is_refused(name):
    with pytest.raises(SpecError, match=r"no model file|null character"):
        load_model(name)


def test_files_of_a_checkpoint_that_appear_next_to_a_configuration_are_seen(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(TINY | {"torch_dtype": "bfloat16"}))
    assert load_model(tmp_path).checkpoint.total_bytes is None

    (tmp_path / "model.safetensors").write_bytes(b"cut off")
    with pytest.raises(SpecError, match=r"model\.safetensors: truncated"):
        load_model(tmp_path)
