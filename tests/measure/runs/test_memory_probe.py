"""The bisection for the largest batch."""

from __future__ import annotations

import pytest

from capacity.measure.runs.memory_probe import largest_batch


@pytest.mark.parametrize("best", [0, 1, 2, 3, 7, 8, 100])
def test_bisection_finds_the_largest_batch(best):
    tried = []

    def fits(n):
        tried.append(n)
        return n <= best

    assert largest_batch(fits) == best
    assert len(tried) < 20


def test_bisection_stops_at_its_limit():
    assert largest_batch(lambda n: True, limit=100) == 100
