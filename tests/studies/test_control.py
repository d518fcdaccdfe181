"""The control study: periods met and missed, memory, power modes, what is assumed, and nonsense refused."""

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
from capacity.specs.deployment import Deployment, Draft
from capacity.studies.control import control
from capacity.studies.control_case import whole_bytes

BF16 = Deployment(weights="bf16")
RTX_4090 = "nvidia-rtx-4090-24gb"
ORIN = "nvidia-jetson-agx-orin-64gb"
TIMES_OF_A_ROBOT = {"period_s": 0.5, "sensing_s": 0.0, "preprocessing_s": 0.0, "network_s": 0.0, "p99_over_p50": 1.0}


def test_pi0_at_50_hz_is_met_by_chunks_and_not_by_waiting(plan):
    assert plan(schedule="asynchronous", executed_actions=25).met
    assert not plan(schedule="chunked").met


def test_overlap_of_encode_and_decode_is_no_faster_than_either_resource(plan):
    found = plan()
    busy = [sum(getattr(phase, side) for phase in found.decision.phases) for side in ("memory_s", "compute_s")]

    assert found.overlapped_interval_s == pytest.approx(max(busy))
    assert found.overlapped_interval_s < found.decision.bound_s


def test_memory_already_taken_can_make_the_answer_no(plan):
    found = plan(taken_bytes=20 * 2**30)

    assert not found.verdict.fits
    assert not found.met
    assert found.binds == "memory"


def test_a_power_mode_without_a_source_says_so(plan, one_line):
    found = plan(part=ORIN, power_mode="30W")

    assert found.decision == plan(part=ORIN).decision
    assert (found.power_mode.name, found.power_mode.stated) == ("30W", ())
    assert "power mode 30W: no source states how it slows the part" in one_line(found)
    assert plan(part=ORIN).power_mode is None
    with pytest.raises(CapacityError, match="power mode"):
        plan(part=ORIN, power_mode="31W")


# NVIDIA's data sheet of the Jetson Orin Nano: 68 GB/s, and 102 GB/s in the mode sold as Super.
def test_a_power_mode_with_a_source_says_what_it_changes(plan, one_line):
    plain, fast = (
        plan("pi0", part="nvidia-jetson-orin-nano-8gb", launch_mode=None, power_mode=mode)
        for mode in (None, "25W Super")
    )

    slow_s, fast_s = (sum(phase.memory_s for phase in found.decision.phases) for found in (plain, fast))
    assert slow_s / fast_s == pytest.approx(102 / 68, rel=0.01)
    assert fast.power_mode.stated[0] == "bytes_per_s"
    assert "as the vendor states" in one_line(fast)


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
def test_decisions_side_by_side_are_no_slower_than_one_after_the_other(plan, name):
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


def test_a_plan_prints_and_becomes_json(plan, one_line):
    found = plan()

    assert str(found).startswith("met (asynchronous, 25 of 50 actions): ")
    assert "50 of 50 actions per second applied" in one_line(found)
    assert json.loads(json.dumps(found.to_dict()))["verdict"]["met"] is True


def test_a_verdict_without_room_in_memory_is_about_memory(plan):
    found = plan(taken_bytes=20 * 2**30)

    assert found.state == "does not fit"
    assert str(found).startswith("does not fit: ")


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
        ({"draft": Draft(tokens=5, acceptance=0.8, cost=0.05)}, "nothing to speculate"),
    ],
)
def test_nonsense_is_refused(plan, options, message):
    with pytest.raises(CapacityError, match=message):
        plan(**options)


@pytest.mark.parametrize(
    "change", [{"head.steps": 0}, {"head.chunk_actions": 0}, {"views": 0}, {"head.kind": "psychic"}]
)
def test_a_world_model_without_steps_views_or_a_known_head_is_refused(change):
    with pytest.raises(CapacityError, match="pi0"):
        load_world_model("pi0").replace(**change)


def test_memory_that_others_hold_may_be_as_much_as_2_to_the_62_bytes():
    assert whole_bytes(2**62) == 2**62
    assert whole_bytes(8e9) == 8_000_000_000

    for wrong in (2**62 + 1, 0.5, -1, float("nan"), True):
        with pytest.raises(CapacityError, match=r"must be a whole number of bytes from 0 to 2\^62"):
            whole_bytes(wrong)


@pytest.mark.parametrize(("bound_only", "state"), [(False, "not excluded"), (True, "met")])
def test_bound_within_the_period_meets_it_only_where_the_bound_was_asked_for(bound_only: bool, state: str):
    world, part = cap.load_world_model("pi0"), cap.load_hardware("nvidia-h100-sxm5-80gb")
    plan = cap.control(world, part, Deployment(tensor_parallel=2), **TIMES_OF_A_ROBOT, bound_only=bound_only)
    assert plan.decision.value_s is None  # no estimate for several devices
    assert (plan.state, plan.met) == (state, bound_only)
