"""Expected distinct experts against all choices written out, and against random draws."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from capacity.formulas.experts import distinct_experts


# Four experts, two per token, two tokens: all 6 x 6 choices written out.
def test_distinct_experts_are_the_mean_over_all_choices():
    choices = list(itertools.combinations(range(4), 2))
    visited = [len({*first, *second}) for first in choices for second in choices]

    assert float(distinct_experts(4, 2, 2)) == pytest.approx(np.mean(visited), rel=1e-12)


@pytest.mark.parametrize(("experts", "used", "tokens"), [(8, 2, 3), (64, 6, 10), (256, 8, 64)])
def test_distinct_experts_are_those_of_tokens_that_draw_uniformly(experts, used, tokens):
    rng = np.random.default_rng(0)
    draws = rng.random((1000, tokens, experts)).argpartition(used, axis=2)[:, :, :used]
    visited = [len(np.unique(draw)) for draw in draws]

    assert float(distinct_experts(experts, used, tokens)) == pytest.approx(np.mean(visited), rel=0.01)


def test_one_token_visits_the_experts_that_it_uses():
    assert float(distinct_experts(128, 8, 1)) == pytest.approx(8)


def test_a_token_that_uses_all_experts_visits_all_of_them():
    assert distinct_experts(4, 4, [1, 5]).tolist() == [4, 4]


def test_many_tokens_visit_every_expert_and_none_visit_none():
    assert distinct_experts(8, 1, [0, 10_000]).tolist() == [0, 8]


def test_counts_of_arrays_are_those_of_their_elements():
    many = distinct_experts(64, 6, [[1, 2], [3, 40]])

    assert many[1, 1] == distinct_experts(64, 6, 40)
    assert many.shape == (2, 2)
