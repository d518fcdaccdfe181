"""What a user's module holds, against sizes that follow from its shape."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from capacity.errors import CapacityError
from capacity.measure.decoder.prefill import Prefill
from capacity.measure.shape import DecoderShape
from capacity.specs.deployment import Deployment
from capacity.validation.observation import CudaPeak, observe

torch = pytest.importorskip("torch")


def test_a_two_layer_perceptron_holds_what_its_shapes_say():
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
    module = torch.nn.Linear(4, 4)
    observe(module, torch.zeros(1, 4))
    with pytest.raises(RuntimeError):
        observe(module, torch.zeros(1, 5))
    assert not module._forward_hooks


def test_something_that_is_no_module_is_refused():
    with pytest.raises(CapacityError, match=r"takes a torch\.nn\.Module, got int"):
        observe(3)


@pytest.fixture
def prefill():
    """The plain-torch decoder as a module, fp32: 2 layers of 64, inner width 128, 100 words, 4 heads of 16 on 2."""
    shape = DecoderShape("tiny", 2, 64, 4, 2, 16, 128, 100, weight_format="fp32", kv_format="fp32")

    class Module(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.decoder = Prefill(shape, max_tokens=100)
            matrices = [tensor for layer in self.decoder.layers for tensor in layer.values()]
            held = [self.decoder.embedding, self.decoder.head, self.decoder.gain, *matrices]
            self.held = torch.nn.ParameterList([torch.nn.Parameter(tensor) for tensor in held])

        def forward(self, tokens):
            return self.decoder(tokens)

    return Module()


def test_estimates_are_compared_with_what_a_pass_held(prefill, make_llama):
    """By hand: 86,848 parameters; 300 tokens that hold 4 x 64 + 4 x 128 elements at the end of a feed-forward."""
    model, deploy = make_llama("tiny", 2, 64, 4, 2, 16, 128, 100), Deployment(weights="fp32", activations="fp32")
    tokens = torch.zeros((3, 100), dtype=torch.int64)
    seen = observe(prefill, tokens, model=model, deploy=deploy.replace(prefill_chunk_tokens=64), batch=3, tokens=100)
    weights, peak = seen.estimates

    assert weights.estimated_bytes == weights.observed_bytes == 86_848 * 4
    assert peak.estimated_bytes == peak.observed_bytes == 300 * 768 * 4
    assert seen.to_dict()["estimates"][1]["ratio"] == 1.0
    assert "activation peak 900.00 KiB 900.00 KiB 1.000 live storage" in " ".join(str(seen).split())
    assert any("schedule of the reference decoder" in text for text in seen.blind_spots)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"batch": 1}, "missing: model, deploy, tokens"),
        ({"deploy": Deployment(weights="bf16", tensor_parallel=2)}, "of one device, got 2"),
        ({"model": "llama-3-8b"}, "model must be a ModelSpec"),
        ({"batch": 2**20, "tokens": 2**20}, "batch x tokens"),
        ({"tokens": 1.5}, "tokens must be a whole number"),
    ],
)
def test_an_estimate_that_lacks_something_is_one_sentence(make_llama, given, sentence):
    whole = {"model": make_llama("tiny", 2, 64, 4, 2, 16, 128, 100), "deploy": Deployment(weights="bf16")}
    asked = given if given == {"batch": 1} else whole | {"batch": 1, "tokens": 1} | given
    with pytest.raises(CapacityError, match=sentence):
        observe(torch.nn.Linear(4, 4), torch.zeros(1, 4), **asked)


class Cuda:
    """A stand-in for ``torch.cuda``: the allocator of each device, and the devices whose peak was requested."""

    def __init__(self, before, peak):
        self.before, self.peak, self.requested = before, peak, []

    def synchronize(self, device):
        self.requested.append(device)

    def reset_peak_memory_stats(self, device):
        self.requested.append(device)

    def memory_allocated(self, device):
        return self.before[device]

    def max_memory_allocated(self, device):
        return self.peak[device]


def test_the_peak_of_the_allocator_is_that_of_the_devices_of_the_module():
    cuda = Cuda(before={"cuda:0": 7, "cuda:1": 100, "cuda:2": 10}, peak={"cuda:0": 9, "cuda:1": 150, "cuda:2": 30})
    tensors = [SimpleNamespace(is_cuda=name != "cpu", device=name) for name in ("cpu", "cuda:1", "cuda:2", "cuda:1")]

    assert CudaPeak(cuda, tensors).peak_bytes == 50 + 20
    assert set(cuda.requested) == {"cuda:1", "cuda:2"}
    assert CudaPeak(cuda, tensors[:1]).peak_bytes is None
