"""Keys and pairs of a pass against a mask that is filled in one query and one key at a time."""

from __future__ import annotations

import numpy as np
import pytest

from capacity.formulas import attention

NO_WINDOW = 2**40
PASSES = [(1, 0), (1, 7), (1, 8), (1, 9), (5, 0), (5, 3), (5, 8), (8, 8), (9, 16), (20, 0), (20, 5)]  # new, cached


def attended(new, cached, sees):
    """Keys, by position, to which each new query attends."""
    return [[key for key in range(cached + new) if sees(query, key)] for query in range(cached, cached + new)]


def pairs(new, cached, sees):
    return sum(len(keys) for keys in attended(new, cached, sees))


def sliding(window):
    return lambda query, key: query - window < key <= query


def chunked(chunk):
    return lambda query, key: key <= query and key // chunk == query // chunk


@pytest.mark.parametrize(("new", "cached"), PASSES)
@pytest.mark.parametrize("window", [1, 2, 4, 8, 13, NO_WINDOW])
def test_a_causal_pass_computes_the_pairs_of_its_mask(new, cached, window):
    found = attention.causal_pairs(new, cached, window=window)

    assert float(found) == pairs(new, cached, sliding(window))


@pytest.mark.parametrize(("new", "cached"), PASSES)
@pytest.mark.parametrize("window", [1, 2, 4, 8, 13, NO_WINDOW])
def test_the_first_query_reads_the_cached_keys_of_its_mask(new, cached, window):
    first = attended(new, cached, sliding(window))[0]

    assert float(attention.cached_keys_read(cached, window=window)) == sum(key < cached for key in first)


@pytest.mark.parametrize(("new", "cached"), PASSES)
@pytest.mark.parametrize("chunk", [1, 3, 8, 100])
def test_a_chunked_pass_computes_the_pairs_of_its_mask(new, cached, chunk):
    assert float(attention.chunked_pairs(new, cached, chunk=chunk)) == pairs(new, cached, chunked(chunk))


# Llama 4 (transformers, modeling_llama4): a layer with chunks of 8192 lets a token attend to its own chunk, so the last
# one of a chunk attends to 8192 keys and the next one only to itself.
def test_the_last_token_of_a_chunk_attends_to_all_of_it_and_the_next_only_to_itself():
    assert attention.chunked_pairs(1, [8191, 8192, 16383, 16384], chunk=8192).tolist() == [8192, 1, 8192, 1]


@pytest.mark.parametrize(("new", "cached"), PASSES)
def test_a_pass_without_a_mask_lets_every_query_attend_to_everything(new, cached):
    found = attention.free_pairs(new, cached, window=NO_WINDOW)

    assert float(found) == pairs(new, cached, lambda query, key: True)


# Each of 3 queries attends to at most 6, 8 or 9 of the 3 + 5 keys.
def test_a_window_limits_the_keys_of_a_query_without_a_mask():
    assert attention.free_pairs(3, 5, window=[6, 8, 9]).tolist() == [18, 24, 24]


def test_pairs_of_a_prompt_without_a_window_are_half_a_square():
    assert float(attention.causal_pairs(4096, 0, window=NO_WINDOW)) == 4096 * 4097 / 2


@pytest.mark.parametrize(
    "count",
    [
        lambda new, cached, size: attention.causal_pairs(new, cached, window=size),
        lambda new, cached, size: attention.chunked_pairs(new, cached, chunk=size),
        lambda new, cached, size: attention.free_pairs(new, cached, window=size),
        lambda new, cached, size: attention.cached_keys_read(cached, window=size),
    ],
)
def test_counts_of_arrays_are_those_of_their_elements(count):
    many = np.broadcast_to(count([[1], [6]], [3, 17], 5), (2, 2))

    for row, column in np.ndindex(2, 2):
        assert many[row, column] == count([1, 6][row], [3, 17][column], 5)
