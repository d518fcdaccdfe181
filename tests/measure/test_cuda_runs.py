"""What the GPU campaign measures and how it judges that; the campaign itself is rehearsed in test_gpu_campaign.py."""

from __future__ import annotations

import dataclasses
import shutil
from types import SimpleNamespace

import pytest

from capacity.errors import CapacityError
from capacity.measure import cuda_check, cuda_machine, cuda_runs
from capacity.measure.emulator import Emulator
from capacity.measure.shape import DecoderShape
from capacity.measure.weights import random_weights

torch = pytest.importorskip("torch")
torch.set_num_threads(1)
pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="the emulation is built with g++")


@pytest.fixture(scope="session")
def tiny(pretend_cuda):
    """A tiny decoder with weights in bf16."""
    return pretend_cuda.shapes(quick=False)[0]


def test_a_wrong_kernel_is_rejected_and_one_that_gives_no_number_too(monkeypatch, tiny):
    weights = random_weights(tiny)
    good = cuda_check.check_decode(tiny, 2, 40, Emulator(), weights)
    assert good.relative_error < good.tolerance
    for spoil, nan in ((1.001, 0), (float("nan"), 2 * tiny.vocabulary)):

        class Spoilt(cuda_check.ReferenceDecoder):
            def step(self, factor=spoil):
                super().step()
                self.logits.mul_(factor)

        with monkeypatch.context() as patch:
            patch.setattr(cuda_check, "ReferenceDecoder", Spoilt)
            bad = cuda_check.check_decode(tiny, 2, 40, Emulator(), weights)
        assert bad.relative_error > 100 * bad.tolerance
        assert bad.nan_count == nan


def test_what_is_checked_is_cut_as_what_is_timed(monkeypatch, tiny):
    """The whole vocabulary and context, so that blocks, splits and machine code are the same; only layers are fewer."""
    deep = dataclasses.replace(tiny, layers=4)
    made = []

    class Noted(cuda_check.ReferenceDecoder):
        def __init__(self, *given, **options):
            super().__init__(*given, **options)
            made.append(self)

    weights = random_weights(deep)
    monkeypatch.setattr(cuda_check, "ReferenceDecoder", Noted)
    cuda_check.check_decode(deep, 1, 300, Emulator(), weights)
    timed = cuda_check.ReferenceDecoder(deep, 1, 300, Emulator(), weights=weights, advance=False)
    checked = made[0]
    assert (checked.choices(), checked.splits) == (timed.choices(), timed.splits)
    assert checked.splits > 1
    assert len(checked.keys) == 2


def test_a_value_that_is_no_number_after_the_replays_spoils_the_run():
    from capacity.specs.measured_run import Quality

    fine = Quality(relative_error=1e-7, argmax_match=True, tolerance=5e-6)
    assert cuda_check.with_result(fine, torch.ones(3)) == fine
    spoilt = cuda_check.with_result(fine, torch.tensor([1.0, float("nan"), float("inf")]))
    assert spoilt.relative_error > spoilt.tolerance
    assert spoilt.nan_count == 2


@pytest.mark.parametrize("weights", ["bf16", "fp16", "fp32"])
def test_the_check_of_a_prefill_finds_a_wrong_layer(weights, pretend_cuda):
    from capacity.measure.prefill import Prefill

    model = Prefill(DecoderShape(name="t", weight_format=weights, **pretend_cuda.TINY), seed=3)
    prompts = torch.randint(0, 130, (2, 20), generator=torch.Generator().manual_seed(0))
    good = cuda_check.check_prefill(model, prompts)
    assert good.relative_error < good.tolerance
    assert good.argmax_match
    model._rotate = lambda heads: heads
    assert cuda_check.check_prefill(model, prompts).relative_error > 3 * good.tolerance


def test_the_oracle_of_a_prompt_is_that_of_single_steps(pretend_cuda):
    """Two ways through the oracle: all tokens at once, and one after the other into a cache."""
    from capacity.measure import oracle

    shape = DecoderShape(name="t", window=5, **pretend_cuda.TINY)
    weights, tokens = random_weights(shape, seed=1), torch.tensor([5, 99, 7, 120, 31, 8, 0, 17, 64])
    table = torch.zeros(1, 1, dtype=torch.int32)
    keys, values = ([torch.zeros(1, 2, 16, 16, dtype=torch.float64) for _ in range(2)] for _ in range(2))
    for at, token in enumerate(tokens):
        position = torch.tensor([at])
        for _ in range(shape.layers):  # keys of a layer are known once the layer before it has seen its own
            made = oracle.step(shape, weights, token[None], position, keys, values, table)
            for layer in range(shape.layers):
                keys[layer][0, :, at] = made.keys[layer][0]
                values[layer][0, :, at] = made.values[layer][0]
        made = oracle.step(shape, weights, token[None], position, keys, values, table)
    assert oracle.relative_error(oracle.prompt(shape, weights, tokens), made.logits) < 1e-13


def test_samples_do_not_hold_the_launch_by_an_idle_host():
    """A pretended stream: the host takes 2 to launch, the device 30 to run; an idle stream would show 32."""
    from capacity.measure import ceilings

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
    assert ceilings.event_samples_s(fake, run, 4) == pytest.approx((30e-3,) * 4)


def test_a_case_without_room_is_left_out_with_its_sizes(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (10 * 10**9, 80 * 10**9))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: 6 * 10**9)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: 4 * 10**9)
    assert cuda_machine.left_out("a", int(10.8e9)) is None
    assert cuda_machine.left_out("a", int(10.9e9)) == "a left out: it needs 10.9 GB and 12.0 GB are free"


def test_llama_2_7b_at_batch_16_and_8192_tokens_does_not_fit_80_gb():
    """2 x 32 layers x 4096 elements x 2 bytes a token: 68.7 GB of cache, beside which no weights fit into 80 GB."""
    shapes = {one.name: one for one in cuda_runs.shapes(quick=False)}
    assert shapes["cuda-7b-bf16"].cache_bytes(16, 8192) == 2 * 32 * 4096 * 2 * 16 * 8192
    assert shapes["cuda-7b-bf16"].weight_bytes() == 2 * 6_738_415_616  # parameters of meta-llama/Llama-2-7b


def test_each_format_has_a_model_between_the_two_that_are_fitted():
    sizes = {}
    for one in cuda_runs.shapes(quick=False):
        sizes.setdefault(one.weight_format, []).append(one.weight_bytes())
        most = max(batch for batch, _ in cuda_runs.decode_cases(one))
        assert most == (4 if one.weight_format == "int8" else 64)
    for found in sizes.values():
        assert len(found) >= 3
        assert {found[0], found[1]} == {min(found), max(found)}  # the fit's own come first


@pytest.mark.parametrize(("uuid", "asked"), [("ab-cd", "GPU-ab-cd"), ("MIG-1", "MIG-1"), (None, "3")])
def test_the_tool_is_asked_for_the_device_that_torch_uses(monkeypatch, uuid, asked):
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    assert cuda_machine.smi_id(SimpleNamespace(uuid=uuid) if uuid else SimpleNamespace()) == asked


def test_clocks_that_are_not_told_are_left_out(monkeypatch):
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: SimpleNamespace())
    for text, found in (("1980, [N/A], 700.0", {"sm": 1.98e9, "power_limit_w": 700.0}), ("", {})):
        monkeypatch.setattr(cuda_machine, "smi_text", lambda query, device, text=text: text)
        assert cuda_machine.clocks() == found


def test_a_step_is_captured_on_a_device_only(small_shape):
    from capacity.measure.step import ReferenceDecoder

    with pytest.raises(CapacityError, match="CUDA device only"):
        ReferenceDecoder(small_shape(), 1, 64, Emulator()).capture("qkv")


def test_the_steps_for_a_memory_checker_agree_with_the_oracle(capsys):
    from capacity.measure.cuda_runs import tiny_steps

    tiny_steps(Emulator())
    errors = [line.split("error ")[1].split(" of ") for line in capsys.readouterr().out.splitlines()]
    assert len(errors) == 2
    assert all(float(error) < float(limit.rstrip(".")) for error, limit in errors)
