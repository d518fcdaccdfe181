"""The device of a run: free memory, nvidia-smi, and the part that its name stands for."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import capacity as cap
from capacity.files import package_data
from capacity.measure.runs import cuda_machine

torch = pytest.importorskip("torch")


def test_a_case_that_does_not_fit_is_skipped_with_its_sizes(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (10 * 10**9, 80 * 10**9))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: 6 * 10**9)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: 4 * 10**9)
    assert cuda_machine.skip_reason("a", int(10.8e9)) is None
    assert cuda_machine.skip_reason("a", int(10.9e9)) == "a skipped: it needs 10.9 GB and 12.0 GB are free"


@pytest.mark.parametrize(("uuid", "expected"), [("ab-cd", "GPU-ab-cd"), ("MIG-1", "MIG-1"), (None, "3")])
def test_nvidia_smi_is_queried_for_the_device_that_torch_uses(monkeypatch, uuid, expected):
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    assert cuda_machine.smi_id(SimpleNamespace(uuid=uuid) if uuid else SimpleNamespace()) == expected


def test_clocks_that_nvidia_smi_does_not_report_are_absent(monkeypatch):
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: SimpleNamespace())
    for text, expected in (("1980, [N/A], 700.0", {"sm": 1.98e9, "power_limit_w": 700.0}), ("", {})):
        monkeypatch.setattr(cuda_machine, "smi_text", lambda query, device, text=text: text)
        assert cuda_machine.clocks() == expected


def test_device_names_lead_to_parts_of_the_catalogue():
    assert set(package_data.toml("data/device_names.toml").values()) <= set(cap.hardware_ids())
