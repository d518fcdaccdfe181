"""Every part that a device name stands for is in the catalogue."""

from __future__ import annotations

import tomllib
from importlib.resources import files

import capacity as cap


def test_device_names_lead_to_parts_of_the_catalogue():
    text = files("capacity").joinpath("data/device_names.toml").read_text(encoding="utf-8")
    assert set(tomllib.loads(text).values()) <= set(cap.hardware_ids())
