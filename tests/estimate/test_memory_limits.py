"""Largest batch and longest context of random memory tables: n fits, n + 1 does not, against counting up."""

from __future__ import annotations

from fractions import Fraction
from math import ceil, floor

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import capacity as cap
from capacity.engines.budget import Budget
from capacity.engines.table import MemoryRow, memory_table_of
from capacity.estimate import memory
from capacity.specs.engine import Pool

ENDLESS = 400  # counting stops here
size = st.integers(0, 12)


def blocks_by_hand(row, n, c):
    """Blocks of a cache row, sequence by sequence."""
    block, window = row.block_tokens, row.window_tokens + row.extra_tokens
    if row.blocks == "all":
        shared = row.shared_tokens // block
        return shared + sum(max(0, ceil(Fraction(c, block)) - shared) for _ in range(n))
    if row.blocks == "windowed":
        return sum(ceil(Fraction(min(c, window), block)) + row.spare_blocks for _ in range(n))
    if row.blocks == "unified":
        return ceil(Fraction(min(n * c, n * row.window_tokens + row.extra_tokens), block))
    return max(n, row.slots) * ceil(Fraction(max(c, row.slot_tokens), block))


def needed_by_hand(rows, n, c, chunk, images):
    """Bytes of some rows: those that are alternatives count as the largest of them."""
    in_flight = max(min(n * c, chunk), n)
    always, largest = 0, {}
    for row in rows:
        need = row.fixed_bytes + n * row.sequence_bytes + n * images * row.image_bytes
        need += in_flight * row.in_flight_bytes + chunk * row.chunk_bytes
        if row.block_bytes:
            need += blocks_by_hand(row, n, c) * row.block_bytes
        if row.alternative:
            largest[row.alternative] = max(largest.get(row.alternative, 0), need)
        else:
            always += need
    return always + sum(largest.values())


def pool_holds(pool, rows, share, n, c, chunk, images):
    rounded = floor if pool.rounding == "floor" else ceil
    if pool.ratios:
        largest = max(pool.ratios)
        bundle = sum(Fraction(row.ratio, largest) * row.block_bytes for row in rows)
        bundles = rounded(share / bundle)
        return all(
            Fraction(needed_by_hand([row], n, c, chunk, images), row.block_bytes)
            <= floor(bundles * Fraction(row.ratio, largest))
            for row in rows
        )
    unit = int(np.gcd.reduce([row.block_bytes for row in rows])) or 1
    return needed_by_hand(rows, n, c, chunk, images) <= rounded(share / unit) * unit


def holds_by_hand(case, n, c):
    rows, pools, budget, chunk, images = case
    loaded = sum(row.fixed_bytes for row in rows if row.loaded)
    free = budget.capacity_bytes - budget.reserved_bytes
    planned = {
        "total": int(budget.capacity_bytes * budget.fraction) - budget.reserved_bytes,
        "free before load": int(free * budget.fraction),
        "free after load": loaded + int((free - loaded) * budget.fraction),
    }[budget.of]
    rest = planned - needed_by_hand([row for row in rows if row.inside and not row.pool], n, c, chunk, images)
    outside = needed_by_hand([row for row in rows if not row.inside], n, c, chunk, images)
    if rest < 0 or (outside > free - planned and any(not row.inside for row in rows)):
        return False
    parts = sum(pool.parts for pool in pools)
    shares = {pool.name: rest * pool.parts // parts for pool in pools}
    held = {pool.name: [row for row in rows if row.pool == pool.name] for pool in pools}
    return all(pool_holds(p, held[p.name], Fraction(shares[p.name]), n, c, chunk, images) for p in pools)


@st.composite
def cache_rows(draw, name, pool="", ratio=0, **plain):
    block = draw(st.integers(1, 5))
    numbers = {"window_tokens": draw(size), "extra_tokens": draw(size), "spare_blocks": draw(st.integers(0, 2))}
    numbers |= {"slots": draw(size), "slot_tokens": draw(size), "shared_tokens": draw(size)}
    kind = draw(st.sampled_from(["all", "windowed", "unified", "preallocated"]))
    own = {
        "all": ["shared_tokens"],
        "windowed": ["window_tokens", "extra_tokens", "spare_blocks"],
        "unified": ["window_tokens", "extra_tokens"],
        "preallocated": ["slots", "slot_tokens"],
    }[kind]
    block_bytes = block * draw(st.integers(1, 6))
    used = {key: numbers[key] for key in own}
    return MemoryRow(
        name, 0, pool=pool, ratio=ratio, blocks=kind, block_bytes=block_bytes, block_tokens=block, **used, **plain
    )


@st.composite
def other_rows(draw, name):
    peak = draw(st.sampled_from(["", "", "a", "b"]))
    inside = draw(st.booleans()) or draw(st.booleans())
    loaded = inside and not peak and draw(st.booleans())
    kinds = (
        ["fixed_bytes"]
        if loaded
        else ["fixed_bytes", "sequence_bytes", "image_bytes", "in_flight_bytes", "chunk_bytes"]
    )
    figures = {key: draw(st.integers(0, 4)) for key in kinds if draw(st.booleans())}
    return MemoryRow(name, 0, alternative=peak, inside=inside, loaded=loaded, **figures)


@st.composite
def cases(draw):
    """Rows, pools, budget, tokens of the largest pass and images of a sequence."""
    rows = [draw(other_rows(f"row {i}")) for i in range(draw(st.integers(0, 4)))]
    pools = []
    for i in range(draw(st.integers(0, 2))):
        rounding, parts = draw(st.sampled_from(["floor", "ceil"])), draw(st.integers(1, 9))
        names = tuple(f"cache {i}{j}" for j in range(draw(st.integers(1, 2))))
        ratios = tuple(draw(st.integers(1, 5)) for _ in names) if draw(st.booleans()) else ()
        rows += [
            draw(cache_rows(name, f"pool {i}", ratio)) for name, ratio in zip(names, ratios or (0, 0), strict=False)
        ]
        pools.append(Pool(name=f"pool {i}", rows=names, parts=parts, rounding=rounding, ratios=ratios))
    rows += [draw(cache_rows(f"cache {i}")) for i in range(draw(st.integers(0, 2)))]
    of = draw(st.sampled_from(["total", "free before load", "free after load"]))
    fraction = draw(st.sampled_from([1.0, 0.9, 0.5]))
    budget = Budget(draw(st.integers(0, 3000)), fraction, of, draw(st.integers(0, 30)))
    return rows or [MemoryRow("none", 0)], tuple(pools), budget, draw(st.integers(1, 30)), draw(st.integers(0, 3))


def counted(fits):
    """Largest number that fits, by counting up until one does not."""
    n = 0
    while n < ENDLESS and fits(n + 1):
        n += 1
    return n


def agree(found, expected):
    return found == expected if expected < ENDLESS else found >= ENDLESS


DEPLOY = cap.Deployment(weights="bf16")
slow = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@slow
@given(cases(), st.integers(1, 40))
def test_the_largest_batch_of_any_table_fits_and_one_more_does_not(case, context):
    rows, pools, budget, chunk, images = case
    table = memory_table_of(rows, chunk_tokens=chunk, images=images, pools=pools)
    found = int(memory.max_batch(table, budget, DEPLOY, context_tokens=context))

    assert agree(found, counted(lambda n: holds_by_hand(case, n, context)))
    if 0 < found < ENDLESS:
        assert bool(memory.fits(table, budget, DEPLOY, batch=found, context_tokens=context))
        assert not bool(memory.fits(table, budget, DEPLOY, batch=found + 1, context_tokens=context))


@slow
@given(cases(), st.integers(1, 9))
def test_the_longest_context_of_any_table_fits_and_one_more_token_does_not(case, batch):
    rows, pools, budget, chunk, images = case
    table = memory_table_of(rows, chunk_tokens=chunk, images=images, pools=pools)
    found = int(memory.max_context(table, budget, DEPLOY, batch=batch, positions=None)[0])

    assert agree(found, counted(lambda c: holds_by_hand(case, batch, c)))


@slow
@given(cases())
def test_limits_of_arrays_equal_those_of_their_elements(case):
    rows, pools, budget, chunk, images = case
    table = memory_table_of(rows, chunk_tokens=chunk, images=images, pools=pools)
    numbers = [1, 2, 7, 40]
    batches = memory.max_batch(table, budget, DEPLOY, context_tokens=np.array(numbers))
    contexts = memory.max_context(table, budget, DEPLOY, batch=np.array(numbers), positions=None)[0]

    assert batches.tolist() == [int(memory.max_batch(table, budget, DEPLOY, context_tokens=n)) for n in numbers]
    assert contexts.tolist() == [
        int(memory.max_context(table, budget, DEPLOY, batch=n, positions=None)[0]) for n in numbers
    ]


# The search goes up to 2^31 sequences of 2^31 tokens, whose bytes are beyond 64 bits; it must not see them wrap round.
def test_a_search_is_not_misled_by_numbers_beyond_64_bits():
    row = MemoryRow("cache", 0, pool="tokens", blocks="all", block_bytes=2**40)
    table = memory_table_of([row], chunk_tokens=1, pools=(Pool(name="tokens", rows=("cache",)),))
    budget = Budget(10 * 2**40)

    assert int(memory.max_batch(table, budget, DEPLOY, context_tokens=2)) == 5
    assert int(memory.max_context(table, budget, DEPLOY, batch=3, positions=None)[0]) == 3
    assert int(memory.max_batch(table, budget, DEPLOY, context_tokens=11)) == 0
