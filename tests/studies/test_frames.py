"""Interactive world models: frame rate, sessions and the growth of their caches."""

from __future__ import annotations

import pytest

import capacity as cap
from capacity.catalog.parts import load_hardware
from capacity.catalog.worlds import load_world_model
from capacity.errors import CapacityError
from capacity.specs.deployment import Deployment
from capacity.studies.frames import frames

BF16 = Deployment(weights="bf16")
A100 = "nvidia-a100-sxm4-80gb"


def plan(model="mineworld-300m", **options):
    settings = {"frames_per_s": 5.0, "sessions": 1, "elapsed_s": 60.0, "window_tokens": 5552, "bound_only": True}
    return frames(load_world_model(model), load_hardware(A100), BF16, **(settings | options))


# MineWorld-300M token by token on an A100: 0.362 ms a token, 336 tokens a frame: 122 ms, 8.2 frames a second.
# A bound allows for 40 MB of last-level cache that keep weights from one pass to the next.
def test_mineworld_frame_roofline_is_the_published_floor():
    found = plan()

    decode = found.decision.phase("decode")
    assert decode.roofline_s == pytest.approx(0.122, rel=0.02)
    assert decode.bound_s == pytest.approx(decode.roofline_s - 336 * 40 * 2**20 / 2.039e12, rel=0.001)


# arXiv:2504.08388 gives 4 to 7 frames a second even with diagonal decoding (37 passes instead of 336).
def test_mineworld_measured_rate_is_below_the_bound_of_its_passes():
    assert plan().frames_per_s * 336 / 37 > 7


def test_cache_holds_the_prompt_and_347_tokens_of_each_frame():
    found = plan(elapsed_s=2.0, window_tokens=None)

    assert found.cache_tokens == 15 * 347 + 11 + 2 * 5 * 347  # fifteen frames and an action to start from
    assert found.growth_bytes_per_s == pytest.approx(5 * 347 * 20_480)  # 20,480 bytes a token
    assert found.session_bytes == found.cache_tokens * 20_480


# Each of 336 passes reads 20,480 bytes of every token in the cache of each session, at 2.039 TB/s.
def test_a_frame_takes_longer_with_age_by_the_cache_that_each_pass_reads():
    for sessions in (1, 8):
        young, old = (plan(sessions=sessions, elapsed_s=age, window_tokens=None) for age in (10.0, 60.0))
        more_tokens = 50 * 5 * 347

        slower = sessions * more_tokens * 20_480 / 2.039e12
        assert old.frame_bound_s - young.frame_bound_s == pytest.approx(336 * slower, rel=1e-6)


def test_a_window_keeps_the_frame_as_fast_as_a_session_of_that_length():
    # Sixteen frames are kept or one: each pass reads fifteen frames more, 5,205 tokens.
    narrow, wide = plan(window_tokens=347), plan(window_tokens=5552)

    assert wide.frame_bound_s - narrow.frame_bound_s == pytest.approx(336 * 5205 * 20_480 / 2.039e12, rel=1e-6)


def test_a_window_ends_the_growth():
    short, long = plan(elapsed_s=60.0), plan(elapsed_s=6000.0)

    assert short.session_bytes == long.session_bytes == 5552 * 20_480
    assert short.frame_bound_s == long.frame_bound_s
    assert short.seconds_until_full is None


def test_a_window_that_does_not_fit_says_when_memory_is_full():
    short, long = (plan(sessions=20, window_tokens=window) for window in (200_000, None))

    assert short.sessions_in_memory >= 20  # at this age they still fit
    assert 20 * 200_000 * 20_480 > 80e9
    assert short.seconds_until_full == long.seconds_until_full
    full = plan(sessions=20, elapsed_s=short.seconds_until_full * 0.99, window_tokens=None)
    over = plan(sessions=20, elapsed_s=short.seconds_until_full * 1.01, window_tokens=None)
    assert full.sessions_in_memory >= 20 > over.sessions_in_memory


# A young session has fewer tokens than a prefill chunk, so its activations grow with it until the chunk is full.
@pytest.mark.parametrize("chunk", [8192, 100_000])
def test_one_session_fills_the_memory_when_it_is_said_to(chunk):
    world, part, deploy = (
        load_world_model("mineworld-300m"),
        load_hardware(A100),
        BF16.replace(prefill_chunk_tokens=chunk),
    )
    end_s = frames(world, part, deploy, frames_per_s=5.0, bound_only=True).seconds_until_full
    before, after = (
        frames(world, part, deploy, frames_per_s=5.0, elapsed_s=end_s + some_s, bound_only=True) for some_s in (-1, 1)
    )

    assert (before.sessions_in_memory, after.sessions_in_memory) == (1, 0)


def test_a_memory_that_others_fill_is_full_from_the_start():
    found = plan(taken_bytes=72 * 2**30, window_tokens=None)

    assert found.sessions_in_memory == 0
    assert found.seconds_until_full == 0.0


def test_frames_of_two_devices_have_no_estimate_and_say_so():
    deploy = BF16.replace(tensor_parallel=2, launch_mode="graph")
    found = frames(load_world_model("mineworld-300m"), load_hardware(A100), deploy, frames_per_s=5.0)

    assert found.decision.value_s is None
    assert found.frame_s == found.frame_bound_s
    assert "no estimate: no calibration covers 2 devices; the bound alone is judged" in found.notes
    assert found.decision.attainable_s > found.decision.bound_s
    assert not any("no estimate" in note for note in plan().notes)


def test_frames_without_a_launch_mode_take_a_graph_and_say_so():
    world, part = load_world_model("mineworld-300m"), load_hardware(A100)
    silent, given = (
        frames(world, part, deploy, frames_per_s=5.0) for deploy in (BF16, BF16.replace(launch_mode="graph"))
    )

    assert set(silent.assumed) - set(given.assumed) == {"launch_mode = graph"}
    assert silent.frame_s == given.frame_s > plan(elapsed_s=0.0, window_tokens=None).frame_s


def test_sessions_in_memory_are_the_last_whose_caches_and_activations_fit():
    found = plan(elapsed_s=600.0, window_tokens=None)
    part, world = load_hardware(A100), load_world_model("mineworld-300m")

    def fits(sessions):
        activations = cap.activation_bytes(world, BF16, batch=sessions, tokens=found.cache_tokens)
        held = cap.weight_bytes(world, BF16) + sessions * found.cache_tokens * 20_480 + activations
        return held <= int(part.usable_bytes * 0.9)

    assert fits(found.sessions_in_memory)
    assert not fits(found.sessions_in_memory + 1)


def test_a_model_without_a_cache_is_limited_by_its_activations():
    found = plan("oasis-500m", window_tokens=None)

    assert found.session_bytes == 0
    assert 1 < found.sessions_in_memory < 10_000


def test_sessions_in_time_are_the_last_that_keep_the_frame_rate():
    found = plan(frames_per_s=6.0)
    most = found.sessions_in_time

    assert plan(frames_per_s=6.0, sessions=most).frame_s <= 1 / 6
    assert plan(frames_per_s=6.0, sessions=most + 1).frame_s > 1 / 6


def test_nonsense_is_refused():
    with pytest.raises(CapacityError, match="frames_per_s"):
        plan(frames_per_s=0.0)
    with pytest.raises(CapacityError, match="sessions"):
        plan(sessions=0)
    with pytest.raises(CapacityError, match="makes no frame"):
        plan("openvla-oft")
    with pytest.raises(CapacityError, match="elapsed_s must be finite"):
        plan(elapsed_s=float("nan"))
    with pytest.raises(CapacityError, match="window_tokens must hold one frame of mineworld-300m, 347 tokens"):
        plan(window_tokens=346)
    with pytest.raises(CapacityError, match="give a window_tokens"):
        plan(elapsed_s=1e9, window_tokens=None)


@pytest.mark.parametrize("taken", [-1e13, float("nan"), "20 GB", None])
def test_memory_taken_by_others_is_a_number_of_bytes(taken):
    with pytest.raises(CapacityError, match=r"taken_bytes must be a whole number of bytes from 0 to 2\^62"):
        plan(taken_bytes=taken)


@pytest.mark.parametrize("name", ["frames_per_s", "elapsed_s", "sessions", "window_tokens"])
@pytest.mark.parametrize("value", ["5", [5.0, 6.0], 10**400, 1 + 2j])
def test_a_number_that_is_none_is_refused_by_name(name, value):
    with pytest.raises(CapacityError, match=f"^{name} must be"):
        plan(**{name: value})


@pytest.mark.parametrize(("bound_only", "state"), [(False, "not excluded"), (True, "met")])
def test_bound_within_the_budget_meets_it_only_where_the_bound_was_asked_for(bound_only: bool, state: str) -> None:
    world, part = cap.load_world_model("mineworld-300m"), cap.load_hardware("nvidia-h100-sxm5-80gb")
    deploy = cap.Deployment(tensor_parallel=2)
    plan = cap.frames(world, part, deploy, frames_per_s=0.5, bound_only=bound_only)
    assert (plan.state, plan.met) == (state, bound_only)
