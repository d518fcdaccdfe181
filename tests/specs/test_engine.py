"""Engines: named policies with sources; a field that is missing or unknown is one sentence, with the nearest name."""

import pytest

from capacity.catalog.engines import engine_ids, load_engine
from capacity.engines.activations import ACTIVATION_PEAKS
from capacity.engines.budget import BUDGETS
from capacity.engines.cache import CACHES
from capacity.errors import SpecError
from capacity.specs.engine import EngineSpec

POLICIES = {"budget": "fraction_of_capacity", "cache": "paged", "activations": "widest_layer_or_sampler"}
TABLE = {
    "name": "vllm",
    "description": "an engine of a test",
    "policies": POLICIES,
    "sources": [{"fields": ["*"], "cite": "a log of the engine, read today"}],
}


def test_an_engine_keeps_its_policies():
    engine = EngineSpec.parse(TABLE, "vllm.toml")

    assert engine.policies.model_dump() == POLICIES
    assert hash(engine) == hash(EngineSpec.parse(TABLE, "vllm.toml"))


@pytest.mark.parametrize("name", engine_ids())
def test_every_policy_of_a_shipped_engine_is_a_function(name):
    engine = load_engine(name)

    assert engine.name == name
    assert engine.policies.budget in BUDGETS
    assert engine.policies.cache in CACHES
    assert engine.policies.activations in ACTIVATION_PEAKS
    assert engine.sources


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("policies", {"budget": "fraction_of_capacity"}, "policies: cache is missing"),
        ("policies", POLICIES | {"cache": 3}, r"policies\.cache: .*got 3"),
        ("policies", POLICIES | {"cach": "paged"}, "policies: unknown field 'cach'; nearest: cache"),
        ("policy", {}, "unknown field 'policy'; nearest: policies"),
    ],
)
def test_a_wrong_field_of_an_engine_is_one_sentence(field, value, sentence):
    with pytest.raises(SpecError, match=sentence):
        EngineSpec.parse(TABLE | {field: value}, "vllm.toml")
