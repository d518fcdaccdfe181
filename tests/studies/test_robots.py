"""Robots per device: one after another, and in batches of synchronised and unsynchronised requests."""

from __future__ import annotations

import pytest

import capacity as cap
from capacity.catalog.worlds import load_world_model

RTX_4090 = "nvidia-rtx-4090-24gb"
ORIN = "nvidia-jetson-agx-orin-64gb"
TIMES_OF_A_ROBOT = {"period_s": 0.5, "sensing_s": 0.0, "preprocessing_s": 0.0, "network_s": 0.0, "p99_over_p50": 1.0}


def test_robots_without_batching_do_not_depend_on_how_many_share_a_batch(plan):
    settings = {"part": "nvidia-h100-sxm5-80gb", "period_s": 1.0, "launch_mode": "graph"}
    one, eight = (plan("openvla-7b", robots=robots, **settings) for robots in (1, 8))
    alone = one.decision.best_s

    assert eight.decision.best_s > alone
    assert one.robots.in_turns == eight.robots.in_turns
    assert one.robots.in_turns * alone <= 1.0 < (one.robots.in_turns + 1) * alone


def test_robots_in_a_batch_may_have_to_wait_for_the_batch_before_theirs(plan):
    settings = {"part": "nvidia-h100-sxm5-80gb", "schedule": "asynchronous", "executed_actions": 4, "formats": ()}
    found = plan("openvla-oft", period_s=0.05, **settings)
    most, limit = found.robots.batched_at_any_time, 4 * 0.05  # eight actions, four of them left as a decision starts
    within, beyond = (
        plan("openvla-oft", period_s=0.05, robots=robots, **settings).decision.best_s for robots in (most, 2 * most)
    )

    assert most > 1
    assert 2 * within <= limit < 2 * beyond


@pytest.mark.parametrize(
    ("model", "part", "period_s", "sensing_s"),
    [("pi0", ORIN, 0.1, 0.01), ("openvla-oft", RTX_4090, 0.05, 0.0), ("openvla-7b", RTX_4090, 0.2, 0.02)],
)
def test_robots_that_ask_together_are_as_many_as_a_plan_for_them_meets(
    plan, one_line, model, part, period_s, sensing_s
):
    settings = {"part": part, "period_s": period_s, "sensing_s": sensing_s, "launch_mode": "graph", "formats": ()}
    most = plan(model, **settings).robots.batched_together
    met = [plan(model, robots=robots, **settings).met for robots in range(1, most + 2)]

    assert met == [True] * most + [False]
    assert f"with batching, synchronised requests (as with --robots) {most}" in one_line(plan(model, **settings))


def test_a_part_that_misses_the_period_of_one_robot_serves_none(plan):
    late = plan("openvla-oft", schedule="asynchronous", executed_actions=7, launch_mode="graph", period_s=0.02)
    full = plan(taken_bytes=20 * 2**30)

    assert not late.met
    for found in (late, full):
        assert (found.robots.in_turns, found.robots.batched_at_any_time, found.robots.batched_together) == (0, 0, 0)


# 2^24 robots of a million text tokens hold 2^24 x 2^20 x 524,288 bytes of cache, 2^63: no such number wraps around.
def test_robots_beyond_64_bits_of_memory_are_refused():
    world = load_world_model("openvla-7b").replace(text_tokens=2**20)

    with pytest.raises(cap.CapacityError, match=r"more than 2\^62 bytes"):
        cap.control(world, cap.load_hardware("nvidia-h100-sxm5-80gb"), **TIMES_OF_A_ROBOT, robots=2**24)


# Two ranks each serve one robot after another, so twice as many; a batch is cut in two halves, and 64 robots is the
# largest batch that is tried.
def test_two_data_parallel_ranks_serve_twice_as_many_robots():
    world, part = load_world_model("openvla-7b"), cap.load_hardware("nvidia-h100-sxm5-80gb")
    one, two = (
        cap.control(world, part, cap.Deployment(data_parallel=ranks), **TIMES_OF_A_ROBOT, bound_only=True).robots
        for ranks in (1, 2)
    )

    assert two.in_turns == 2 * one.in_turns
    assert two.batched_at_any_time == min(64, 2 * one.batched_at_any_time)
