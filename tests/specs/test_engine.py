"""Engines: named policies with sources; a field that is missing or unknown is one sentence, with the nearest name."""

import pytest

from capacity.catalog.engines import engine_ids, load_engine
from capacity.engines.activations import ACTIVATION_PEAKS
from capacity.engines.budget import BUDGETS
from capacity.engines.cache import CACHES
from capacity.errors import SpecError
from capacity.specs.engine import EngineSpec

POLICIES = {
    "budget": "fraction_of_capacity",
    "cache": "paged",
    "session_cache": "growing_buffer",
    "activations": "widest_layer_or_sampler",
}
POOLS = [{"name": "state", "rows": ["state"], "parts": 9}, {"name": "tokens", "rows": ["KV cache"], "parts": 10}]
TABLE = {
    "name": "vllm",
    "description": "an engine of a test",
    "policies": POLICIES,
    "sources": [{"fields": ["*"], "cite": "a log of the engine, read today"}],
}


def test_an_engine_keeps_its_policies():
    engine = EngineSpec.parse(TABLE, "vllm.toml")

    assert engine.policies.model_dump() == POLICIES | {"overheads": ()}
    assert hash(engine) == hash(EngineSpec.parse(TABLE, "vllm.toml"))


@pytest.mark.parametrize("name", engine_ids())
def test_every_policy_of_a_shipped_engine_is_a_function(name):
    engine = load_engine(name)

    assert engine.name == name
    assert engine.policies.budget in BUDGETS
    assert engine.policies.cache in CACHES
    assert engine.policies.session_cache in CACHES
    assert engine.policies.activations in ACTIVATION_PEAKS
    assert engine.sources


def test_pools_keep_their_parts_and_rows_outside_the_fraction_are_in_none():
    engine = EngineSpec.parse(TABLE | {"pools": POOLS, "outside_fraction": ["activations"]}, "sglang.toml")

    assert [(pool.name, pool.rows, pool.parts, pool.rounding, pool.ratios) for pool in engine.pools] == [
        ("state", ("state",), 9, "floor", ()),
        ("tokens", ("KV cache",), 10, "floor", ()),
    ]
    with pytest.raises(SpecError, match="a row of a pool lies inside the fraction, got state in outside_fraction"):
        EngineSpec.parse(TABLE | {"pools": POOLS, "outside_fraction": ["state"]}, "sglang.toml")


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("policies", {"budget": "fraction_of_capacity"}, "policies: cache is missing"),
        ("policies", POLICIES | {"cache": 3}, r"policies\.cache: .*got 3"),
        ("policies", POLICIES | {"cach": "paged"}, "policies: unknown field 'cach'; nearest: cache"),
        ("policy", {}, "unknown field 'policy'; nearest: policies"),
        ("pools", [POOLS[0] | {"parts": 0}], r"pools 1\.parts: .*got 0"),
        ("pools", [POOLS[0] | {"rounding": "up"}], r"pools 1\.rounding: .*'floor' or 'ceil'.*got 'up'"),
        ("pools", [POOLS[0] | {"ratios": [1, 2]}], "ratios must be one for each of 1 rows, got 2"),
        ("pools", [*POOLS, POOLS[0]], "a row can be in one pool only, got state in several"),
    ],
)
def test_a_wrong_field_of_an_engine_is_one_sentence(field, value, sentence):
    with pytest.raises(SpecError, match=sentence):
        EngineSpec.parse(TABLE | {field: value}, "vllm.toml")
