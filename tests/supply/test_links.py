"""Links between devices of one part: which rate is taken, and messages at it, against sums by hand."""

from __future__ import annotations

import numpy as np
import pytest

import capacity as cap
from capacity.specs.hardware import HardwareSpec
from capacity.supply.links import NetworkRate, link_between, message_s, to_experts_s

LINKS = {"kind": "NVLink4", "bytes_per_s_per_direction": 450e9, "domain_devices": 8}
HOST = {"kind": "PCIe 5.0 x16", "bytes_per_s_per_direction": 64e9}
NVLINK_S = (7.5e-6, 1.05e-6)  # data/collectives.toml: fixed, and for each device beyond the first
PCIE_S = (20e-6, 5e-6)


NETWORK = NetworkRate("a server of a test", "400 Gb/s", 50e9, 10e-6, 4e-6)


@pytest.fixture
def part(make_part):
    """A part with some of its links, host link and measured rates."""

    def make(**tables):
        return HardwareSpec.model_validate(make_part().model_dump() | tables)

    return make


def test_a_measured_bus_rate_comes_before_the_stated_ones(part):
    linked = part(links=LINKS, host_link=HOST, measured={"allreduce_bytes_per_s": 360e9})
    found = link_between(linked, 8)

    assert (found.kind, found.bytes_per_s, found.peer_bytes_per_s) == ("NVLink4", 360e9, 360e9)
    assert found.figures[0] == "measured.allreduce_bytes_per_s"
    assert (found.fixed_s, found.device_s, found.evidence) == (*NVLINK_S, "calibrated")


def test_the_link_comes_before_the_host_link(part):
    assert link_between(part(links=LINKS, host_link=HOST), 4).bytes_per_s == 450e9
    over_host = link_between(part(host_link=HOST), 4)
    assert (over_host.kind, over_host.bytes_per_s, over_host.evidence) == ("PCIe", 64e9, "assumed")
    assert (over_host.fixed_s, over_host.device_s) == PCIE_S
    assert over_host.figures == ("host_link.bytes_per_s_per_direction",)


def test_devices_that_no_link_joins_are_refused(part):
    with pytest.raises(cap.CapacityError, match=r"not modelled for 16 x part: the link joins only 8 devices"):
        link_between(part(links=LINKS), 16)
    with pytest.raises(cap.CapacityError, match=r"not modelled for 2 x part: no link rate is known"):
        link_between(part(), 2)


# nccl-tests: an all-reduce over n devices moves 2 (n - 1) / n of its message at the bus rate, a gather (n - 1) / n;
# a send the message once.
@pytest.mark.parametrize("devices", [2, 4, 8])
def test_a_message_takes_what_it_moves_at_the_bus_rate(part, devices):
    link, sizes = link_between(part(links=LINKS), 8), np.array([1e6, 3e8])
    more = {
        kind: np.diff(message_s(link, kind, devices=devices, message_bytes=sizes))[0]
        for kind in ("all_reduce", "all_to_all", "send")
    }

    assert more["all_reduce"] == pytest.approx(2.99e8 * 2 * (devices - 1) / devices / 450e9, rel=1e-9)
    assert more["all_to_all"] == pytest.approx(2.99e8 * (devices - 1) / devices / 450e9, rel=1e-9)
    assert more["send"] == pytest.approx(2.99e8 / 450e9, rel=1e-9)


# AMD's MI300X joins eight devices pairwise: two of them have one of the seven links.
def test_two_devices_use_no_more_than_the_rate_to_one_peer(part):
    link = link_between(part(links={**LINKS, "bytes_per_s_per_peer": 64e9}), 8)

    def more(devices):
        times = message_s(link, "all_reduce", devices=devices, message_bytes=np.array([0.0, 1e9]))
        return times[1] - times[0]

    assert more(2) == pytest.approx(1e9 / 64e9, rel=1e-9)
    assert more(8) == pytest.approx(1e9 * 2 * 7 / 8 / 450e9, rel=1e-9)
    assert "links.bytes_per_s_per_peer" in link.figures


# gpt-fast: an empty collective on NVLink still takes 7.5 us and 1.05 us for each device beyond the first.
def test_a_small_message_takes_the_fixed_times(part):
    link = link_between(part(links=LINKS), 8)

    assert float(message_s(link, "all_reduce", devices=8, message_bytes=0)) == pytest.approx(7.5e-6 + 7 * 1.05e-6)
    assert float(message_s(link, "send", devices=2, message_bytes=0)) == pytest.approx(7.5e-6)


# Sixteen devices, eight to a server: each sums within its server at 450 GB/s, then an eighth of the message with its
# peer in the other server at 50 GB/s. 1 GB: 2 x 7/8 / 450e9 and 2 x 1/2 / 8 / 50e9 of it.
def test_an_all_reduce_beyond_a_server_sums_within_and_then_between(part):
    link = link_between(part(links=LINKS), 16, NETWORK)
    found = np.diff(message_s(link, "all_reduce", devices=16, message_bytes=np.array([0.0, 1e9])))[0]

    assert found == pytest.approx(1e9 * 2 * (7 / 8) / 450e9 + 1e9 / 8 * 2 * (1 / 2) / 50e9, rel=1e-9)


def test_devices_of_one_server_do_not_use_the_network(part):
    near, far = link_between(part(links=LINKS), 8), link_between(part(links=LINKS), 16, NETWORK)
    for kind in ("all_reduce", "all_to_all"):
        times = [float(message_s(link, kind, devices=8, message_bytes=1e8)) for link in (near, far)]
        assert times[0] == times[1]
    assert link_between(part(links=LINKS), 8, NETWORK).network is None


# A gather of 16 shares: half of the message comes from the other server, at a ninth of the rate of the link.
def test_a_gather_and_a_send_beyond_a_server_take_the_network(part):
    link = link_between(part(links=LINKS), 16, NETWORK)

    assert float(message_s(link, "all_to_all", devices=16, message_bytes=1e9)) == pytest.approx(
        10e-6 + 4e-6 + 1e9 / 2 / 50e9, rel=1e-9
    )
    assert float(message_s(link, "send", devices=2, message_bytes=1e9)) == pytest.approx(10e-6 + 1e9 / 50e9, rel=1e-9)


def expected_places(places, choices, draws=200_000):
    """Mean number of distinct places that some choices hit, by drawing."""
    drawn = np.sort(np.random.default_rng(5).integers(places, size=(draws, choices)), axis=1)
    return float(np.mean(1 + (np.diff(drawn, axis=1) > 0).sum(axis=1)))


# A token goes once to each device that holds some of its eight experts, or once to each such server.
@pytest.mark.parametrize(("devices", "network"), [(8, None), (32, NETWORK)])
def test_one_copy_of_a_token_serves_all_its_experts_of_a_device_or_server(part, devices, network):
    link = link_between(part(links=LINKS), devices, network)
    sizes = np.array([0.0, 1e9])
    times = to_experts_s(link, devices=devices, groups=devices, group_devices=1, choices=8, token_bytes=sizes)
    by_link = expected_places(devices, 8) * (7 / 8) / 450e9
    by_network = expected_places(4, 8) * (3 / 4) / 50e9 if network else 0.0

    assert times[1] == pytest.approx(times[0] + 1e9 * max(by_link, by_network), rel=2e-3)


# Experts cut by columns over all devices need every token on each of them.
def test_experts_that_all_devices_share_take_a_copy_to_each(part):
    link = link_between(part(links=LINKS), 8)
    times = to_experts_s(link, devices=8, groups=1, group_devices=8, choices=2, token_bytes=np.array([0.0, 1e9]))

    assert np.diff(times)[0] == pytest.approx(7 * 1e9 / 450e9, rel=1e-9)
