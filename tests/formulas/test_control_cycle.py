"""The control cycle against published latencies of robot policies and hand-worked limits."""

import itertools

import numpy as np
import pytest

from capacity.errors import CapacityError
from capacity.formulas import control_cycle as c
from capacity.formulas import schedules as s
from capacity.studies.deadline import Timing, limit_s


def test_one_decision_has_four_rates_under_one_word():
    # OpenVLA-OFT (arXiv:2502.19645): 8 actions in 72.9 ms on an A100, sold as 109.7 Hz, are 13.7 decisions/s.
    assert round(float(c.action_throughput_per_s(0.0729, 8)), 1) == 109.7
    assert round(float(c.replan_per_s(0.0729)), 1) == 13.7
    # A 25 Hz robot that waits for each chunk of 8 applies 8 actions in 72.9 + 320 ms.
    assert float(s.chunked_control_per_s(0.0729, executed_actions=8, period_s=0.04)) == pytest.approx(8 / 0.3929)


# pi0 in 73 ms: 4 steps at 50 Hz, 3 at 30 Hz; 300 ms: 15 steps at 50 Hz.
@pytest.mark.parametrize(("latency_s", "rate", "steps"), [(0.073, 50, 4), (0.073, 30, 3), (0.300, 50, 15)])
def test_delay_in_control_steps(latency_s, rate, steps):
    assert float(s.delay_steps(latency_s, 1 / rate)) == steps


def test_a_delay_of_whole_periods_is_not_rounded_up_by_a_float():
    periods = np.arange(1, 200)

    assert s.delay_steps(periods * 0.1, 0.1).tolist() == periods.tolist()
    assert float(s.delay_steps(0.3 + 1e-6, 0.1)) == 4


def play_queue(delay, made, executed, steps=6000):
    """Play a queue step by step; a decision starts once ``executed`` actions of a chunk were played.

    Whether an action was played at each step, and the steps at which decisions started.
    """
    queue, played, ready_at = made, 0, None
    moved, starts = [], []
    for now in range(steps):
        if ready_at == now:  # a new chunk, computed from the state `delay` steps ago, replaces what is left
            queue, played, ready_at = max(0, made - delay), delay, None
        if ready_at is None and played >= executed:
            ready_at = now + delay
            starts.append(now)
        moved.append(queue > 0)
        if queue > 0:
            queue, played = queue - 1, played + 1
    return moved, starts


@pytest.mark.parametrize("delay", [1, 3, 4, 5, 6, 9])
@pytest.mark.parametrize("executed", [1, 3, 5, 7, 9, 10])
def test_asynchronous_queue_runs_dry_exactly_when_a_simulated_one_does(delay, executed):
    told = s.asynchronous_control_per_s(delay * 0.02, period_s=0.02, chunk_actions=10, executed_actions=executed)

    assert (float(told) == 1 / 0.02) == all(play_queue(delay, 10, executed, steps=400)[0])


@pytest.mark.parametrize(("made", "executed"), [(10, 1), (10, 5), (10, 7), (10, 10), (9, 3), (1, 1)])
def test_the_limit_of_an_asynchronous_cycle_is_the_longest_that_never_runs_dry(made, executed):
    lasting = [delay for delay in range(1, made + 1) if all(play_queue(delay, made, executed, steps=400)[0])]
    timing = Timing(0.02, 0.0, 0.0, 0.0, "asynchronous", made, executed, 99.0, 1.0)

    assert limit_s(timing) == pytest.approx(0.02 * max(lasting, default=0))


@pytest.mark.parametrize(
    ("delay", "made", "executed"),
    [(6, 50, 48), (30, 50, 25), (9, 10, 3), (5, 10, 7), (4, 50, 25), (10, 10, 5), (1, 8, 8), (12, 10, 5)],
)
def test_an_asynchronous_robot_applies_the_actions_that_a_simulated_one_does(delay, made, executed):
    moved, starts = play_queue(delay, made, executed)
    window = slice(starts[5], starts[-1])  # whole rounds, past the first chunk, which was there from the start
    told = s.asynchronous_control_per_s(delay * 0.02, period_s=0.02, chunk_actions=made, executed_actions=executed)

    assert float(told) == pytest.approx(np.mean(moved[window]) / 0.02)
    assert float(told) <= 1 / 0.02


def test_stall_share_and_control_rate_are_two_sides_of_one_cycle():
    stall = s.stall_share(0.3, executed_actions=20, period_s=0.02)

    assert float(stall) == pytest.approx(0.3 / 0.7)
    rate = s.chunked_control_per_s(0.3, executed_actions=20, period_s=0.02)
    assert float(rate) == pytest.approx((1 - float(stall)) / 0.02)


def test_intervals_of_an_asynchronous_robot_are_those_of_a_simulated_one():
    for delay, executed in [(6, 48), (30, 25), (4, 1)]:
        _, starts = play_queue(delay, 50, executed)
        told = s.asynchronous_interval_s(delay * 0.02, executed_actions=executed, period_s=0.02)

        assert float(told) == pytest.approx(0.02 * (starts[-1] - starts[-2]))


# What happens just after a decision has started is in the next one; its action comes when that one ends.
def longest_reaction(starts, latency):
    return max(later + latency - earlier for earlier, later in itertools.pairwise(starts))


def test_reaction_is_the_longest_wait_of_a_simulated_robot():
    period, executed = 0.02, 8
    for latency in (0.013, 0.04, 0.117):
        synchronous, chunked = [0.0], [0.0]
        for _ in range(50):
            synchronous.append(max(synchronous[-1] + latency, synchronous[-1] + period))
            chunked.append(chunked[-1] + latency + executed * period)
        intervals = {
            s.synchronous_interval_s(latency, period_s=period).item(): synchronous,
            s.chunked_interval_s(latency, executed_actions=executed, period_s=period).item(): chunked,
        }
        for interval, starts in intervals.items():
            told = float(c.reaction_s(latency, interval_s=interval))
            assert told == pytest.approx(longest_reaction(starts, latency))
    for delay in (2, 9):  # decisions shorter and longer than the actions between them
        _, starts = play_queue(delay, 50, 5)
        interval = s.asynchronous_interval_s(delay * period, executed_actions=5, period_s=period)
        told = float(c.reaction_s(delay * period, interval_s=interval))
        assert told == pytest.approx(longest_reaction([period * start for start in starts[1:]], delay * period))


def test_cycle_latency_is_the_sum_of_named_parts():
    # pi0 on an RTX 4090 (arXiv:2410.24164): 73 ms on board, 86 ms off board, 13 ms of network.
    total = c.cycle_latency_s(sensing_s=0.0, preprocessing_s=0.0, network_s=0.013, model_s=0.073)

    assert float(total) == pytest.approx(0.086)


# Amdahl, AFIPS 1967: when 95 % of the work takes no time at all, a twentieth is left.
def test_a_cut_leaves_what_it_does_not_touch():
    assert float(c.after_cut_s(20.0, share=0.95, cut=1)) == pytest.approx(1.0)
    assert c.after_cut_s(0.2, share=[0, 0.5, 1], cut=0.5).tolist() == pytest.approx([0.2, 0.15, 0.1])
    assert c.after_cut_s(0.2, share=[0, 1], cut=[1, 0]).tolist() == [0.2, 0.2]


@pytest.mark.parametrize("share", [-0.1, 1.1, [0.5, 2], float("nan")])
def test_a_share_beyond_the_whole_is_refused(share):
    with pytest.raises(CapacityError, match=r"^share lies between 0 and 1"):
        c.after_cut_s(0.2, share=share, cut=0.5)
    with pytest.raises(CapacityError, match=r"^cut lies between 0 and 1"):
        c.after_cut_s(0.2, share=0.5, cut=share)


# At 50 Hz, decisions of 100 ms leave ten actions per second; decisions of 10 ms are in time.
def test_a_synchronous_robot_applies_one_action_per_decision():
    assert s.synchronous_control_per_s([0.1, 0.01], period_s=0.02).tolist() == [10.0, 50.0]


def test_arrays_give_element_by_element_what_scalars_give():
    latency = np.array([0.05, 0.3])
    rates = s.chunked_control_per_s(latency, executed_actions=5, period_s=0.02)

    assert rates.tolist() == [float(s.chunked_control_per_s(t, executed_actions=5, period_s=0.02)) for t in (0.05, 0.3)]


def test_nonsense_is_refused():
    with pytest.raises(CapacityError, match="sensing_s is missing"):
        c.cycle_latency_s(sensing_s=None, preprocessing_s=0, network_s=0, model_s=0.1)
    with pytest.raises(CapacityError, match="network_s must be finite and not negative"):
        c.cycle_latency_s(sensing_s=0, preprocessing_s=0, network_s=-0.1, model_s=0.1)
    with pytest.raises(CapacityError, match="period_s must be finite and positive"):
        s.delay_steps(0.1, -0.02)
    with pytest.raises(CapacityError, match="more than the chunk"):
        s.asynchronous_control_per_s(0.1, period_s=0.02, chunk_actions=8, executed_actions=9)
    with pytest.raises(CapacityError, match="whole number"):
        s.chunked_control_per_s(0.1, executed_actions=0, period_s=0.02)
