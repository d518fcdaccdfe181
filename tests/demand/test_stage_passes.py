"""A pass with free queries and keys against prefill and decode of the language path, and against sums by hand."""

from __future__ import annotations

import pytest

from capacity.demand import work
from capacity.demand.passes import stage_pass
from capacity.specs.deployment import Deployment
from capacity.specs.model import Attention, Dense, LayerGroup

BF16 = Deployment(weights="bf16")


def totals(done):
    items = tuple(done)
    return sum(item.flop for item in items), sum(item.moved_bytes for item in items)


def test_a_causal_pass_over_a_prompt_has_the_flop_of_prefill(llama_3_8b):
    mine = stage_pass(llama_3_8b, BF16, "decoder", sequences=2, queries=512, cached_keys=0, head_tokens=1, causal=True)
    theirs = work.prefill_work(llama_3_8b, BF16, batch=2, prompt_tokens=512)

    assert totals(mine)[0] == pytest.approx(totals(theirs)[0])


def test_one_query_over_cached_keys_is_a_decode_step(llama_3_8b):
    mine = stage_pass(llama_3_8b, BF16, "decoder", sequences=4, queries=1, cached_keys=1023, head_tokens=1, causal=True)
    flop, moved = totals(mine)
    step_flop, step_bytes = totals(work.decode_work(llama_3_8b, BF16, batch=4, context_tokens=1024))

    assert flop == pytest.approx(step_flop)
    # The key made in the step is not read from memory: 131,072 bytes a sequence less.
    assert moved == pytest.approx(step_bytes - 4 * 131_072)


def test_a_pass_that_is_not_causal_meets_every_pair(llama_2_7b):
    arguments = {"sequences": 1, "queries": 100, "cached_keys": 0, "head_tokens": 0}
    both = totals(stage_pass(llama_2_7b, BF16, "decoder", causal=False, **arguments))[0]
    half = totals(stage_pass(llama_2_7b, BF16, "decoder", causal=True, **arguments))[0]

    # 4 L h d FLOP a pair; 100 x 100 pairs against 100 x 101 / 2.
    assert both - half == pytest.approx(4 * 32 * 4096 * (100 * 100 - 100 * 101 / 2))


def test_a_stage_that_asks_for_no_output_token_does_not_read_its_head(llama_2_7b):
    arguments = {"sequences": 1, "queries": 10, "cached_keys": 0, "causal": True}
    without = totals(stage_pass(llama_2_7b, BF16, "decoder", head_tokens=0, **arguments))
    with_one = totals(stage_pass(llama_2_7b, BF16, "decoder", head_tokens=1, **arguments))

    assert with_one[0] - without[0] == pytest.approx(2 * 32000 * 4096)
    assert with_one[1] - without[1] == pytest.approx(2 * (32000 * 4096 + 4096))  # the head and its norm


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
    done = stage_pass(
        model, BF16, "decoder", sequences=3, queries=queries, cached_keys=cached, head_tokens=0, causal=True
    )
    attention = [item for item in done if item.term.operator == "attention"]

    assert sum(item.flop for item in attention) == 3 * len(seen) * 4 * heads * size
    # Keys and values of 2 x 2 x 8 elements of 2 bytes; the first query still sees these of the cached ones.
    read = len([j for i, j in seen if i == cached and j < cached])
    assert sum(item.moved_bytes for item in attention) == 3 * read * 64
