"""Every kind of mixer: its functions, and what they say against shapes multiplied out by hand."""

from __future__ import annotations

import inspect

import pytest

import capacity as cap
from capacity.demand import mixers
from capacity.demand.costs import LayerCache, LayerFormats
from capacity.demand.mixers import attention, latent, none, state
from capacity.specs.model import Attention, LatentAttention, NoMixer, StateMixer
from capacity.specs.state_mixer import StateTensor
from capacity.units import Arithmetic, number_format

WIDTH = 512
ATTENTION = Attention(
    query_heads=8, kv_heads=2, head_size=64, value_size=32, biases=("query", "key", "value", "output"), sinks=True
)
LATENT = LatentAttention(query_heads=16, query_rank=96, kv_rank=128, nope_size=32, rope_size=16, value_size=24)
INDEXED = LATENT.replace(indexer={"heads": 4, "head_size": 40, "top_k": 256})
STATE = StateMixer(
    name="mamba2",
    heads=8,
    matrices=(
        {"name": "in", "rows": 1024, "columns": WIDTH},
        {"name": "dt", "rows": 8, "columns": WIDTH, "shard": "whole"},
        {"name": "out", "rows": WIDTH, "columns": 512, "shard": "columns"},
    ),
    vector_parameters=77,
    state=(
        StateTensor(name="conv", elements=640, kind="conv"),
        StateTensor(name="ssm", elements=8 * 64 * 16, kind="recurrent"),
    ),
    update_flop=9000.0,
)
SPECS = {"attention": ATTENTION, "latent": LATENT, "state": STATE, "none": NoMixer()}
FUNCTIONS = {
    "weights",
    "costs",
    "cache",
    "cache_makers",
    "state_bits",
    "activation_tensors",
    "check_sharding",
    "rotary_size",
    "is_ordinary",
    "summary",
}


def formats(cache="bf16", recurrent="fp32", conv="bf16"):
    """Formats of a layer, by name; attention computes in bf16."""
    computed = Arithmetic(cache, "bf16")
    return LayerFormats(number_format(cache), number_format(recurrent), number_format(conv), computed)


def counted(mixer):
    """Rows, columns and shard of each weight of a layer."""
    return {
        module.name: (module.rows, module.columns, module.shard) for module in mixers.of(mixer).weights(mixer, WIDTH)
    }


def functions(module):
    """The signatures of a module's own public functions, without annotations."""
    found = inspect.getmembers(module, inspect.isfunction)
    own = [(name, item) for name, item in found if item.__module__ == module.__name__ and not name.startswith("_")]
    return {name: [(p.name, p.kind) for p in inspect.signature(item).parameters.values()][1:] for name, item in own}


def test_every_kind_has_the_same_functions_and_facts():
    assert set(mixers.KINDS) == set(SPECS)
    wanted = functions(attention)
    assert set(wanted) == FUNCTIONS
    for kind, module in mixers.KINDS.items():
        assert functions(module) == wanted, kind
        assert module.OVERRIDE_PART in ("kv_cache", "state", None)
        assert module.SUMS in (0, 1)
        assert mixers.of(SPECS[kind]) is module


# Megatron-LM: one all-reduce behind each mixer that is cut; a layer without one has none.
def test_only_a_mixer_sums_over_ranks():
    assert {kind: module.SUMS for kind, module in mixers.KINDS.items()} == {
        "attention": 1,
        "latent": 1,
        "state": 1,
        "none": 0,
    }
    assert (attention.OVERRIDE_PART, latent.OVERRIDE_PART, state.OVERRIDE_PART) == ("kv_cache", "kv_cache", "state")
    assert none.OVERRIDE_PART is None


def test_weights_of_attention():
    assert counted(ATTENTION) == {
        "query": (8 * 64, WIDTH, "rows"),
        "key": (2 * 64, WIDTH, "rows"),
        "value": (2 * 32, WIDTH, "rows"),
        "output": (WIDTH, 8 * 32, "columns"),
        "query_bias": (8 * 64, 1, "rows"),
        "key_bias": (2 * 64, 1, "rows"),
        "value_bias": (2 * 32, 1, "rows"),
        "output_bias": (WIDTH, 1, "whole"),
        "sinks": (8, 1, "rows"),
    }


# Gated attention doubles the query rows; Gemma 4 reads its keys as values; a layer that borrows a cache has neither.
def test_weights_of_attention_with_a_gate_or_without_projections():
    assert counted(ATTENTION.replace(output_gate=True))["query"] == (8 * 2 * 64, WIDTH, "rows")
    shared = ATTENTION.replace(value_is_key=True, value_size=None, biases=())
    assert set(counted(shared)) == {"query", "key", "output", "sinks"}
    borrowed = ATTENTION.replace(kv_projections=False, keeps_cache=False, biases=())
    assert set(counted(borrowed)) == {"query", "output", "sinks"}
    assert attention.cache(borrowed, formats(), tensor_parallel=1) == LayerCache()


# Norms of queries and keys: one weight a head width each, or one for every row of both.
@pytest.mark.parametrize(("kind", "bias", "size"), [("head", False, 128), ("head", True, 256), ("full", False, 640)])
def test_norms_of_queries_and_keys(kind, bias, size):
    normed = ATTENTION.replace(query_key_norm=kind, query_key_norm_bias=bias)

    assert counted(normed)["query_key_norm"] == (size, 1, "whole")


# DeepSeek-V3's names: q_a, q_b, kv_a (latent and rotary key together), kv_b (keys without rotation, and values), o.
def test_weights_of_latent_attention():
    assert counted(LATENT) == {
        "query_a": (96, WIDTH, "whole"),
        "query_a_norm": (96, 1, "whole"),
        "query_b": (16 * 48, 96, "rows"),
        "kv_a": (128 + 16, WIDTH, "whole"),
        "kv_a_norm": (128, 1, "whole"),
        "kv_b": (16 * (32 + 24), 128, "rows"),
        "output": (WIDTH, 16 * 24, "columns"),
    }
    direct = counted(LATENT.replace(query_rank=None))
    assert direct["query"] == (16 * 48, WIDTH, "rows")
    assert "query_a" not in direct


# DeepSeek-V3.2: wq_b from the compressed query, wk from the hidden state, head weights, a norm with weight and bias.
def test_weights_of_an_indexer():
    assert {name: shape for name, shape in counted(INDEXED).items() if name.startswith("index")} == {
        "index_query": (4 * 40, 96, "whole"),
        "index_key": (40, WIDTH, "whole"),
        "index_weights": (4, WIDTH, "whole"),
        "index_key_norm": (80, 1, "whole"),
    }


def test_weights_of_a_state_mixer_and_of_none():
    assert counted(STATE) == {
        "in": (1024, WIDTH, "rows"),
        "dt": (8, WIDTH, "whole"),
        "out": (WIDTH, 512, "columns"),
        "state_vectors": (77, 1, "whole"),
    }
    assert counted(NoMixer()) == {}


# A token keeps a key of 64 and a value of 32 in each of the KV heads of the rank, never fewer than one head.
@pytest.mark.parametrize(("ways", "heads"), [(1, 2), (2, 1), (4, 1), (8, 1)])
@pytest.mark.parametrize(("cache", "bits"), [("bf16", 16), ("int8", 8), ("q8_0", 8.5), ("fp8_e4m3", 8)])
def test_a_cached_token_of_attention(ways, heads, cache, bits):
    held = attention.cache(ATTENTION, formats(cache), tensor_parallel=ways)

    assert held == LayerCache(token_bytes=int(heads * (64 + 32) * bits / 8))


def test_a_window_ends_a_cache_and_a_source_fixes_it():
    sliding = ATTENTION.replace(span="sliding", window=100)
    cross = ATTENTION.replace(span="cross", source_tokens=50)

    assert attention.cache(sliding, formats(), tensor_parallel=1) == LayerCache(2 * 96 * 2, window=100)
    assert attention.cache(cross, formats(), tensor_parallel=1) == LayerCache(constant_bytes=50 * 2 * 96 * 2)


# One latent of 128 and one rotary key of 16 per token, whole on every rank; an indexer keeps a key of 40 as well.
@pytest.mark.parametrize("ways", [1, 2, 16])
def test_a_cached_token_of_latent_attention_is_whole_on_every_rank(ways):
    assert latent.cache(LATENT, formats(), tensor_parallel=ways) == LayerCache(144 * 2, latent=True)
    assert latent.cache(INDEXED, formats(), tensor_parallel=ways) == LayerCache((144 + 40) * 2, latent=True)


@pytest.mark.parametrize("kind", ["attention", "latent", "none"])
def test_only_a_state_mixer_has_a_state(kind):
    assert mixers.KINDS[kind].state_bits(SPECS[kind], formats(), tensor_parallel=1) == 0


# 640 elements of 16 bit and 8,192 of 32; over ranks each tensor divides, rounded up.
@pytest.mark.parametrize(("ways", "bits"), [(1, 640 * 16 + 8192 * 32), (8, 80 * 16 + 1024 * 32)])
def test_a_state_has_its_elements_in_two_formats(ways, bits):
    assert state.state_bits(STATE, formats(), tensor_parallel=ways) == bits
    assert state.state_bits(STATE, formats(recurrent="bf16"), tensor_parallel=1) == (640 + 8192) * 16
    assert state.cache(STATE, formats(), tensor_parallel=ways) == LayerCache()


# A pair of query and key is a product over 64 and one over 32 elements for each of 8 heads: 2 FLOP each.
@pytest.mark.parametrize("ways", [1, 2])
def test_a_pair_of_attention(ways):
    (cost,) = attention.costs(ATTENTION, formats("int8"), layers=3, tensor_parallel=ways)

    assert cost.key_flop == cost.expanded_key_flop == 3 * 2 * 8 / ways * (64 + 32)
    assert cost.key_bytes == 3 * 2 / ways * (64 + 32)
    assert (cost.layers, cost.launches, cost.window, cost.source_tokens, cost.chunked) == (3, 3, 0, 0, False)
    assert cost.arithmetic == Arithmetic("int8", "bf16")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"span": "sliding", "window": 100}, (100, 0, False)),
        ({"span": "chunked", "window": 100}, (100, 0, True)),
        ({"span": "cross", "source_tokens": 50}, (0, 50, False)),
    ],
)
def test_the_reach_of_attention(change, expected):
    (cost,) = attention.costs(ATTENTION.replace(**change), formats(), layers=1, tensor_parallel=1)

    assert (cost.window, cost.source_tokens, cost.chunked) == expected


# Absorbed, a head multiplies over the latent and the rotary key (128 + 16) and sums latents (128); expanded over keys
# of 32 + 16 and values of 24. DESIGN: 2 H (2 r + rope) and 2 H (nope + rope + v).
@pytest.mark.parametrize("ways", [1, 4])
def test_a_pair_of_latent_attention(ways):
    (cost,) = latent.costs(LATENT, formats(), layers=5, tensor_parallel=ways)

    assert cost.key_flop == 5 * 2 * 16 / ways * (2 * 128 + 16)
    assert cost.expanded_key_flop == 5 * 2 * 16 / ways * (32 + 16 + 24)
    assert cost.key_bytes == 5 * 144 * 2
    assert cost.window == 0


# DeepSeek-V3.2: the indexer scores all tokens with 4 heads of 40, attention meets the 256 it keeps.
def test_an_indexer_meets_all_keys_and_attention_the_chosen_ones():
    chosen, scored = latent.costs(INDEXED, formats(), layers=2, tensor_parallel=4)

    assert (chosen.window, scored.window) == (256, 0)
    assert scored.key_flop == scored.expanded_key_flop == 2 * 2 * 4 * 40
    assert (chosen.key_bytes, scored.key_bytes) == (2 * 144 * 2, 2 * 40 * 2)


def test_a_step_of_a_state_reads_and_writes_it():
    (cost,) = state.costs(STATE, formats(), layers=4, tensor_parallel=2)

    assert cost.sequence_bytes == 4 * 2 * (320 * 2 + 4096 * 4)
    assert (cost.token_flop, cost.launches, cost.arithmetic.computed) == (4 * 9000 / 2, 4, "fp32")
    assert (cost.key_flop, cost.key_bytes) == (0, 0)
    assert list(none.costs(NoMixer(), formats(), layers=4, tensor_parallel=1)) == []


# A token holds query and key, both rotated again, value, and the attended values of its query heads.
@pytest.mark.parametrize(
    ("ways", "elements"),
    [
        (1, 8 * 64 + 2 * 64 + 2 * 32 + (8 * 64 + 2 * 64) + 8 * 32),
        (2, 4 * 64 + 64 + 32 + (4 * 64 + 64) + 4 * 32),
        (4, 2 * 64 + 64 + 32 + (2 * 64 + 64) + 2 * 32),
    ],
)
def test_activations_of_attention(ways, elements):
    assert sum(attention.activation_tensors(ATTENTION, tensor_parallel=ways).values()) == elements


# Compressed query 96, latent and rotary key 144; of each head query and key of 48, value and attended value of 24.
@pytest.mark.parametrize("ways", [1, 4])
def test_activations_of_latent_attention(ways):
    heads = 16 // ways

    assert sum(latent.activation_tensors(LATENT, tensor_parallel=ways).values()) == 96 + 144 + heads * (
        48 + 48 + 24 + 24
    )
    without = sum(latent.activation_tensors(LATENT.replace(query_rank=None), tensor_parallel=ways).values())
    assert without == 144 + heads * (48 + 48 + 24 + 24)


# What the matrices make of a token, before and after the recurrence.
def test_activations_of_a_state_mixer_and_of_none():
    assert sum(state.activation_tensors(STATE, tensor_parallel=1).values()) == 2 * (1024 + 8 + 512)
    assert sum(none.activation_tensors(NoMixer(), tensor_parallel=1).values()) == 0


@pytest.mark.parametrize(
    ("kind", "allowed", "refused", "sentence"),
    [
        ("attention", (1, 2, 4, 8), (3, 16), "must divide the 8 attention heads of m"),
        ("latent", (1, 2, 16), (3, 32), "must divide the 16 attention heads of m"),
        ("state", (1, 2, 8), (3, 16), "must divide the 8 state heads of m"),
        ("none", (1, 3, 7, 64), (), ""),
    ],
)
def test_degrees_that_divide_the_heads_are_allowed(kind, allowed, refused, sentence):
    check = mixers.KINDS[kind].check_sharding
    for ways in allowed:
        check(SPECS[kind], "m", tensor_parallel=ways)
    for ways in refused:
        with pytest.raises(cap.CapacityError, match=f"tensor_parallel {ways} {sentence}$"):
            check(SPECS[kind], "m", tensor_parallel=ways)


# 12 query and 6 KV heads over 4 ranks: a rank would hold a head and a half.
def test_kv_heads_and_ranks_divide_one_way_or_the_other():
    odd = ATTENTION.replace(query_heads=12, kv_heads=6)
    for ways in (1, 2, 3, 6, 12):
        attention.check_sharding(odd, "m", tensor_parallel=ways)
    with pytest.raises(cap.CapacityError, match="tensor_parallel 4 and the 6 KV heads of m: one must divide the other"):
        attention.check_sharding(odd, "m", tensor_parallel=4)


# The reference decoder (capacity/measure) attends to all keys or to the last ones, and nothing else.
def test_what_the_reference_decoder_has():
    spans = {"full": {}, "sliding": {"window": 4}, "chunked": {"window": 4}, "cross": {"source_tokens": 4}}
    ordinary = {span: attention.is_ordinary(ATTENTION.replace(span=span, **rest)) for span, rest in spans.items()}

    assert ordinary == {"full": True, "sliding": True, "chunked": False, "cross": False}
    assert not any(mixers.KINDS[kind].is_ordinary(SPECS[kind]) for kind in ("latent", "state", "none"))


@pytest.mark.parametrize(
    ("mixer", "words"),
    [
        (ATTENTION, "full attention, 8 heads, 2 KV heads of 64"),
        (ATTENTION.replace(span="sliding", window=4096), "sliding attention, 8 heads, 2 KV heads of 64, window 4,096"),
        (LATENT, "latent attention, 16 heads, latent 144"),
        (STATE, "state, mamba2"),
        (NoMixer(), "none"),
    ],
)
def test_a_mixer_in_a_few_words(mixer, words):
    assert mixers.of(mixer).summary(mixer) == words


# A norm over all query and key heads (OLMo-2) has a weight per element, and a bias per element where it has one.
@pytest.mark.parametrize(("bias", "per_element"), [(False, 1), (True, 2)])
def test_a_norm_over_all_heads_has_a_weight_and_perhaps_a_bias_per_element(bias, per_element):
    mixer = ATTENTION.replace(query_key_norm="full", query_key_norm_bias=bias)

    assert counted(mixer)["query_key_norm"][0] == (8 + mixer.kv_heads) * 64 * per_element
