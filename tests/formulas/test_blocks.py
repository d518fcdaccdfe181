"""Blocks of a cache, counted one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from capacity.formulas.blocks import BLOCKS, BlockRule

small = st.integers(0, 40)


def counted(tokens, block):
    """Blocks of so many tokens, by filling them."""
    blocks, room = 0, 0
    for _ in range(tokens):
        blocks, room = (blocks + 1, block - 1) if room == 0 else (blocks, room - 1)
    return blocks


@given(n=st.integers(1, 9), c=small, block=st.integers(1, 9), w=small, u=small, spare=st.integers(0, 3))
def test_windows_equal_filling_blocks_one_by_one(n, c, block, w, u, spare):
    rule = BlockRule(block, window_tokens=w, extra_tokens=u, spare_blocks=spare)

    assert BLOCKS["windowed"](n, c, rule) == sum(counted(min(c, w + u), block) + spare for _ in range(n))
    assert BLOCKS["unified"](n, c, rule) == counted(min(sum(c for _ in range(n)), sum(w for _ in range(n)) + u), block)


@given(n=st.integers(1, 9), c=small, block=st.integers(1, 9), slots=st.integers(0, 9), length=small)
def test_reserved_slots_equal_filling_blocks_one_by_one(n, c, block, slots, length):
    rule = BlockRule(block, slots=slots, slot_tokens=length)

    assert BLOCKS["all"](n, c, BlockRule(block)) == sum(counted(c, block) for _ in range(n))
    assert BLOCKS["preallocated"](n, c, rule) == max(n, slots) * counted(max(c, length), block)


# A prompt of 100 tokens shared by ten sequences of 150 in blocks of 16: six whole blocks once; its last four tokens and
# the rest of each sequence, tokens 97 to 150, in four blocks of their own.
def test_a_shared_prefix_is_held_once_in_whole_blocks():
    rule = BlockRule(16, shared_tokens=100)

    assert BLOCKS["all"](10, 150, rule) == 6 + 10 * 4
    assert BLOCKS["all"](10, 150, BlockRule(16)) == 10 * 10
    assert BLOCKS["all"](10, 50, rule) == 6


@given(
    name=st.sampled_from(sorted(BLOCKS)),
    n=st.integers(1, 9),
    c=small,
    rule=st.builds(BlockRule, st.integers(1, 9), small, small, st.integers(0, 3), small, small, small),
)
def test_no_count_of_blocks_ever_falls(name, n, c, rule):
    at = BLOCKS[name](n, c, rule)

    assert BLOCKS[name](n + 1, c, rule) >= at
    assert BLOCKS[name](n, c + 1, rule) >= at


@pytest.mark.parametrize("name", sorted(BLOCKS))
def test_arrays_equal_their_elements(name):
    rule = BlockRule(4, window_tokens=7, extra_tokens=3, spare_blocks=1, slots=2, slot_tokens=9, shared_tokens=5)
    n, c = np.arange(1, 5)[:, None], np.arange(0, 30)
    found = np.broadcast_to(BLOCKS[name](n, c, rule), (4, 30))

    assert found.tolist() == [[int(BLOCKS[name](i, j, rule)) for j in range(30)] for i in range(1, 5)]
