"""Closed forms of the limits against the plain search that they replace, and the chapter's batch sizes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from capacity.formulas import limits


# The chapter, corrected: sequences of 2048 tokens of a 32-layer, 128-wide 16-bit model in 62 GB, by KV heads.
@pytest.mark.parametrize(("kv_heads", "batch"), [(32, 57), (8, 230), (4, 461), (1, 1847)])
def test_batch_in_62_gb_equals_the_corrected_chapter(kv_heads, batch):
    found = limits.max_rank_batch(
        free_bytes=62_000_000_000,
        sequence_bytes=2 * 2048 * 32 * kv_heads * 128 * 2,
        token_activation_bytes=0,
        sequence_activation_bytes=0,
        tokens=2048,
        chunk_tokens=8192,
    )
    assert int(found) == batch


sizes = st.integers(0, 60)


@settings(deadline=None)
@given(free=st.integers(-100, 5000), c=sizes, b=st.integers(0, 9), a=sizes, t=st.integers(1, 40), k=st.integers(1, 60))
def test_max_batch_equals_counting_up(free, c, b, a, t, k):
    def needed(n):
        return n * (c + b) + a * max(min(n * t, k), n)

    n = 0
    while n < 6000 and needed(n + 1) <= free:
        n += 1
    found = int(
        limits.max_rank_batch(
            free_bytes=free,
            sequence_bytes=c,
            token_activation_bytes=a,
            sequence_activation_bytes=b,
            tokens=t,
            chunk_tokens=k,
        )
    )
    assert found == n if n < 6000 else found >= 6000


@settings(deadline=None)
@given(
    free=st.integers(-100, 9000),
    n=st.integers(1, 4),
    rows=st.lists(st.tuples(st.integers(1, 3), st.integers(1, 9), st.integers(0, 50)), min_size=1, max_size=4),
    block=st.integers(1, 16),
    constant=st.integers(0, 40),
    a=st.integers(0, 9),
    k=st.integers(1, 60),
)
def test_max_context_equals_counting_up(free, n, rows, block, constant, a, k):
    def needed(t):
        cache = 0
        for layers, size, window in rows:
            blocks = -(-t // block)
            blocks = min(blocks, -(-window // block)) if window else blocks
            cache += layers * size * blocks * block
        return n * (cache + constant) + a * max(min(n * t, k), n)

    fitting = [t for t in range(1, 12_000) if needed(t) <= free] if needed(1) <= free else []
    found = int(
        limits.max_tokens(
            free_bytes=free,
            rank_batch=n,
            layers=[row[0] for row in rows],
            token_bytes=[row[1] for row in rows],
            windows=[row[2] for row in rows],
            block_tokens=block,
            constant_bytes=constant,
            token_activation_bytes=a,
            chunk_tokens=k,
        )
    )
    if fitting and fitting[-1] == 11_999:
        assert found >= 11_999
    else:
        assert found == (fitting[-1] if fitting else 0)


def test_limits_broadcast_and_equal_their_scalars():
    frees = np.array([10_000, 100_000])
    many = limits.max_rank_batch(
        free_bytes=frees[:, None],
        sequence_bytes=np.array([100, 333]),
        token_activation_bytes=3,
        sequence_activation_bytes=2,
        tokens=8,
        chunk_tokens=64,
    )
    assert many.shape == (2, 2)
    one = limits.max_rank_batch(
        free_bytes=100_000,
        sequence_bytes=333,
        token_activation_bytes=3,
        sequence_activation_bytes=2,
        tokens=8,
        chunk_tokens=64,
    )
    assert many[1, 1] == one


# 10 sequences of 333 + 2 bytes and 3 bytes for each of 8 tokens take 3590 bytes, 27 take 9693; a chunk is never full.
def test_limits_of_arrays_are_whole_numbers():
    found = limits.max_rank_batch(
        free_bytes=np.array([3589, 3590, 3948, 9693]),
        sequence_bytes=333,
        token_activation_bytes=3,
        sequence_activation_bytes=2,
        tokens=8,
        chunk_tokens=2**20,
    )

    assert found.dtype == np.int64
    assert found.tolist() == [9, 10, 10, 27]


# A chunk of 2^31 tokens of 2^33 bytes each is in no memory; prompts of 4 tokens are, one for each 4 x 2^33 bytes.
def test_a_chunk_beyond_64_bits_leaves_whole_prompts():
    costs = {"free_bytes": 10 * 2**33, "token_activation_bytes": 2**33, "chunk_tokens": 2**31}
    batch = limits.max_rank_batch(sequence_bytes=0, sequence_activation_bytes=0, tokens=4, **costs)
    tokens = limits.max_tokens(
        rank_batch=np.array([2]), layers=[1], token_bytes=[0], windows=[0], block_tokens=1, constant_bytes=0, **costs
    )

    assert int(batch) == 2
    assert tokens.tolist() == [5]


def test_a_window_beyond_64_bits_is_never_full():
    found = limits.max_tokens(
        free_bytes=10 * 2**34,
        rank_batch=1,
        layers=[4],
        token_bytes=[2**32],
        windows=[2**31],  # full, it would hold 2^65 bytes
        block_tokens=1,
        constant_bytes=0,
        token_activation_bytes=0,
        chunk_tokens=1,
    )
    assert int(found) == 10


def test_a_batch_without_activations_has_the_shape_of_all_its_numbers():
    fit = limits.max_rank_batch(
        free_bytes=[[100], [59]],
        sequence_bytes=10,
        token_activation_bytes=0,
        sequence_activation_bytes=0,
        tokens=[1, 2, 3],
        chunk_tokens=8,
    )

    assert fit.tolist() == [[10, 10, 10], [5, 5, 5]]
