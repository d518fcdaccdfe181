"""Speculative decoding against arXiv:2211.17192, the corrected chapter and a simulation."""

import numpy as np
import pytest

from capacity.errors import CapacityError
from capacity.formulas import speculated_answers as a
from capacity.formulas import speculation as s

A100_RIDGE_BATCH = 156.0  # 312 TFLOP/s over 2 TB/s, bf16 weights


def test_expected_tokens_equal_the_sum_of_the_accepted_prefix():
    # Eq. 1 of the paper written out: 1 + a + a^2 ... a^g.
    assert float(s.expected_tokens(0.8, 5)) == pytest.approx(1 + 0.8 + 0.64 + 0.512 + 0.4096 + 0.32768)


def test_expected_tokens_at_the_limits_are_one_and_all():
    assert s.expected_tokens([0.0, 1.0], 4).tolist() == [1.0, 5.0]


# The chapter's 22 ms to 8 ms with five drafted tokens: acceptance by cost of the draft.
@pytest.mark.parametrize(("draft_cost", "needed"), [(0.0, 0.669), (0.02, 0.713), (0.05, 0.769), (0.10, 0.847)])
def test_acceptance_that_the_chapter_needs_for_22_to_8_ms(draft_cost, needed):
    found = float(s.required_acceptance(22 / 8, 5, draft_cost=draft_cost, verify_cost=1))

    assert found == pytest.approx(needed, abs=5e-4)
    assert float(s.speedup(found, 5, draft_cost=draft_cost, verify_cost=1)) == pytest.approx(2.75)


def test_acceptance_is_nan_where_no_acceptance_is_enough_and_zero_where_none_is_needed():
    found = s.required_acceptance([6.1, 1.0], 5, draft_cost=0.0, verify_cost=1.0)

    assert np.isnan(found[0])
    assert found[1] == 0.0


# Five drafted tokens of cost 0.05 lose on this ridge from 89, 56 and 115 (as a survey printed them, rounded); at 60 %
# of the arithmetic from 60 % of that.
@pytest.mark.parametrize(("acceptance", "published"), [(0.8, 89), (0.6, 56), (0.9, 115)])
@pytest.mark.parametrize("attained", [1.0, 0.6])
def test_speculation_loses_from_the_published_batch_on(acceptance, published, attained):
    batch = np.arange(1, 400)
    cost = s.verify_cost(batch, 5, ridge_batch=attained * A100_RIDGE_BATCH)
    gains = s.speedup(acceptance, 5, draft_cost=0.05, verify_cost=cost)

    assert batch[np.argmax(gains < 1)] == pytest.approx(attained * published, abs=1.6)
    assert np.all(gains[batch > attained * published + 2] < 1)


# A step of B sequences takes 2 B FLOP and b / 8 bytes per weight; the A100 reads a byte in the time of 156 FLOP.
@pytest.mark.parametrize(("bits", "batch"), [(16, 156), (8, 78), (4.5, 156 * 4.5 / 16)])
def test_narrower_weights_turn_compute_bound_at_a_smaller_batch(bits, batch):
    told = float(s.ridge_batch(flop_per_s=312e12, bytes_per_s=2e12, weight_bits=bits))

    assert told == pytest.approx(batch)
    assert 2 * told / 312e12 == pytest.approx(bits / 8 / 2e12)


def test_a_draft_that_costs_more_than_it_brings_never_wins():
    assert float(s.speedup(0.1, 5, draft_cost=0.1, verify_cost=1)) < 1


@pytest.mark.parametrize(("acceptance", "tokens"), [(0.8, 7), (0.5, 7), (0.9, 20), (0.7, 1)])
def test_expected_steps_of_a_short_answer_equal_a_simulation(acceptance, tokens):
    rng = np.random.default_rng(0)
    counts = []
    for _ in range(20_000):
        made, steps = 0, 0
        while made < tokens:
            refused = np.flatnonzero(rng.random(5) >= acceptance)
            made += (int(refused[0]) if refused.size else 5) + 1
            steps += 1
        counts.append(steps)

    assert float(a.expected_steps(tokens, acceptance, 5)) == pytest.approx(np.mean(counts), rel=0.01)


def test_seven_action_tokens_gain_less_than_the_long_run():
    # 7 tokens cannot take 7 / 3.69 = 1.9 steps; at certain acceptance they take two.
    steps = float(a.expected_steps(7, 0.8, 5))

    assert steps > 7 / 3.69
    assert float(a.expected_steps(7, 1.0, 5)) == 2.0
    long_run = float(s.speedup(0.8, 5, draft_cost=0.05, verify_cost=1))
    assert float(a.answer_speedup(7, 0.8, 5, draft_cost=0.05, verify_cost=1)) < long_run


def test_a_long_answer_reaches_the_long_run():
    long_run = float(s.speedup(0.8, 5, draft_cost=0.05, verify_cost=1))

    assert float(a.answer_speedup(5000, 0.8, 5, draft_cost=0.05, verify_cost=1)) == pytest.approx(long_run, rel=1e-3)


def test_arrays_give_element_by_element_what_scalars_give():
    acceptance = np.array([0.2, 0.6, 1.0])
    found = a.answer_speedup(11, acceptance, 3, draft_cost=0.1, verify_cost=1.2)
    single = [float(a.answer_speedup(11, float(one), 3, draft_cost=0.1, verify_cost=1.2)) for one in acceptance]

    assert found.tolist() == pytest.approx(single)


def test_nonsense_is_refused():
    with pytest.raises(CapacityError, match="probability"):
        s.expected_tokens(1.1, 5)
    with pytest.raises(CapacityError, match="whole number"):
        s.expected_tokens(0.5, 0)
    with pytest.raises(CapacityError, match="whole number"):
        s.expected_tokens(0.5, 2.5)
    with pytest.raises(CapacityError, match="draft_cost"):
        s.speedup(0.5, 5, draft_cost=-0.1, verify_cost=1)
    with pytest.raises(CapacityError, match="verify_cost"):
        s.speedup(0.5, 5, draft_cost=0.1, verify_cost=0.5)
    with pytest.raises(CapacityError, match="output_tokens"):
        a.expected_steps(0, 0.5, 5)
    with pytest.raises(CapacityError, match="positive"):
        s.verify_cost(0, 5, ridge_batch=156)
    with pytest.raises(CapacityError, match="weight_bits"):
        s.ridge_batch(flop_per_s=1e12, bytes_per_s=1e12, weight_bits=0)


@pytest.mark.parametrize(("tokens", "drafted"), [(2.5, 5), ("7", 5), (7, 1.5), (7, 10**6), (7, "5")])
def test_counts_that_are_not_whole_are_refused(tokens, drafted):
    with pytest.raises(CapacityError, match="must be a whole number"):
        a.answer_speedup(tokens, 1.0, drafted, draft_cost=0.05, verify_cost=1)


def test_the_longest_answer_and_the_longest_draft_are_allowed_and_no_longer_ones():
    assert float(a.expected_steps(1, 0.5, 1024)) == 1.0

    with pytest.raises(CapacityError, match="between 1 and 1,024"):
        a.expected_steps(1, 0.5, 1025)
    with pytest.raises(CapacityError, match="between 1 and 100,000"):
        a.expected_steps(100_001, 0.5, 1)
