"""What a configuration leaves open or sets to null: refused, or noted with what takes its place; never silent."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest

import capacity as cap

DATA = Path(__file__).parents[2] / "data"
BF16 = cap.Deployment(weights="bf16")

# transformers 5.24.0 refuses each of these files: the field of the class is not Optional.
NOT_NULLABLE = {
    "num_key_value_heads": "exaone4 gemma gemma2 gemma3_text glm4 glm4_moe gpt_oss minimax_m2 ministral3 mistral "
    "mixtral phimoe qwen3_moe starcoder2",
    "head_dim": "gemma gemma2 gemma3_text gpt_oss minimax_m2 qwen3",
    "tie_word_embeddings": "cohere falcon gemma gemma2 gemma3_text gpt2 granitemoe llama minicpm3 olmo opt phi3 qwen2 "
    "qwen3 starcoder2",
    "n_shared_experts": "deepseek_v2 deepseek_v3 glm4_moe",
    "shared_expert_intermediate_size": "qwen2_moe",
    "first_k_dense_replace": "deepseek_v2 glm4_moe",
    "v_head_dim": "deepseek_v2",
    "attn_config.kv_n_heads": "dbrx",
    "attention_bias": "glm4 glm4_moe gpt_neox gpt_oss llama",
    "mlp_bias": "llama",
    "use_bias": "starcoder2",
    "qkv_bias": "qwen2_moe",
    "enable_bias": "opt",
    "do_layer_norm_before": "opt",
    "use_qk_norm": "glm4_moe",
}
# Null means something in the class and its modules, and moves memory: what it is taken for is noted.
NULLABLE = {
    "num_key_value_heads": "llama qwen2 qwen3 olmo3 phi3 granitemoe",
    "sliding_window": "gemma2 gemma3_text mistral phi3",
    "q_lora_rank": "deepseek_v2 deepseek_v3",
    "multi_query": "falcon",
}
# The class fills each of these in when it is left out, with another size than that of the published file.
LEFT_OUT = {
    "meta-llama__Meta-Llama-3.1-8B": "num_key_value_heads",
    "allenai__Olmo-3.1-32B-Instruct": "num_key_value_heads",
    "ibm-granite__granite-3b-code-instruct-128k": "num_key_value_heads",
    "Qwen__Qwen3-235B-A22B": "head_dim",
    "mistralai__Devstral-Small-2507": "head_dim",
    "nvidia__Cosmos-Predict1-12B_AR_video": "head_dim",
}


def real_configurations():
    """Configurations of published models by name, without what the oracle says of them."""
    found = {path.stem: json.loads(path.read_text()) for path in sorted((DATA / "model_configs").glob("*.json"))}
    return {name: {key: value for key, value in table.items() if key != "_oracle"} for name, table in found.items()}


def small_configurations():
    """Made-up configurations, of every type and with every switch turned once."""
    return {
        f"small {number}": case["config"]
        for number, case in enumerate(json.loads((DATA / "model_counts_small.json").read_text()))
    }


REAL = real_configurations()
ALL = REAL | small_configurations()


def of_type(model_type):
    """One configuration of a type that is read."""
    return next(table for table in ALL.values() if table.get("model_type") == model_type and figures_of(table))


def figures_of(table):
    """Everything that a buyer reads off a model, with what was noted; None where it is refused."""
    try:
        model = cap.load_model(table)
    except cap.CapacityError:
        return None
    count = cap.parameter_count(model)
    cache = [cap.kv_cache_bytes(model, BF16, batch=1, context_tokens=tokens) for tokens in (4096, 65536)]
    sizes = (count.total, count.active, cap.weight_bytes(model, BF16), stored_bytes(model), *cache, model.positions)
    return sizes, {*model.notes, *model.assumed}


def stored_bytes(model):
    """Weights as stored; None where no format is stated, which every answer then asks for."""
    try:
        return cap.weight_bytes(model, cap.Deployment())
    except cap.CapacityError:
        return None


def keys_of(table, path=()):
    """Paths of all keys, those of inner objects as well."""
    for name, value in table.items():
        yield (*path, name)
        if isinstance(value, dict):
            yield from keys_of(value, (*path, name))


def without(table, path):
    changed, owner = copied(table, path)
    del owner[path[-1]]
    return changed


def nulled(table, path):
    changed, owner = copied(table, path)
    owner[path[-1]] = None
    return changed


def copied(table, path):
    changed = copy.deepcopy(table)
    owner = changed
    for name in path[:-1]:
        owner = owner[name]
    return changed, owner


def silent_changes(table):
    """Keys whose loss moves a figure without a refusal, a new note or a new assumption."""
    sizes, known = figures_of(table)
    for path in keys_of(table):
        for change in (without, nulled):
            answer = figures_of(change(table, path))
            if answer is None or answer[0] == sizes or answer[1] - known:
                continue
            if answer[0][3] is None and answer[0][:3] == sizes[:3] and answer[0][4:] == sizes[4:]:
                continue  # the format alone is gone, and every answer asks for it
            yield f"{change.__name__} {'.'.join(path)}"


@pytest.mark.parametrize("name", ALL)
def test_no_key_deleted_or_null_moves_a_figure_silently(name):
    if figures_of(ALL[name]) is None:
        pytest.skip("this type is refused by name")

    assert list(silent_changes(ALL[name])) == []


@pytest.mark.parametrize(
    ("key", "model_type"), [(key, one) for key, types in NOT_NULLABLE.items() for one in types.split()]
)
def test_a_null_that_the_class_refuses_is_refused(key, model_type):
    table = copy.deepcopy(of_type(model_type))
    *outer, name = key.split(".")
    (table.setdefault(outer[0], {}) if outer else table)[name] = None

    with pytest.raises(cap.CapacityError, match=f"{key} is null, which type {model_type} does not allow"):
        cap.load_model(table)


@pytest.mark.parametrize(
    ("key", "model_type"), [(key, one) for key, types in NULLABLE.items() for one in types.split()]
)
def test_a_null_that_the_class_allows_is_noted(key, model_type):
    notes = cap.load_model(of_type(model_type) | {key: None}).notes

    assert any(note.startswith("not stated: ") and f"{key} (" in note for note in notes)


@pytest.mark.parametrize(("name", "key"), LEFT_OUT.items())
def test_a_size_that_the_class_fills_in_is_noted(name, key):
    notes = cap.load_model(without(REAL[name], (key,))).notes

    assert any(note.startswith("not stated: ") and f"{key} (" in note for note in notes)


# transformers 5.24.0: DbrxAttentionConfig.kv_n_heads = 1, so 40 layers x 2 x 128 values of 2 bytes a token.
@pytest.mark.parametrize("path", [("attn_config", "kv_n_heads"), ("attn_config",)])
def test_dbrx_without_kv_heads_has_the_one_of_its_class(path):
    model = cap.load_model(without(REAL["databricks__dbrx-base"], path))

    assert cap.kv_cache_bytes(model, BF16, batch=1, context_tokens=4096) == 4096 * 40 * 2 * 128 * 2
    assert "attn_config.kv_n_heads" in model.assumed


@pytest.mark.parametrize("renamed", ["_num_key_value_heads", "num_key_value_heads_token_id"])
def test_a_key_taken_out_by_its_name_is_noted(renamed):
    table = dict(REAL["meta-llama__Meta-Llama-3.1-8B"])
    table[renamed] = table.pop("num_key_value_heads")

    notes = cap.load_model(table).notes

    assert f"ignored keys: {renamed}" in notes
    assert any("num_key_value_heads (32: as many as heads)" in note for note in notes)


def test_ids_of_known_tokens_need_no_note():
    table = REAL["meta-llama__Meta-Llama-3.1-8B"] | {
        "image_token_id": 5,
        "vision_start_token_id": 6,
        "_name_or_path": "x",
    }

    assert not any(note.startswith("ignored keys") for note in cap.load_model(table).notes)


def test_of_two_names_of_a_fact_the_one_with_a_value_counts():
    table = REAL["Qwen__Qwen3-235B-A22B"] | {"num_experts": None, "num_local_experts": 128}

    assert figures_of(table)[0] == figures_of(REAL["Qwen__Qwen3-235B-A22B"])[0]


def test_latent_heads_that_do_not_divide_the_width_are_refused():
    table = of_type("minicpm3") | {"v_head_dim": None, "hidden_size": 2561}

    with pytest.raises(cap.CapacityError, match="does not divide the hidden size 2561"):
        cap.load_model(table)
