"""Every kind of feed-forward: its functions, and what they say against shapes multiplied out by hand."""

from __future__ import annotations

import inspect

import pytest

import capacity as cap
from capacity.demand import feed_forwards
from capacity.demand.feed_forwards import dense, experts, none
from capacity.specs.model import Dense, Experts, NoFeedForward

WIDTH = 512
DENSE = Dense(intermediate_size=1000)
EXPERTS = Experts(experts=16, experts_per_token=3, intermediate_size=100, shared_intermediate_size=200)
SPECS = {"dense": DENSE, "experts": EXPERTS, "none": NoFeedForward()}
FUNCTIONS = {"weights", "activation_tensors", "check_sharding", "routed_per_token", "is_ordinary", "summary"}


def counted(feed_forward):
    """Rows, columns, shard, copies and those that a token visits, of each weight of a layer."""
    return {
        module.name: (module.rows, module.columns, module.shard, module.copies, module.used)
        for module in feed_forwards.of(feed_forward).weights(feed_forward, WIDTH)
    }


def functions(module):
    """The signatures of a module's own public functions, without annotations."""
    found = inspect.getmembers(module, inspect.isfunction)
    own = [(name, item) for name, item in found if item.__module__ == module.__name__ and not name.startswith("_")]
    return {name: [(p.name, p.kind) for p in inspect.signature(item).parameters.values()][1:] for name, item in own}


def test_every_kind_has_the_same_functions_and_facts():
    assert set(feed_forwards.KINDS) == set(SPECS)
    wanted = functions(dense)
    assert set(wanted) == FUNCTIONS
    for kind, module in feed_forwards.KINDS.items():
        assert functions(module) == wanted, kind
        assert feed_forwards.of(SPECS[kind]) is module


# Megatron-LM: one all-reduce behind each feed-forward that is cut.
def test_only_a_feed_forward_sums_over_ranks():
    assert {kind: module.SUMS for kind, module in feed_forwards.KINDS.items()} == {"dense": 1, "experts": 1, "none": 0}


def test_weights_of_a_dense_feed_forward():
    assert counted(DENSE) == {
        "gate_up": (2000, WIDTH, "rows", 1, 1),
        "down": (WIDTH, 1000, "columns", 1, 1),
    }
    assert counted(Dense(intermediate_size=1000, gated=False, bias=True)) == {
        "up": (1000, WIDTH, "rows", 1, 1),
        "down": (WIDTH, 1000, "columns", 1, 1),
        "up_bias": (1000, 1, "rows", 1, 1),
        "down_bias": (WIDTH, 1, "whole", 1, 1),
    }


def test_weights_of_experts():
    assert counted(EXPERTS) == {
        "router": (16, WIDTH, "whole", 1, 1),
        "expert_up": (200, WIDTH, "expert_rows", 16, 3),
        "expert_down": (WIDTH, 100, "expert_columns", 16, 3),
        "shared_up": (400, WIDTH, "rows", 1, 1),
        "shared_down": (WIDTH, 200, "columns", 1, 1),
    }


# gpt-oss: biases in router and experts. Qwen2-MoE: a gate of one row on the shared expert.
def test_weights_of_experts_with_biases_and_a_shared_gate():
    found = counted(EXPERTS.replace(bias=True, router_bias=True, shared_gate=True, gated=False))

    assert found["router_bias"] == (16, 1, "whole", 1, 1)
    assert found["expert_up"] == (100, WIDTH, "expert_rows", 16, 3)
    assert found["expert_up_bias"] == (100, 1, "expert_rows", 16, 3)
    assert found["expert_down_bias"] == (WIDTH, 1, "expert_whole", 16, 3)
    assert found["shared_gate"] == (WIDTH, 1, "whole", 1, 1)
    assert "shared_up" not in counted(EXPERTS.replace(shared_intermediate_size=0))


def test_no_feed_forward_has_no_weights():
    assert counted(NoFeedForward()) == {}


# Gate, up, activation and product of a token, each of the inner width of the rank; experts those of all it visits.
@pytest.mark.parametrize(
    ("kind", "ways", "elements"),
    [
        ("dense", 1, 4 * 1000),
        ("dense", 3, 4 * 334),
        ("experts", 1, 4 * (3 * 100 + 200)),
        ("experts", 8, 4 * 63),
        ("none", 1, 0),
    ],
)
def test_activations(kind, ways, elements):
    assert sum(feed_forwards.KINDS[kind].activation_tensors(SPECS[kind], tensor_parallel=ways).values()) == elements


def test_only_a_routed_token_is_sent_somewhere():
    assert {kind: module.routed_per_token(SPECS[kind]) for kind, module in feed_forwards.KINDS.items()} == {
        "dense": 0,
        "experts": 3,
        "none": 0,
    }


def test_degrees_that_divide_the_experts_are_allowed():
    for ways in (1, 2, 16):
        experts.check_sharding(EXPERTS, "m", expert_parallel=ways)
    for ways in (3, 32):
        with pytest.raises(cap.CapacityError, match=f"expert_parallel {ways} must divide the 16 experts of m"):
            experts.check_sharding(EXPERTS, "m", expert_parallel=ways)
    for ways in (1, 3, 64):
        dense.check_sharding(DENSE, "m", expert_parallel=ways)
        none.check_sharding(NoFeedForward(), "m", expert_parallel=ways)


# The reference decoder (capacity/measure) has gated dense feed-forwards.
def test_what_the_reference_decoder_has():
    assert dense.is_ordinary(DENSE)
    assert not dense.is_ordinary(Dense(intermediate_size=1000, gated=False))
    assert not experts.is_ordinary(EXPERTS)
    assert not none.is_ordinary(NoFeedForward())


@pytest.mark.parametrize(
    ("feed_forward", "words"),
    [
        (DENSE, "gated, width 1,000"),
        (Dense(intermediate_size=1000, gated=False), "width 1,000"),
        (EXPERTS, "16 experts of width 100, 3 per token, shared width 200"),
        (EXPERTS.replace(shared_intermediate_size=0), "16 experts of width 100, 3 per token"),
        (NoFeedForward(), "none"),
    ],
)
def test_a_feed_forward_in_a_few_words(feed_forward, words):
    assert feed_forwards.of(feed_forward).summary(feed_forward) == words
