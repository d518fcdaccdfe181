"""A cycle against its deadline: schedules, rates, jitter, missing times, and the words of the verdict."""

from __future__ import annotations

import pytest

from capacity.catalog.parts import load_hardware
from capacity.catalog.worlds import load_world_model
from capacity.errors import CapacityError
from capacity.studies.control import control

RTX_4090 = "nvidia-rtx-4090-24gb"
ORIN = "nvidia-jetson-agx-orin-64gb"


def test_four_rates_of_one_decision_have_their_own_names(plan):
    found = plan(schedule="chunked", executed_actions=50)
    latency = found.verdict.latency_s

    assert found.replan_per_s == pytest.approx(1 / latency)
    assert found.action_throughput_per_s == pytest.approx(50 / latency)
    assert found.control_per_s == pytest.approx(50 / (latency + 1.0))
    # What happens as a decision starts waits for it, for 50 actions of 20 ms, and for the next decision.
    assert found.reaction_s == pytest.approx(2 * latency + 1.0)


def test_times_outside_the_model_add_to_the_latency(plan):
    bare = plan()
    full = plan(sensing_s=0.010, preprocessing_s=0.004, network_s=0.013)

    assert full.verdict.latency_s - bare.verdict.latency_s == pytest.approx(0.027)
    assert bare.verdict.margin_s - full.verdict.margin_s == pytest.approx(0.027)


def test_jitter_moves_the_margin_and_the_miss_rate(plan):
    calm, rough = plan(p99_over_p50=1.0), plan(p99_over_p50=2.0)

    assert rough.verdict.late_s == pytest.approx(2 * calm.verdict.late_s)
    assert calm.verdict.miss_rate == 0.0
    assert plan(period_s=0.001, p99_over_p50=1.1).verdict.miss_rate > 0.5


@pytest.mark.parametrize("schedule", ["synchronous", "chunked", "asynchronous"])
def test_executed_actions_follow_from_the_schedule(plan, schedule):
    found = plan("openvla-oft", schedule=schedule)

    assert found.timing.executed_actions == {"synchronous": 1, "chunked": 8, "asynchronous": 4}[schedule]


def test_more_than_one_action_of_a_synchronous_decision_is_refused(plan):
    with pytest.raises(
        CapacityError, match=r"must be 1 under a synchronous schedule.* got 4; chunked and asynchronous"
    ):
        plan("openvla-oft", schedule="synchronous", executed_actions=4)


# 50 actions, 48 of them played before the next decision starts: the queue is empty while that one is made.
def test_a_queue_that_runs_dry_applies_fewer_actions_than_the_controller_asks_for(plan):
    found = plan(schedule="asynchronous", executed_actions=48, launch_mode="graph")
    past = found.delay_steps  # actions of a new chunk whose time is over as it comes

    assert past > 2
    assert found.control_per_s == pytest.approx((50 - past) / (48 * 0.02))


# Where the limit is the median, half of the decisions are late, whatever the jitter.
def test_a_miss_rate_is_printed_in_whole_percents_and_open_at_both_ends(plan, one_line):
    def printed(period_s):
        text = one_line(plan("openvla-7b", p99_over_p50=1.2, period_s=period_s))
        return text.partition("miss rate ")[2].partition(",")[0]

    median = plan("openvla-7b").decision.best_s
    assert printed(median) == "50% of decisions"
    assert printed(2 * median) == "under 1% of decisions"
    assert printed(median / 2) == "over 99% of decisions"


# 50 actions of 100 ms: 25 of them last 2.5 s, and what happens as a decision starts waits for that one and the next.
def test_a_verdict_names_the_schedule_the_limit_and_the_reaction_time(plan, one_line):
    found = plan(part=ORIN, period_s=0.1, sensing_s=0.010, preprocessing_s=0.002, launch_mode="graph")
    said = one_line(found)

    assert said.startswith("met (asynchronous, 25 of 50 actions): p99 of a cycle ")
    assert ", limit 2.500 s, " in said
    assert f"replans every 2.500 s; reaction time {2.5 + found.decision.best_s + 0.012:.3f} s" in said


# An OpenVLA-7B decision reads its 6.7 billion bf16 language weights six times: over 79 ms at 1008 GB/s alone.
def test_a_period_below_the_bound_is_missed_even_at_the_bound(plan):
    assert plan("openvla-7b", period_s=0.075).state == "missed at the bound"
    assert str(plan("openvla-7b", period_s=0.075)).startswith("missed even at the bound (synchronous): ")
    bound = plan("openvla-7b", period_s=0.075).decision.bound_s
    late = plan("openvla-7b", period_s=1.01 * bound)
    assert late.state == "missed"
    assert plan("openvla-7b", period_s=1.01 * bound, launch_mode=None).met
    assert plan("openvla-7b", period_s=1.01 * bound, sensing_s=0.02 * bound).state == "missed at the bound"
    assert not late.missed_at_bound


@pytest.mark.parametrize("missing", ["period_s", "sensing_s", "preprocessing_s", "network_s"])
def test_a_missing_time_is_refused_by_name(plan, missing):
    with pytest.raises(CapacityError, match=f"{missing} is missing"):
        plan(**{missing: None})


def test_all_missing_times_are_named_at_once():
    with pytest.raises(CapacityError, match=r"^period_s, sensing_s, preprocessing_s, network_s are missing; "):
        control(load_world_model("pi0"), load_hardware(RTX_4090))
