"""What a sample between two events on a stream contains."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from capacity.measure.runs.timing import event_samples_s


def test_samples_do_not_contain_the_launch_overhead_of_the_host():
    """A simulated stream: 2 ms to launch on the host, 30 ms to run on the device; an idle stream would show 32 ms."""
    host, device = [0.0], [0.0]

    def run():
        host[0] += 2
        device[0] = max(device[0], host[0]) + 30

    class Event:
        def __init__(self, enable_timing):
            self.at = 0.0

        def record(self):
            self.at = max(device[0], host[0])

        def synchronize(self):
            host[0] = max(host[0], self.at)

        def elapsed_time(self, later):
            return later.at - self.at

    fake = SimpleNamespace(cuda=SimpleNamespace(Event=Event))
    assert event_samples_s(fake, run, 4) == pytest.approx((30e-3,) * 4)
