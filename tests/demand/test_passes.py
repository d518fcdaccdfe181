"""A pass of new tokens after cached ones: against masks, sums by hand, and passes of one token each."""

from __future__ import annotations

import numpy as np
import pytest

import capacity as cap
from capacity.demand.operators import decoder_operators, stage_operators
from capacity.demand.passes import Pass, local_sequences, micro_batch, work
from capacity.demand.phases import decode_phase, prefill_phase
from capacity.demand.work import joined
from capacity.specs.model import Attention, Dense, Experts, LatentAttention, LayerGroup, StateMixer
from capacity.specs.state_mixer import StateTensor

BF16 = cap.Deployment(weights="bf16")
FULL = Attention(query_heads=4, kv_heads=2, head_size=8)
MIXERS = {
    "full": FULL,
    "sliding": FULL.replace(span="sliding", window=4),
    "chunked": FULL.replace(span="chunked", window=4),
    "latent": LatentAttention(query_heads=4, query_rank=8, kv_rank=8, nope_size=8, rope_size=4, value_size=8),
    "indexed": LatentAttention(
        query_heads=4,
        kv_rank=8,
        nope_size=8,
        rope_size=4,
        value_size=8,
        indexer={"heads": 2, "head_size": 8, "top_k": 5},
    ),
    "state": StateMixer(
        name="s",
        heads=2,
        matrices=({"name": "in", "rows": 32, "columns": 16},),
        state=(StateTensor(name="s", elements=64, kind="recurrent"),),
        update_flop=500.0,
    ),
    "cross": FULL.replace(span="cross", source_tokens=20, source_size=24),
}


@pytest.fixture
def one_layer(make_decoder):
    """A decoder of one layer of 16 with one of the mixers, dense or with experts behind it."""

    def make(name, feed_forward=None):
        forward = feed_forward or Dense(intermediate_size=32)
        group = LayerGroup(indices=(0,), mixer=MIXERS[name], feed_forward=forward)
        return make_decoder(name, 16, 64, [group])

    return make


def asked(sequences, new_tokens, cached_tokens, **options):
    """A pass on the only device of a replica."""
    return Pass(sequences, sequences, new_tokens, cached_tokens, **options)


def through(model, *numbers, deploy=BF16, **options):
    """The work of a pass through the decoder, without the projections of a cross-attention source."""
    return work(stage_operators(model, deploy, "decoder").without_sources, asked(*numbers, **options))


def rows(counted):
    """Every operator of a work in the order of its table, as tuples of name, arithmetic, bytes and FLOP."""
    for block in counted.blocks:
        names = zip(block.operators, block.arithmetic, strict=True)
        for row, (name, computes) in enumerate(names):
            yield name, computes, block.moved_bytes[row], block.flop[row]


def test_a_causal_pass_over_a_prompt_has_the_flop_of_prefill(llama_3_8b):
    mine = through(llama_3_8b, 2, 512, 0)
    theirs = prefill_phase(llama_3_8b, BF16, batch=2, prompt_tokens=512)

    assert mine.flop == theirs.flop
    assert mine.moved_bytes == theirs.moved_bytes


def test_one_query_over_cached_keys_is_a_decode_step(llama_3_8b):
    """All parameters but the table, and 1,023 cached tokens of 131,072 bytes of each sequence."""
    mine = through(llama_3_8b, 4, 1, 1023)
    step = decode_phase(llama_3_8b, BF16, batch=4, context_tokens=1024)

    assert mine.flop == step.flop
    assert mine.moved_bytes == step.moved_bytes == 2 * (8_030_261_248 - 128256 * 4096) + 4 * 1023 * 131_072


def test_a_pass_that_is_not_causal_meets_every_pair(llama_2_7b):
    both, half = (through(llama_2_7b, 1, 100, 0, head_tokens=0, causal=causal).flop for causal in (False, True))

    # 4 L h d FLOP per pair; 100 x 100 pairs against 100 x 101 / 2.
    assert both - half == 4 * 32 * 4096 * (100 * 100 - 100 * 101 / 2)


def test_a_stage_that_asks_for_no_output_token_does_not_read_its_head(llama_2_7b):
    without, with_one = (through(llama_2_7b, 1, 10, 0, head_tokens=count) for count in (0, 1))

    assert with_one.flop - without.flop == 2 * 32000 * 4096
    assert with_one.moved_bytes - without.moved_bytes == 2 * (32000 * 4096 + 4096)  # the head and its norm


# Every query asks every key: is it mine or older, not yet fallen out of the window, and in my chunk where chunked?
@pytest.mark.parametrize("span", ["sliding", "chunked"])
@pytest.mark.parametrize(("queries", "cached"), [(10, 0), (3, 0), (1, 9), (4, 6), (9, 13)])
def test_a_causal_pass_under_a_window_meets_the_pairs_of_a_mask(span, queries, cached, make_decoder):
    window, heads, size = 4, 2, 8
    mixer = Attention(query_heads=heads, kv_heads=heads, head_size=size, span=span, window=window)
    group = LayerGroup(indices=(0,), mixer=mixer, feed_forward=Dense(intermediate_size=16))
    model = make_decoder("windowed", 16, 32, [group])
    positions = range(cached, cached + queries)
    seen = {
        (i, j)
        for i in positions
        for j in range(i + 1)
        if (i - j < window if span == "sliding" else i // window == j // window)
    }
    moved, flop = through(model, 3, queries, cached, head_tokens=0).of_operator("attention")

    assert flop == 3 * len(seen) * 4 * heads * size
    # Keys and values of 2 x 2 x 8 elements of 2 bytes; the first query still sees these of the cached ones.
    read = len([j for i, j in seen if i == cached and j < cached])
    assert moved == 3 * read * 64


# The state is carried whatever the number of tokens: read once, written once, in fp32; its arithmetic is per token.
@pytest.mark.parametrize(("sequences", "tokens"), [(1, 1), (3, 1), (3, 50)])
def test_a_state_is_read_and_written_once_a_pass(one_layer, sequences, tokens):
    moved, flop = through(one_layer("state"), sequences, tokens, 7).of_operator("state")
    matrix = 32 * 16

    assert moved == 2 * matrix + 16 * 2 + sequences * 2 * 64 * 4
    assert flop == sequences * tokens * (2 * matrix + 500)


# An expert is read where one of the tokens of the replica visits it: each misses it with probability 1 - 2 / 8. Three
# matrices of 16 x 24 an expert; a token meets two of them.
@pytest.mark.parametrize(("sequences", "tokens"), [(1, 1), (3, 1), (2, 9)])
def test_experts_are_read_where_a_token_visits_them(one_layer, sequences, tokens):
    model = one_layer("full", Experts(experts=8, experts_per_token=2, intermediate_size=24))
    moved, flop = through(model, sequences, tokens, 0).of_operator("experts")
    one = 3 * 16 * 24

    assert moved == pytest.approx(8 * one * 2 * (1 - (1 - 2 / 8) ** (sequences * tokens)), rel=1e-12)
    assert flop == sequences * tokens * 2 * 2 * one


# However many tokens there are, they may all visit the same experts; over two devices of four each the busiest reads
# at least half of three, rounded up.
@pytest.mark.parametrize(("used", "degree", "least"), [(1, None, 1), (3, None, 3), (3, 2, 2), (4, 2, 2)])
def test_a_pass_reads_no_fewer_experts_than_a_token_visits(one_layer, used, degree, least):
    model = one_layer("full", Experts(experts=8, experts_per_token=used, intermediate_size=24))
    deploy = BF16 if degree is None else BF16.replace(data_parallel=degree, expert_parallel=degree)
    found = work(decoder_operators(model, deploy), asked(64, 1, 100))
    (block,) = [block for block in found.blocks if block.routed]

    assert block.fewest_bytes[block.routed[0].row] == least * 3 * 16 * 24 * 2


SHARED = (
    pytest.param(np.array([1, 2, 7, 64]), 1, 100, id="batches"),
    pytest.param(3, 1, np.array([0, 1, 3, 4, 5, 1000]), id="contexts"),
    pytest.param(np.array([[1], [5]]), 1, np.array([0, 3, 4, 17]), id="batches x contexts"),
    pytest.param(2, np.array([1, 4, 5, 33]), 0, id="prompts"),
    pytest.param(np.array([[1], [5]]), np.array([1, 9]), 6, id="batches x prompts"),
    pytest.param(np.array([1, 2, 3]), np.array([4, 5, 6]), np.array([7, 8, 9]), id="together"),
)


@pytest.mark.parametrize(("sequences", "new", "cached"), SHARED)
@pytest.mark.parametrize("options", [{}, {"causal": False}, {"expanded": True}, {"head_tokens": 0}])
@pytest.mark.parametrize("name", MIXERS)
def test_a_pass_of_arrays_equals_a_loop_over_their_elements(one_layer, name, options, sequences, new, cached):
    """Bit for bit, operator by operator; experts see all sequences of two data-parallel ranks."""
    model = one_layer(name, Experts(experts=8, experts_per_token=3, intermediate_size=24))
    table = decoder_operators(model, BF16)
    numbers = np.broadcast_arrays(sequences, np.multiply(2, sequences), new, cached)
    shape = numbers[0].shape
    many = list(rows(work(table, Pass(sequences, np.multiply(2, sequences), new, cached, **options))))

    for index in np.ndindex(*shape):
        one = rows(work(table, Pass(*[int(number[index]) for number in numbers], **options)))
        for mine, theirs in zip(many, one, strict=True):
            assert mine[:2] == theirs[:2]
            assert [np.broadcast_to(array, shape)[index] for array in mine[2:]] == list(theirs[2:]), mine[0]


def test_the_totals_of_a_work_are_the_sums_of_its_rows(deepseek_v3):
    total = through(deepseek_v3, np.array([1, 8]), 1, 100)
    found = list(rows(total))

    assert total.flop == pytest.approx(sum(row[3] for row in found), rel=1e-14)
    assert total.moved_bytes == pytest.approx(sum(row[2] for row in found), rel=1e-14)
    assert total.launches == sum(cost.launches for cost in stage_operators(deepseek_v3, BF16, "decoder").costs)
    for name in {row[0] for row in found}:
        moved, flop = total.of_operator(name)
        assert moved == pytest.approx(sum(row[2] for row in found if row[0] == name), rel=1e-14)
        assert flop == pytest.approx(sum(row[3] for row in found if row[0] == name), rel=1e-14)


# n tokens in one pass meet the pairs that they meet one after another: causal attention does not care. In one form:
# the absorbed and the expanded form of a latent are each compared with themselves.
@pytest.mark.parametrize("expanded", [False, True])
@pytest.mark.parametrize(("tokens", "cached"), [(1, 0), (23, 0), (4, 4), (9, 13)])
@pytest.mark.parametrize("name", ["full", "sliding", "chunked", "latent", "indexed", "state"])
def test_a_pass_over_a_prompt_has_the_flop_of_its_tokens_one_by_one(one_layer, name, tokens, cached, expanded):
    model = one_layer(name)
    together = through(model, 2, tokens, cached, head_tokens=tokens, expanded=expanded)
    steps = [through(model, 2, 1, cached + before, expanded=expanded) for before in range(tokens)]

    for operator in {row[0] for row in rows(together)}:
        assert together.of_operator(operator)[1] == sum(step.of_operator(operator)[1] for step in steps), operator


@pytest.mark.parametrize("name", ["full", "sliding", "chunked"])
def test_the_pairs_of_prefill_are_those_of_decode_at_every_context(one_layer, name):
    model, tokens = one_layer(name), 21
    prompt = prefill_phase(model, BF16, batch=3, prompt_tokens=tokens).work.of_operator("attention")[1]
    steps = [
        decode_phase(model, BF16, batch=3, context_tokens=context).work.of_operator("attention")[1]
        for context in range(1, tokens + 1)
    ]

    assert prompt == sum(steps)


# A prompt in chunks reads the cache that the chunks before it left, and computes what it computes at once.
@pytest.mark.parametrize("name", ["full", "sliding", "chunked", "latent"])
def test_a_prompt_in_chunks_computes_the_same_and_reads_what_it_left(one_layer, name):
    model, sizes = one_layer(name), [8, 8, 5]
    starts = [sum(sizes[:number]) for number in range(len(sizes))]
    parts = [through(model, 1, size, start, head_tokens=0) for size, start in zip(sizes, starts, strict=True)]
    whole = through(model, 1, sum(sizes), 0, head_tokens=0)
    token = {"latent": (8 + 4) * 2}.get(name, 2 * 2 * 8 * 2)
    reach = {"sliding": [0, 3, 3], "chunked": [0, 0, 0]}.get(name, [0, 8, 16])  # of 4 tokens, one its own

    assert whole.flop == sum(part.flop for part in parts)
    assert [part.of_operator("attention")[0] for part in parts] == [token * keys for keys in reach]


def test_several_works_of_a_pass_add_up(one_layer):
    first, second = through(one_layer("full"), 2, 3, 4), through(one_layer("state"), np.array([1, 2]), 3, 4)
    both = joined([first, second])

    assert both.flop.tolist() == (first.flop + second.flop).tolist()
    assert both.moved_bytes.tolist() == (first.moved_bytes + second.moved_bytes).tolist()
    assert both.launches == first.launches + second.launches


# 65 sequences over 8 data-parallel ranks: one holds 9; over 4 pipeline stages: 17 in one pass.
def test_shares_of_a_batch_are_rounded_up():
    ranks, stages = cap.Deployment(data_parallel=8), cap.Deployment(pipeline_parallel=4)

    assert local_sequences([64, 65, 1], ranks).tolist() == [8, 9, 1]
    assert micro_batch([64, 65, 1], stages).tolist() == [16, 17, 1]
