"""Times on links against runs of nccl-tests, and against rings and pairs stepped through one message at a time."""

from __future__ import annotations

import numpy as np
import pytest

from capacity.formulas import communication

FREE = {"fixed_s": 0, "device_s": 0}


# nccl-tests prints size, time and bus bandwidth: kvcache-ai/Mooncake#3484 (8 devices) and NVIDIA/nccl-tests#78 (256).
# The bandwidth is rounded to two decimals of a GB/s, the time to one of a microsecond.
@pytest.mark.parametrize(
    ("devices", "size_bytes", "bus_gb_per_s", "time_us"),
    [(8, 33_554_432, 300.51, 195.40), (8, 8_388_608, 180.88, 81.16), (256, 33_554_432, 45.65, 1464.2)],
)
def test_an_all_reduce_takes_the_time_that_nccl_tests_prints(devices, size_bytes, bus_gb_per_s, time_us):
    time_s = communication.all_reduce_s(size_bytes, devices=devices, bytes_per_s=bus_gb_per_s * 1e9, **FREE)

    assert float(time_s) == pytest.approx(time_us * 1e-6, rel=3e-4)


# NVIDIA/nccl-tests#314: alltoall_perf on 8 H20.
@pytest.mark.parametrize(
    ("size_bytes", "bus_gb_per_s", "time_us"), [(1_048_576, 15.78, 58.14), (4_194_304, 61.84, 59.35)]
)
def test_an_all_to_all_takes_the_time_that_nccl_tests_prints(size_bytes, bus_gb_per_s, time_us):
    time_s = communication.all_to_all_s(size_bytes, devices=8, bytes_per_s=bus_gb_per_s * 1e9, **FREE)

    assert float(time_s) == pytest.approx(time_us * 1e-6, rel=5e-4)


def ring_s(devices, size_bytes, bytes_per_s):
    """An all-reduce stepped through on a ring: the partial sums go round once, then the sums do."""
    pieces = [[{rank} for _ in range(devices)] for rank in range(devices)]  # whose values each piece holds
    elapsed = 0.0
    for turn in range(2 * devices):
        if all(len(piece) == devices for rank in pieces for piece in rank):
            return elapsed
        sent = [(rank, (rank - turn) % devices, pieces[rank][(rank - turn) % devices]) for rank in range(devices)]
        for rank, piece, values in sent:
            pieces[(rank + 1) % devices][piece] = pieces[(rank + 1) % devices][piece] | values
        elapsed += size_bytes / devices / bytes_per_s  # every link carries one piece at the same time
    raise AssertionError("the ring did not finish")


@pytest.mark.parametrize("devices", [2, 3, 4, 8])
def test_an_all_reduce_takes_as_long_as_a_ring(devices):
    time_s = communication.all_reduce_s(48e6, devices=devices, bytes_per_s=100e9, **FREE)

    assert float(time_s) == pytest.approx(ring_s(devices, 48e6, 100e9), rel=1e-12)


@pytest.mark.parametrize("devices", [2, 3, 8])
def test_an_all_to_all_sends_each_other_device_its_share(devices):
    sent_bytes = sum(48e6 / devices for peer in range(devices) if peer != 0)

    time_s = communication.all_to_all_s(48e6, devices=devices, bytes_per_s=100e9, **FREE)
    assert float(time_s) == pytest.approx(sent_bytes / 100e9, rel=1e-12)


# The fixed part once, and 2 us for each of the devices 2, 3 ... n; at an endless rate nothing else is left.
@pytest.mark.parametrize("collective", [communication.all_reduce_s, communication.all_to_all_s])
@pytest.mark.parametrize(("devices", "time_us"), [(2, 12), (3, 14), (8, 24)])
def test_each_further_device_adds_its_time_to_a_collective(collective, devices, time_us):
    time_s = collective(1e6, devices=devices, bytes_per_s=np.inf, fixed_s=10e-6, device_s=2e-6)

    assert float(time_s) == pytest.approx(time_us * 1e-6)


@pytest.mark.parametrize("collective", [communication.all_reduce_s, communication.all_to_all_s])
def test_the_fixed_time_comes_on_top_of_the_message(collective):
    rates = {"devices": 4, "bytes_per_s": 50e9}
    free = collective(1e6, **rates, **FREE)

    assert float(collective(1e6, **rates, fixed_s=10e-6, device_s=2e-6) - free) == pytest.approx(16e-6)


@pytest.mark.parametrize("collective", [communication.all_reduce_s, communication.all_to_all_s])
def test_one_device_exchanges_nothing(collective):
    costs = {"devices": 1, "bytes_per_s": 1e9, "fixed_s": 10e-6, "device_s": 2e-6}

    assert float(collective(1e6, **costs)) == 0
    assert collective([1e6, 2e6, 3e6], **costs).tolist() == [0, 0, 0]


# 5 us, and 2 MB at 100 GB/s.
def test_a_send_takes_a_fixed_time_and_the_time_of_its_bytes():
    assert float(communication.send_s(2e6, bytes_per_s=100e9, fixed_s=5e-6)) == pytest.approx(25e-6)


def test_the_times_of_arrays_are_those_of_their_elements():
    sizes, rates = np.array([1e3, 1e6]), np.array([[50e9], [400e9]])
    for collective in (communication.all_reduce_s, communication.all_to_all_s):
        many = collective(sizes, devices=4, bytes_per_s=rates, fixed_s=1e-6, device_s=1e-7)
        single = [
            [float(collective(m, devices=4, bytes_per_s=b, fixed_s=1e-6, device_s=1e-7)) for m in (1e3, 1e6)]
            for b in (50e9, 400e9)
        ]
        assert many.tolist() == single
    sends = communication.send_s(sizes, bytes_per_s=rates, fixed_s=1e-6)
    assert sends.shape == (2, 2)
    assert sends[1, 0] == communication.send_s(1e3, bytes_per_s=400e9, fixed_s=1e-6)
