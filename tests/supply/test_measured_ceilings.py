"""A part whose ceilings are its own best runs: what is called a bound elsewhere is there an attainable time."""

from __future__ import annotations

import pytest

import capacity as cap
from capacity.catalog.parts import hardware_ids
from capacity.catalog.worlds import load_world_model
from capacity.demand.decisions import decision_phases
from capacity.estimate.case import prepare
from capacity.estimate.decision import decide

SMALL = {
    "model_type": "llama", "hidden_size": 512, "num_attention_heads": 8, "num_hidden_layers": 4, "vocab_size": 1000,
    "intermediate_size": 1024, "max_position_embeddings": 512, "tie_word_embeddings": False, "torch_dtype": "float32",
    "num_key_value_heads": 8, "rms_norm_eps": 1e-5, "hidden_act": "silu", "rope_theta": 1e4,
}  # fmt: skip
DATASHEET = ["memory.*", "vector_flop_per_s.*", "peak_flop_per_s.*"]


def part(**source):
    """A processor with figures of one source."""
    return cap.load_hardware(
        {
            "name": "A core",
            "memory": {"bytes_per_s": 3e10, "capacity_bytes": 32_000_000_000},
            "vector_flop_per_s": {"fp32": 1e11},
            "sources": [{"fields": DATASHEET, "cite": "who says so", **source}],
        }
    )


def size(hardware):
    deploy = cap.Deployment(weights="fp32", activations="fp32", kv_cache="fp32")
    return cap.size(cap.load_model(SMALL), hardware, cap.Workload(prompt_tokens=128, output_tokens=16), deploy)


# Roofline: a ceiling that was measured can be beaten, so a time on it is no bound.
def test_a_bound_on_measured_ceilings_says_that_it_can_be_beaten():
    found = size(part(evidence="measured"))

    for estimate in (found.tpot, found.ttft):
        assert any("memory.bytes_per_s, vector_flop_per_s.fp32 of A core were measured" in n for n in estimate.notes)
    assert (found.evidence["tpot.bound"], found.evidence["ttft.bound"]) == ("measured", "measured")


def test_a_bound_on_printed_ceilings_does_not():
    found = size(part())

    assert not any("were measured" in note for note in (*found.tpot.notes, *found.ttft.notes))
    assert found.evidence["tpot.bound"] == "computed"


def test_parts_that_this_repository_measured_say_so():
    parts = [cap.load_hardware(name) for name in hardware_ids()]
    own = [(part, source) for part in parts for source in part.sources if "capacity measure" in source.cite]

    assert {source.evidence for _, source in own} == {"measured"}
    assert all("memory.bytes_per_s" in part.measured_ceilings() for part, _ in own)


@pytest.mark.parametrize(("evidence", "said"), [("measured", True), ("published", False)])
def test_the_bound_of_a_decision_says_the_same(evidence, said):
    robot, deploy = load_world_model("iris"), cap.Deployment(weights="fp32", activations="fp32", kv_cache="fp32")
    case = prepare(robot, part(evidence=evidence), deploy)
    found = decide(case, decision_phases(robot, deploy, batch=1))

    assert any("were measured" in note for note in found.notes) == said
