"""Each type with each of its switches turned, against a count of the class that its library builds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capacity.demand.parameters import parameter_count
from capacity.importers.huggingface.facts import facts_of, model_types
from capacity.importers.huggingface.model import import_model
from capacity.importers.huggingface.wrapped import wrapper_types

SMALL = json.loads((Path(__file__).parents[2] / "data" / "model_counts_small.json").read_text())
NOT_IN_THE_LIBRARY = {
    "kimi_k2",
    "internlm2",
    "baichuan",
    "qwen",
    "RefinedWeb",
    "RefinedWebModel",
}  # remote code, or mapped to another class
NOT_BUILT = {"ministral"}  # its class does not build without published rotary parameters


@pytest.mark.parametrize("case", SMALL, ids=[f"{n}-{case['config']['model_type']}" for n, case in enumerate(SMALL)])
def test_a_small_model_of_the_type_has_the_parameters_that_the_library_builds(case):
    # transformers 5.24.0, torch 2.13.0, meta device; tests/data/README-models.md
    assert parameter_count(import_model(case["config"])).total == case["parameters"]


def test_every_type_is_counted_once_by_the_library():
    configs = [case["config"] for case in SMALL]
    counted = {one["model_type"] for config in configs for one in (config, config.get("text_config", config))}

    assert {*model_types(), *wrapper_types()} - counted <= NOT_IN_THE_LIBRARY | NOT_BUILT


@pytest.mark.parametrize("kind", model_types())
def test_facts_of_a_type_say_where_they_come_from(kind):
    facts = facts_of(kind)

    assert facts.model_type == kind
    assert facts.source


@given(
    layers=st.integers(1, 40),
    kv_heads=st.integers(1, 8),
    groups=st.integers(1, 8),
    head_size=st.integers(1, 128),
    hidden=st.integers(1, 4096),
    width=st.integers(1, 8192),
    vocabulary=st.integers(1, 100_000),
    tied=st.booleans(),
    attention_bias=st.booleans(),
    mlp_bias=st.booleans(),
)
def test_any_llama_has_its_matrices_norms_and_biases(
    layers, kv_heads, groups, head_size, hidden, width, vocabulary, tied, attention_bias, mlp_bias
):
    heads = kv_heads * groups
    model = import_model(
        {
            "model_type": "llama", "num_hidden_layers": layers, "hidden_size": hidden, "intermediate_size": width,
            "num_attention_heads": heads, "num_key_value_heads": kv_heads, "head_dim": head_size,
            "vocab_size": vocabulary, "tie_word_embeddings": tied, "attention_bias": attention_bias,
            "mlp_bias": mlp_bias, "max_position_embeddings": 2048,
        }
    )  # fmt: skip
    matrices = 2 * hidden * heads * head_size + 2 * hidden * kv_heads * head_size + 3 * hidden * width
    biases = attention_bias * ((heads + 2 * kv_heads) * head_size + hidden) + mlp_bias * (2 * width + hidden)
    tables = vocabulary * hidden * (1 if tied else 2)

    assert parameter_count(model).total == tables + layers * (matrices + biases + 2 * hidden) + hidden
