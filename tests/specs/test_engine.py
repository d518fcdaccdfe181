"""Engines: named policies and constants that are numbers; a field nobody knows is answered with the nearest."""

import pytest

from capacity.errors import SpecError
from capacity.specs.engine import EngineSpec

TABLE = {
    "name": "vllm",
    "first_version": "0.10",
    "policies": {"kv_cache": "blocks"},
    "constants": {"cuda_graph_bytes": 1_000_000_000},
    "sources": [{"fields": ["*"], "cite": "a log of the engine, read today"}],
}


def test_an_engine_keeps_its_policies_and_constants():
    engine = EngineSpec.parse(TABLE, "vllm.toml")

    assert (engine.policies["kv_cache"], engine.constants["cuda_graph_bytes"]) == ("blocks", 1e9)
    assert hash(engine) == hash(EngineSpec.parse(TABLE, "vllm.toml"))


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("constants", {"cuda_graph_bytes": -1}, r"constants\.cuda_graph_bytes"),
        ("constants", {"cuda_graph_bytes": True}, r"constants\.cuda_graph_bytes"),
        ("constants", {"cuda_graph_bytes": "1 GB"}, r"constants\.cuda_graph_bytes"),
        ("policy", {}, "unknown field 'policy'; nearest: policies"),
    ],
)
def test_a_wrong_field_of_an_engine_is_one_sentence(field, value, sentence):
    with pytest.raises(SpecError, match=sentence):
        EngineSpec.parse(TABLE | {field: value}, "vllm.toml")
