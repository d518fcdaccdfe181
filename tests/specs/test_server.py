"""Servers: known parts, sourced figures, and the errors that a server table invites."""

import pytest

from capacity.catalog import parts as catalog
from capacity.catalog import servers
from capacity.errors import SpecError
from capacity.specs.server import ServerSpec


@pytest.fixture
def table():
    return {
        "name": "Node",
        "device": "nvidia-h100-sxm5-80gb",
        "devices": 8,
        "full_w": 10_200,
        "sources": [{"fields": ["*"], "cite": "a manual, read today"}],
    }


@pytest.mark.parametrize("server_id", servers.server_ids())
def test_every_shipped_server_holds_a_shipped_part(server_id):
    server = servers.load_server(server_id)

    assert server.id == server_id
    assert server.device in catalog.hardware_ids()


# All-reduce bus bandwidth of large messages, GB/s (survey of 2026-11-30, section 2, item 6).
@pytest.mark.parametrize(
    ("server_id", "devices", "rate"),
    [
        ("nvidia-hgx-a100-8x80gb", 8, 235),
        ("nvidia-hgx-h100-8x80gb", 8, 351),
        ("nvidia-hgx-h200-8x141gb", 8, 368),
        ("nvidia-hgx-b200-8x180gb", 8, 641),
        ("nvidia-gb200-nvl72", 4, 601),
        ("amd-mi300x-8x192gb", 8, 313),
        ("amd-mi300x-8x192gb", 2, 48),
        ("nvidia-rtx-pro-6000-blackwell-8x96gb", 8, 22),
    ],
)
def test_all_reduce_of_a_shipped_server_is_the_measured_one(server_id, devices, rate):
    rows = {row.devices: row.bytes_per_s for row in servers.load_server(server_id).all_reduce}

    assert round(rows[devices] / 1e9) == rate


def test_bits_of_a_network_kept_as_bytes_are_refused(table):
    table["network"] = {"kind": "InfiniBand NDR 400 Gb/s", "bytes_per_s_per_device": 400e9}  # seen in llm-analysis

    with pytest.raises(SpecError, match=r"400 Gb/s is 5e\+10 bytes per second"):
        ServerSpec.parse(table, "node.toml")


def test_idle_power_above_full_power_is_refused(table):
    with pytest.raises(SpecError, match=r"idle_w \(11000\) must be below full_w \(10200\)"):
        ServerSpec.parse(table | {"idle_w": 11_000}, "node.toml")


def test_an_all_reduce_among_more_devices_than_there_are_is_refused(table):
    with pytest.raises(SpecError, match="all_reduce among 16 devices, but there are 8"):
        ServerSpec.parse(table | {"all_reduce": [{"devices": 16, "bytes_per_s": 1e11}]}, "node.toml")


def test_a_bare_figure_is_refused(table):
    table["sources"] = []

    with pytest.raises(SpecError, match="no source for devices, full_w"):
        ServerSpec.parse(table, "node.toml")


def test_a_server_of_an_unknown_part_is_refused_with_the_nearest(table):
    with pytest.raises(SpecError, match=r"unknown part 'nvidia-h100-sxm'; nearest: nvidia-h100-sxm5-80gb"):
        servers.load_server(table | {"device": "nvidia-h100-sxm"})


def test_a_replaced_figure_is_assumed(table):
    bigger = ServerSpec.parse(table, "node.toml").replace(devices=4)

    assert (bigger.devices, bigger.evidence("devices"), bigger.evidence("full_w")) == (4, "assumed", "published")
