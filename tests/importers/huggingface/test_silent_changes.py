"""A key deleted or set to null never changes a size unsaid: each such change is refused, or leaves another note."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest

import capacity as cap
from capacity.errors import CapacityError

CONFIGS = sorted((Path(__file__).parents[2] / "data" / "model_configs").glob("*.json"))
BF16 = cap.Deployment(weights="bf16")


def sizes(model):
    """Parameters, active ones, cache at a short and a long context, positions."""
    count = cap.parameter_count(model)
    cache = [cap.kv_cache_bytes(model, BF16, batch=1, context_tokens=tokens) for tokens in (4096, 65_536)]
    return count.total, count.active, *cache, model.positions


def keys(table):
    for name, value in table.items():
        yield (name,)
        if isinstance(value, dict):
            yield from [(name, inner) for inner in value]


def changed(table, path, *, null):
    made = copy.deepcopy(table)
    inside = made
    for name in path[:-1]:
        inside = inside[name]
    if null:
        inside[path[-1]] = None
    else:
        del inside[path[-1]]
    return made


@pytest.mark.parametrize("file", CONFIGS, ids=lambda file: file.stem)
def test_no_key_is_deleted_or_null_unsaid(file):
    table = {name: value for name, value in json.loads(file.read_text()).items() if name != "_oracle"}
    try:
        model = cap.load_model(table)
    except CapacityError:
        pytest.skip("of a type that is not read")
    before, said, silent = sizes(model), (model.notes, model.assumed), []
    for path in keys(table):
        for null in (False, True):
            try:
                other = cap.load_model(changed(table, path, null=null))
                moved = sizes(other) != before
            except CapacityError:
                continue
            if moved and (other.notes, other.assumed) == said:
                silent.append((".".join(path), "null" if null else "deleted"))

    assert silent == []


def table_of(kind, **fields):
    for file in CONFIGS:
        table = json.loads(file.read_text())
        if table.get("model_type") == kind:
            return {name: value for name, value in table.items() if name != "_oracle"} | fields
    raise AssertionError(f"no configuration of {kind}")


# transformers 5.24.0 refuses these: the class of the type has a number there, and does not allow null.
@pytest.mark.parametrize(
    ("kind", "key"),
    [
        *((kind, "num_key_value_heads") for kind in ("gemma", "gpt_oss", "mistral", "mixtral", "minimax_m2")),
        *((kind, "head_dim") for kind in ("gemma", "gpt_oss", "qwen3")),
        *((kind, "tie_word_embeddings") for kind in ("llama", "qwen2", "qwen3", "phi3", "gpt2")),
        *((kind, "n_shared_experts") for kind in ("deepseek_v2", "deepseek_v3", "glm4_moe")),
        ("deepseek_v2", "v_head_dim"),
        ("deepseek_v2", "first_k_dense_replace"),
        ("llama", "attention_bias"),
    ],
)
def test_null_is_refused_where_the_class_has_a_value(kind, key):
    with pytest.raises(CapacityError, match=f"{key} is null, which type {kind} does not allow"):
        cap.load_model(table_of(kind, **{key: None}))


def test_null_that_the_class_allows_is_said():
    model = cap.load_model(table_of("qwen2", num_key_value_heads=None))

    assert any("as many as heads" in note and "num_key_value_heads" in note for note in model.notes)


# DbrxConfig's own attention table has kv_n_heads = 1 where a file leaves it out.
def test_dbrx_without_its_kv_heads_has_the_one_of_its_class():
    table = table_of("dbrx")
    del table["attn_config"]["kv_n_heads"]
    model = cap.load_model(table)

    assert cap.kv_cache_bytes(model, BF16, batch=1, context_tokens=4096) == 4096 * 40 * 2 * 128 * 2
    assert any("attn_config.kv_n_heads is absent: assumed 1" in note for note in model.notes)


def test_a_key_that_is_commented_out_is_noted():
    table = table_of("llama")
    table["_num_key_value_heads"] = table.pop("num_key_value_heads", 8)

    assert any("_num_key_value_heads" in note for note in cap.load_model(table).notes)
