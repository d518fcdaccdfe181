"""The control study: periods met and missed, effects as differences of cases, and nonsense refused."""

from __future__ import annotations

import json

import pytest

import capacity as cap
from capacity.catalog.parts import load_hardware
from capacity.catalog.worlds import load_world_model, world_model_ids
from capacity.demand.decisions import decision_phases
from capacity.errors import CapacityError
from capacity.estimate.case import prepare
from capacity.estimate.decision import decide
from capacity.presentation import terminal
from capacity.specs.deployment import Deployment
from capacity.studies.control import control
from capacity.studies.control_case import whole_bytes
from capacity.studies.what_if import Speculation

NO_OVERHEAD = {"sensing_s": 0.0, "preprocessing_s": 0.0, "network_s": 0.0, "p99_over_p50": 1.0}
BF16 = Deployment(weights="bf16")
RTX_4090 = "nvidia-rtx-4090-24gb"
ORIN = "nvidia-jetson-agx-orin-64gb"


def plan(model="pi0", part=RTX_4090, **options):
    settings = NO_OVERHEAD | {"period_s": 0.02, "launch_mode": "tuned"} | options
    mode, deploy = settings.pop("launch_mode"), settings.pop("deploy", Deployment())
    deploy = deploy if mode is None else deploy.replace(launch_mode=mode)
    world = load_world_model(model) if isinstance(model, str) else model
    return control(world, load_hardware(part), deploy, bound_only=mode is None, **settings)


def test_pi0_at_50_hz_is_met_by_chunks_and_not_by_waiting():
    assert plan(schedule="asynchronous", executed_actions=25).met
    assert not plan(schedule="chunked").met


def test_four_rates_of_one_decision_have_their_own_names():
    found = plan(schedule="chunked", executed_actions=50)
    latency = found.verdict.latency_s

    assert found.replan_per_s == pytest.approx(1 / latency)
    assert found.action_throughput_per_s == pytest.approx(50 / latency)
    assert found.control_per_s == pytest.approx(50 / (latency + 1.0))
    # What happens as a decision starts waits for it, for 50 actions of 20 ms, and for the next decision.
    assert found.reaction_s == pytest.approx(2 * latency + 1.0)


def test_times_outside_the_model_add_to_the_latency():
    bare = plan()
    full = plan(sensing_s=0.010, preprocessing_s=0.004, network_s=0.013)

    assert full.verdict.latency_s - bare.verdict.latency_s == pytest.approx(0.027)
    assert bare.verdict.margin_s - full.verdict.margin_s == pytest.approx(0.027)


def test_jitter_moves_the_margin_and_the_miss_rate():
    calm, rough = plan(p99_over_p50=1.0), plan(p99_over_p50=2.0)

    assert rough.verdict.late_s == pytest.approx(2 * calm.verdict.late_s)
    assert calm.verdict.miss_rate == 0.0
    assert plan(period_s=0.001, p99_over_p50=1.1).verdict.miss_rate > 0.5


def test_each_change_is_the_difference_of_two_computed_cases():
    found = plan("example-robot", period_s=0.02, parts=[load_hardware("nvidia-h100-sxm5-80gb")])
    change = next(item for item in found.changes if item.kind == "part")
    other = plan("example-robot", part="nvidia-h100-sxm5-80gb", period_s=0.02)

    assert change.latency_s == pytest.approx(other.verdict.latency_s)
    assert change.saved_s == pytest.approx(found.verdict.latency_s - other.verdict.latency_s)
    narrow = next(item for item in found.changes if item.what == "weights and activations in int8")
    int8 = plan("example-robot", period_s=0.02, deploy=Deployment(weights="int8", activations="int8"))
    assert narrow.latency_s == pytest.approx(int8.verdict.latency_s)


def test_cheapest_change_is_a_setting_before_a_format_before_a_part():
    parts = [load_hardware("nvidia-h100-sxm5-80gb")]
    waiting = plan(schedule="chunked", parts=parts)

    assert waiting.cheapest.kind == "schedule"
    base = plan("example-robot", period_s=10.0).verdict.latency_s
    cheap = plan("example-robot", period_s=0.95 * base, parts=parts)
    assert not cheap.met
    assert cheap.cheapest.kind == "format"
    assert cheap.cheapest.latency_s <= 0.95 * base


def test_a_period_that_is_met_needs_no_change():
    assert plan().cheapest is None


def test_speculation_with_a_perfect_free_draft_divides_the_passes():
    found = plan("example-robot", period_s=0.02, draft=Speculation(tokens=5, acceptance=1.0, draft_cost=0.0))
    change = next(item for item in found.changes if item.kind == "speculation")
    decode = found.decision.phase("decode")

    # 19 steps become 4 verifications of 6 tokens: at most 15 of 19 parts of decode are saved.
    assert 0.6 * decode.value_s < change.saved_s <= 15 / 19 * decode.value_s * 1.001


def test_a_longer_chunk_of_a_parallel_head_can_meet_a_short_period():
    found = plan("openvla-oft", period_s=0.02, schedule="chunked", chunks=[25], formats=())
    change = next(item for item in found.changes if item.kind == "chunk")

    assert not found.met
    assert change.met
    assert found.verdict.latency_s < change.latency_s < 1.5 * found.verdict.latency_s  # nearly flat in the chunk


def test_overlap_of_encode_and_decode_is_no_faster_than_either_resource():
    found = plan()
    busy = [sum(getattr(phase, side) for phase in found.decision.phases) for side in ("memory_s", "compute_s")]

    assert found.overlapped_interval_s == pytest.approx(max(busy))
    assert found.overlapped_interval_s < found.decision.bound_s


def test_memory_already_taken_can_make_the_answer_no():
    found = plan(taken_bytes=20 * 2**30)

    assert not found.verdict.fits
    assert not found.met
    assert found.binds == "memory"


def test_a_power_mode_without_a_source_says_so():
    found = plan(part=ORIN, power_mode="30W")

    assert found.decision == plan(part=ORIN).decision
    assert (found.power_mode.name, found.power_mode.stated) == ("30W", ())
    assert "power mode 30W: no source states how it slows the part" in one_line(found)
    assert plan(part=ORIN).power_mode is None
    with pytest.raises(CapacityError, match="power mode"):
        plan(part=ORIN, power_mode="31W")


# NVIDIA's data sheet of the Jetson Orin Nano: 68 GB/s, and 102 GB/s in the mode sold as Super.
def test_a_power_mode_with_a_source_says_what_it_changes():
    plain, fast = (
        plan("pi0", part="nvidia-jetson-orin-nano-8gb", launch_mode=None, power_mode=mode)
        for mode in (None, "25W Super")
    )

    slow_s, fast_s = (sum(phase.memory_s for phase in found.decision.phases) for found in (plain, fast))
    assert slow_s / fast_s == pytest.approx(102 / 68, rel=0.01)
    assert fast.power_mode.stated[0] == "bytes_per_s"
    assert "as the vendor states" in one_line(fast)


def test_robots_without_batching_do_not_depend_on_how_many_share_a_batch():
    settings = {"part": "nvidia-h100-sxm5-80gb", "period_s": 1.0, "launch_mode": "graph"}
    one, eight = (plan("openvla-7b", robots=robots, **settings) for robots in (1, 8))
    alone = one.decision.best_s

    assert eight.decision.best_s > alone
    assert one.robots.in_turns == eight.robots.in_turns
    assert one.robots.in_turns * alone <= 1.0 < (one.robots.in_turns + 1) * alone


def test_robots_in_a_batch_may_have_to_wait_for_the_batch_before_theirs():
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
def test_robots_that_ask_together_are_as_many_as_a_plan_for_them_meets(model, part, period_s, sensing_s):
    settings = {"part": part, "period_s": period_s, "sensing_s": sensing_s, "launch_mode": "graph", "formats": ()}
    most = plan(model, **settings).robots.batched_together
    met = [plan(model, robots=robots, **settings).met for robots in range(1, most + 2)]

    assert met == [True] * most + [False]
    assert f"with batching, synchronised requests (as with --robots) {most}" in one_line(plan(model, **settings))


def test_a_part_that_misses_the_period_of_one_robot_serves_none():
    late = plan("openvla-oft", schedule="asynchronous", executed_actions=7, launch_mode="graph", period_s=0.02)
    full = plan(taken_bytes=20 * 2**30)

    assert not late.met
    for found in (late, full):
        assert (found.robots.in_turns, found.robots.batched_at_any_time, found.robots.batched_together) == (0, 0, 0)


@pytest.mark.parametrize("schedule", ["synchronous", "chunked", "asynchronous"])
def test_executed_actions_follow_from_the_schedule(schedule):
    found = plan("openvla-oft", schedule=schedule)

    assert found.timing.executed_actions == {"synchronous": 1, "chunked": 8, "asynchronous": 4}[schedule]


def test_more_than_one_action_of_a_synchronous_decision_is_refused():
    with pytest.raises(
        CapacityError, match=r"must be 1 under a synchronous schedule.* got 4; chunked and asynchronous"
    ):
        plan("openvla-oft", schedule="synchronous", executed_actions=4)


# 50 actions, 48 of them played before the next decision starts: the queue is empty while that one is made.
def test_a_queue_that_runs_dry_applies_fewer_actions_than_the_controller_asks_for():
    found = plan(schedule="asynchronous", executed_actions=48, launch_mode="graph")
    past = found.delay_steps  # actions of a new chunk whose time is over as it comes

    assert past > 2
    assert found.control_per_s == pytest.approx((50 - past) / (48 * 0.02))


def test_a_change_that_loses_says_what_it_costs():
    draft = Speculation(tokens=5, acceptance=0.0, draft_cost=0.05)
    found = plan("openvla-7b", draft=draft, formats=())
    change = next(item for item in found.changes if item.kind == "speculation")

    assert change.saved_s < 0
    assert "speculation, 5 tokens at acceptance 0 -" in one_line(found)


def test_a_part_that_cannot_answer_is_refused_beside_those_that_can():
    parts = [load_hardware(name) for name in ("amd-epyc-9654-socket", "nvidia-h100-sxm5-80gb")]
    found = plan("openvla-7b", parts=parts, formats=())

    assert [item.what for item in found.changes if item.kind == "part"] == ["NVIDIA H100 SXM5 80GB"]
    assert [item.what for item in found.not_evaluated] == [parts[0].name]
    assert "no peak is recorded" in found.not_evaluated[0].reason
    assert "Changes without an answer" in str(found)


@pytest.mark.parametrize("part", [RTX_4090, ORIN])
def test_a_band_begins_at_the_bound_or_above(part):
    hardware = load_hardware(part)
    for name in world_model_ids():
        world = load_world_model(name)
        for mode in ("eager", "compiled", "graph", "tuned"):
            deploy = BF16.replace(launch_mode=mode)
            decision = decide(prepare(world, hardware, deploy), decision_phases(world, deploy, batch=1))
            assert decision.bound_s <= decision.low_s <= decision.value_s <= decision.high_s, (name, mode)


# The smallest keeps its weights in the last-level cache, others are bound by memory, by arithmetic, or by both.
@pytest.mark.parametrize("name", ["dreamerv3-1m", "openvla-7b", "pi0", "mineworld-300m"])
def test_decisions_side_by_side_are_no_slower_than_one_after_the_other(name):
    found = plan(name, launch_mode=None, formats=())

    assert 0 < found.overlapped_interval_s <= found.decision.bound_s * (1 + 1e-12)


def test_defaults_are_echoed_as_assumptions():
    found = control(
        load_world_model("pi0"),
        load_hardware(RTX_4090),
        period_s=0.02,
        sensing_s=0.01,
        preprocessing_s=0.0,
        network_s=0.0,
    )

    assert "executed_actions = 25" in found.assumed
    assert "schedule = asynchronous" in found.assumed
    assert any(text.startswith("p99_over_p50") for text in found.assumed)


def test_a_plan_prints_and_becomes_json():
    found = plan()

    assert str(found).startswith("met (asynchronous, 25 of 50 actions): ")
    assert "50 of 50 actions per second applied" in one_line(found)
    assert json.loads(json.dumps(found.to_dict()))["verdict"]["met"] is True


# Where the limit is the median, half of the decisions are late, whatever the jitter.
def test_a_miss_rate_is_printed_in_whole_percents_and_open_at_both_ends():
    def printed(period_s):
        text = one_line(plan("openvla-7b", p99_over_p50=1.2, period_s=period_s))
        return text.partition("miss rate ")[2].partition(",")[0]

    median = plan("openvla-7b").decision.best_s
    assert printed(median) == "50% of decisions"
    assert printed(2 * median) == "under 1% of decisions"
    assert printed(median / 2) == "over 99% of decisions"


def one_line(found):
    """What is printed of a plan, whatever the width."""
    return " ".join(terminal.text(found, 200).split())


# 50 actions of 100 ms: 25 of them last 2.5 s, and what happens as a decision starts waits for that one and the next.
def test_a_verdict_names_the_schedule_the_limit_and_the_reaction_time():
    found = plan(part=ORIN, period_s=0.1, sensing_s=0.010, preprocessing_s=0.002, launch_mode="graph")
    said = one_line(found)

    assert said.startswith("met (asynchronous, 25 of 50 actions): p99 of a cycle ")
    assert ", limit 2.500 s, " in said
    assert f"replans every 2.500 s; reaction time {2.5 + found.decision.best_s + 0.012:.3f} s" in said


# An OpenVLA-7B decision reads its 6.7 billion bf16 language weights six times: over 79 ms at 1008 GB/s alone.
def test_a_period_below_the_bound_is_missed_even_at_the_bound():
    assert plan("openvla-7b", period_s=0.075).state == "missed at the bound"
    assert str(plan("openvla-7b", period_s=0.075)).startswith("missed even at the bound (synchronous): ")
    bound = plan("openvla-7b", period_s=0.075).decision.bound_s
    late = plan("openvla-7b", period_s=1.01 * bound)
    assert late.state == "missed"
    assert plan("openvla-7b", period_s=1.01 * bound, launch_mode=None).met
    assert plan("openvla-7b", period_s=1.01 * bound, sensing_s=0.02 * bound).state == "missed at the bound"
    assert not late.missed_at_bound


def test_a_verdict_without_room_in_memory_is_about_memory():
    found = plan(taken_bytes=20 * 2**30)

    assert found.state == "does not fit"
    assert str(found).startswith("does not fit: ")


@pytest.mark.parametrize("missing", ["period_s", "sensing_s", "preprocessing_s", "network_s"])
def test_a_missing_time_is_refused_by_name(missing):
    with pytest.raises(CapacityError, match=f"{missing} is missing"):
        plan(**{missing: None})


def test_all_missing_times_are_named_at_once():
    with pytest.raises(CapacityError, match=r"^period_s, sensing_s, preprocessing_s, network_s are missing; "):
        control(load_world_model("pi0"), load_hardware(RTX_4090))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"period_s": -0.02}, "period_s"),
        ({"network_s": float("nan")}, "network_s"),
        ({"executed_actions": 51}, "more than the chunk"),
        ({"executed_actions": 0}, "whole number"),
        ({"launch_mode": "warp"}, "unknown launch mode"),
        ({"schedule": "never"}, "schedule"),
        ({"percentile": 100.0}, "percentile"),
        ({"p99_over_p50": 0.5}, "p99_over_p50"),
        ({"taken_bytes": -1}, "taken_bytes"),
        ({"taken_bytes": "20 GB"}, "taken_bytes"),
        ({"robots": 0}, "robots"),
        ({"robots": [1, 2]}, "robots"),
        ({"robots": 1.5}, "robots"),
        ({"period_s": [0.02, 0.03]}, "period_s must be one number"),
        ({"sensing_s": "10 ms"}, "sensing_s must be a number"),
        ({"p99_over_p50": "1.2"}, "p99_over_p50 must be a number"),
        ({"schedule": []}, "schedule"),
        ({"draft": Speculation(5, 0.8, 0.05)}, "nothing to speculate"),
    ],
)
def test_nonsense_is_refused(options, message):
    with pytest.raises(CapacityError, match=message):
        plan(**options)


@pytest.mark.parametrize(
    "change", [{"head.steps": 0}, {"head.chunk_actions": 0}, {"views": 0}, {"head.kind": "psychic"}]
)
def test_a_world_model_without_steps_views_or_a_known_head_is_refused(change):
    with pytest.raises(CapacityError, match="pi0"):
        load_world_model("pi0").replace(**change)


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


TIMES_OF_A_ROBOT = {"period_s": 0.5, "sensing_s": 0.0, "preprocessing_s": 0.0, "network_s": 0.0, "p99_over_p50": 1.0}


def test_memory_that_others_hold_may_be_as_much_as_2_to_the_62_bytes():
    assert whole_bytes(2**62) == 2**62
    assert whole_bytes(0.5) == 1

    with pytest.raises(CapacityError, match="from 0 to 2"):
        whole_bytes(2**62 + 1)


# Half of 25 actions is 12 whole ones.
def test_a_chunk_of_an_odd_length_is_played_by_whole_actions():
    (change,) = [c for c in plan("openvla-oft", period_s=0.02, chunks=[25], formats=()).changes if c.kind == "chunk"]

    assert change.given_as == "head.chunk_actions = 25, --schedule asynchronous --executed-actions 12"


@pytest.mark.parametrize(("bound_only", "state"), [(False, "not excluded"), (True, "met")])
def test_bound_within_the_period_meets_it_only_where_the_bound_was_asked_for(bound_only: bool, state: str) -> None:
    world, part = cap.load_world_model("pi0"), cap.load_hardware("nvidia-h100-sxm5-80gb")
    plan = cap.control(world, part, Deployment(tensor_parallel=2), **TIMES_OF_A_ROBOT, bound_only=bound_only)
    assert plan.decision.value_s is None  # no estimate for several devices
    assert (plan.state, plan.met) == (state, bound_only)
