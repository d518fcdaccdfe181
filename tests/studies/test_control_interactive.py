"""Interactive world models: frame rate, sessions and the growth of their caches."""

from __future__ import annotations

import pytest

from capacity.catalog import load_hardware
from capacity.catalog_world import load_world_model
from capacity.errors import CapacityError
from capacity.specs.deployment import Deployment
from capacity.studies.interactive import frames

BF16 = Deployment(weights="bf16")
A100 = "nvidia-a100-sxm4-80gb"


def plan(model="mineworld-300m", **options):
    settings = {"frames_per_s": 5.0, "sessions": 1, "elapsed_s": 60.0, "window_tokens": 5552, "launch_mode": None}
    return frames(load_world_model(model), load_hardware(A100), BF16, **(settings | options))


# MineWorld-300M token by token on an A100: 0.362 ms a token, 336 tokens a frame: 122 ms, 8.2 frames a second.
def test_mineworld_frame_bound_is_the_published_floor():
    found = plan()

    assert found.frame_bound_s == pytest.approx(0.122, rel=0.01)
    assert found.frames_per_s == pytest.approx(8.2, rel=0.01)


# arXiv:2504.08388 gives 4 to 7 frames a second even with diagonal decoding (37 passes instead of 336).
def test_mineworld_measured_rate_is_below_the_bound_of_its_passes():
    assert plan().frames_per_s * 336 / 37 > 7


def test_cache_grows_by_347_tokens_a_frame():
    found = plan(elapsed_s=2.0, window_tokens=None)

    assert found.cache_tokens == 2 * 5 * 347
    assert found.growth_bytes_per_s == pytest.approx(5 * 347 * 20_480)  # 20,480 bytes a token
    assert found.session_bytes == found.cache_tokens * 20_480


def test_a_window_ends_the_growth():
    short, long = plan(elapsed_s=60.0), plan(elapsed_s=6000.0)

    assert short.session_bytes == long.session_bytes == 5552 * 20_480
    assert short.seconds_until_full is None


def test_sessions_in_memory_fall_with_age_without_a_window():
    young, old = (plan(elapsed_s=age, window_tokens=None).sessions_in_memory for age in (60.0, 600.0))

    assert old == young // 10


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
