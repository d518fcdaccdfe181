"""A control plan for one robot, as most tests of the study ask for it."""

from __future__ import annotations

import pytest

import capacity as cap
from capacity.presentation import terminal

NO_OVERHEAD = {"sensing_s": 0.0, "preprocessing_s": 0.0, "network_s": 0.0, "p99_over_p50": 1.0}


@pytest.fixture(scope="session")
def plan():
    """`control` of pi0 on an RTX 4090 at 50 Hz, unless said otherwise; without a launch mode the bound is judged."""

    def made(model="pi0", part="nvidia-rtx-4090-24gb", **options):
        settings = NO_OVERHEAD | {"period_s": 0.02, "launch_mode": "tuned"} | options
        mode, deploy = settings.pop("launch_mode"), settings.pop("deploy", cap.Deployment())
        deploy = deploy if mode is None else deploy.replace(launch_mode=mode)
        world = cap.load_world_model(model) if isinstance(model, str) else model
        return cap.control(world, cap.load_hardware(part), deploy, bound_only=mode is None, **settings)

    return made


@pytest.fixture(scope="session")
def one_line():
    """What is printed of a result in one line, whatever the width."""
    return lambda result: " ".join(terminal.text(result, 200).split())
