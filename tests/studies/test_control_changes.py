"""Changes of a control period: effects as differences of cases, schedules, chunks, speculation, and the cheapest."""

from __future__ import annotations

import pytest

from capacity.catalog.parts import load_hardware
from capacity.specs.deployment import Deployment, Draft


def test_each_change_is_the_difference_of_two_computed_cases(plan):
    found = plan("example-robot", period_s=0.02, parts=[load_hardware("nvidia-h100-sxm5-80gb")])
    change = next(item for item in found.changes if item.kind == "part")
    other = plan("example-robot", part="nvidia-h100-sxm5-80gb", period_s=0.02)

    assert change.time_s == pytest.approx(other.verdict.latency_s)
    assert change.saved_s == pytest.approx(found.verdict.latency_s - other.verdict.latency_s)
    narrow = next(item for item in found.changes if item.what == "weights and activations in int8")
    int8 = plan("example-robot", period_s=0.02, deploy=Deployment(weights="int8", activations="int8"))
    assert narrow.time_s == pytest.approx(int8.verdict.latency_s)


def test_cheapest_change_is_a_setting_before_a_format_before_a_part(plan):
    parts = [load_hardware("nvidia-h100-sxm5-80gb")]
    waiting = plan(schedule="chunked", parts=parts)

    assert waiting.cheapest.kind == "schedule"
    base = plan("example-robot", period_s=10.0).verdict.latency_s
    cheap = plan("example-robot", period_s=0.95 * base, parts=parts)
    assert not cheap.met
    assert cheap.cheapest.kind == "format"
    assert cheap.cheapest.time_s <= 0.95 * base


def test_a_period_that_is_met_needs_no_change(plan):
    assert plan().cheapest is None


def test_speculation_with_a_perfect_free_draft_divides_the_passes(plan):
    found = plan("example-robot", period_s=0.02, draft=Draft(tokens=5, acceptance=1.0, cost=0.0))
    change = next(item for item in found.changes if item.kind == "speculation")
    decode = found.decision.phase("decode")

    # 19 steps become 4 verifications of 6 tokens: at most 15 of 19 parts of decode are saved.
    assert 0.6 * decode.value_s < change.saved_s <= 15 / 19 * decode.value_s * 1.001


def test_a_longer_chunk_of_a_parallel_head_can_meet_a_short_period(plan):
    found = plan("openvla-oft", period_s=0.02, schedule="chunked", chunks=[25], formats=())
    change = next(item for item in found.changes if item.kind == "chunk")

    assert not found.met
    assert change.met
    assert found.verdict.latency_s < change.time_s < 1.5 * found.verdict.latency_s  # nearly flat in the chunk


def test_a_change_that_loses_says_what_it_costs(plan, one_line):
    draft = Draft(tokens=5, acceptance=0.0, cost=0.05)
    found = plan("openvla-7b", draft=draft, formats=())
    change = next(item for item in found.changes if item.kind == "speculation")

    assert change.saved_s < 0
    assert "speculation, 5 tokens at acceptance 0 -" in one_line(found)


def test_a_part_that_cannot_answer_is_refused_beside_those_that_can(plan):
    parts = [load_hardware(name) for name in ("amd-epyc-9654-socket", "nvidia-h100-sxm5-80gb")]
    found = plan("openvla-7b", parts=parts, formats=())

    assert [item.what for item in found.changes if item.kind == "part"] == ["NVIDIA H100 SXM5 80GB"]
    assert [item.what for item in found.not_evaluated] == [parts[0].name]
    assert "no peak is recorded" in found.not_evaluated[0].reason
    assert "Changes without an answer" in str(found)


# Half of 25 actions is 12 whole ones.
def test_a_chunk_of_an_odd_length_is_played_by_whole_actions(plan):
    (change,) = [c for c in plan("openvla-oft", period_s=0.02, chunks=[25], formats=()).changes if c.kind == "chunk"]

    assert change.given_as == "head.chunk_actions = 25, --schedule asynchronous --executed-actions 12"


def test_the_draft_of_a_deployment_is_tried_like_one_given_by_itself(plan):
    draft = Draft(tokens=3, acceptance=0.7, cost=0.1)
    stated = plan("openvla-7b", deploy=Deployment(draft=draft), formats=())
    given = plan("openvla-7b", draft=draft, formats=())

    kinds = [
        [(item.what, item.saved_s) for item in one.changes if item.kind == "speculation"] for one in (stated, given)
    ]
    assert kinds[0] == kinds[1] != []
