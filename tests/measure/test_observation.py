"""What a user's module holds, against sizes that follow from its shape."""

from __future__ import annotations

import pytest

from capacity.errors import CapacityError

torch = pytest.importorskip("torch")


def test_a_two_layer_perceptron_holds_what_its_shapes_say():
    from capacity.measure import observe

    module = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
    seen = observe(module, torch.zeros(8, 64))
    assert seen.parameter_count == 64 * 256 + 256 + 256 * 10 + 10
    assert seen.weight_bytes == 4 * seen.parameter_count
    assert seen.input_bytes == 8 * 64 * 4
    # Sequential keeps one output at a time: the hidden layer and its activation are the peak.
    assert seen.live_peak_bytes == 2 * 8 * 256 * 4
    assert {part.name: part.output_bytes for part in seen.parts} == {
        "": 320,
        "0": 8 * 256 * 4,
        "1": 8 * 256 * 4,
        "2": 320,
    }
    assert any("nvidia-smi" in text for text in seen.blind_spots)


def test_hooks_are_gone_after_the_pass_and_after_a_failure():
    from capacity.measure import observe

    module = torch.nn.Linear(4, 4)
    observe(module, torch.zeros(1, 4))
    with pytest.raises(RuntimeError):
        observe(module, torch.zeros(1, 5))
    assert not module._forward_hooks


def test_something_that_is_no_module_is_refused():
    from capacity.measure import observe

    with pytest.raises(CapacityError, match=r"takes a torch\.nn\.Module, got int"):
        observe(3)
