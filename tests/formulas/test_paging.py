"""Cache policies against logs of vLLM, the chapter, and caches filled token by token."""

from __future__ import annotations

import numpy as np
import pytest

from capacity.errors import CapacityError
from capacity.formulas import paging


# vLLM's log has blocks of 16 tokens, and how many requests of the longest length they hold: vllm-project/vllm#12569
# (1381 blocks, 2048 tokens, 10.79x) and #13596 (127,626 blocks, 2048 tokens, 997.08x).
@pytest.mark.parametrize(("blocks", "concurrency"), [(1381, 10.79), (127_626, 997.08)])
def test_blocks_hold_the_requests_that_vllm_logs(blocks, concurrency):
    held = paging.contiguous_tokens([2048], longest_tokens=2048)
    token_bytes = 131_072  # of any model; here of 32 layers, 8 heads of 128, 16 bit

    fitting = paging.requests_that_fit(blocks * 16 * token_bytes, token_bytes=token_bytes, held_tokens=held, requests=1)
    assert fitting == int(concurrency)


# The chapter: 62 GB of caches of Llama-2-7B, 524,288 B per token; 62e9 / (524288 x 2048) = 57.7, and with the 805.3
# tokens that a request of the sample holds on average, 146.8.
def test_paged_cache_reserves_what_is_used_and_contiguous_what_could_be():
    lengths = [100, 300, 2000]
    contiguous = paging.contiguous_tokens(lengths, longest_tokens=2048)
    paged = paging.paged_tokens(lengths, block_tokens=16)

    assert (contiguous, paged) == (3 * 2048, 112 + 304 + 2000)
    fit = [
        paging.requests_that_fit(62e9, token_bytes=524_288, held_tokens=held, requests=3)
        for held in (contiguous, paged)
    ]
    assert fit == [57, 146]


def blocks_of(length, block):
    """Blocks of a request that grows by one token at a time and takes a block when the last one is full."""
    blocks = 0
    for token in range(length):
        if token % block == 0:
            blocks += 1
    return blocks


@pytest.mark.parametrize("block", [1, 3, 16])
def test_a_growing_request_holds_the_blocks_that_it_was_given(block):
    for length in range(1, 50):
        found = paging.paged_tokens([length, 7], block_tokens=block)
        assert found == (blocks_of(length, block) + blocks_of(7, block)) * block


def test_a_full_block_is_not_followed_by_an_empty_one():
    assert paging.paged_tokens([16, 17], block_tokens=16) == 16 + 32


def held_of(context, window, sinks):
    """Tokens still held once ``context`` have come: the first few for good, of the rest the last."""
    held = []
    for token in range(context):
        held.append(token)
        if len(held) > sinks + window:
            held.pop(sinks)
    return len(held)


# Xiao et al., arXiv:2309.17453: 4 sinks and 1020 recent tokens make a cache of 1024.
@pytest.mark.parametrize(("window", "sinks"), [(1020, 4), (5, 0), (1, 1)])
def test_a_window_with_sinks_holds_what_a_stream_leaves_in_it(window, sinks):
    contexts = [1, 2, 5, 6, 1023, 1024, 1025, 4000]
    found = paging.window_tokens(contexts, window=window, sinks=sinks)

    assert found.tolist() == [held_of(context, window, sinks) for context in contexts]


def test_windows_of_arrays_are_those_of_their_elements():
    many = paging.window_tokens([[500], [5000]], window=np.array([64, 1020]), sinks=[0, 4])

    assert many.tolist() == [[64, 500], [64, 1024]]
    assert many[1, 1] == paging.window_tokens(5000, window=1020, sinks=4)


def test_a_longest_request_just_fits_its_room():
    assert paging.contiguous_tokens([1, 2048], longest_tokens=2048) == 4096


def test_no_memory_holds_no_request():
    for free in (0, -1e9):
        assert paging.requests_that_fit(free, token_bytes=1, held_tokens=1, requests=1) == 0


def test_a_cache_that_is_filled_to_the_byte_still_fits():
    assert paging.requests_that_fit(3000.0, token_bytes=10, held_tokens=200, requests=2) == 3
    assert paging.requests_that_fit(2999.0, token_bytes=10, held_tokens=200, requests=2) == 2


def test_nonsense_is_refused():
    with pytest.raises(CapacityError, match="a request of 4096 tokens does not fit the 2048 reserved"):
        paging.contiguous_tokens([1, 4096], longest_tokens=2048)
    for sinks in (-1, 1.5):
        with pytest.raises(CapacityError, match="sinks must be whole and not negative"):
            paging.window_tokens(10, window=4, sinks=sinks)
    with pytest.raises(CapacityError, match="window must be a whole number of at least 1"):
        paging.window_tokens(10, window=0, sinks=0)
    with pytest.raises(CapacityError, match="block_tokens must be a whole number of at least 1"):
        paging.paged_tokens([10], block_tokens=0)
    with pytest.raises(CapacityError, match="lengths_tokens must be a whole number of at least 1"):
        paging.paged_tokens([10, 0], block_tokens=16)
    for amounts in ({"token_bytes": 0, "held_tokens": 1}, {"token_bytes": 1, "held_tokens": 0}):
        with pytest.raises(CapacityError, match="token_bytes and held_tokens must be positive"):
            paging.requests_that_fit(1e9, **amounts, requests=1)
    with pytest.raises(CapacityError, match="requests must be a whole number of at least 1"):
        paging.requests_that_fit(1e9, token_bytes=1, held_tokens=1, requests=0)
