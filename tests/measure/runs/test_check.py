"""The check of a run against the oracle: it accepts the decoders and rejects what was broken on purpose."""

from __future__ import annotations

import dataclasses
import shutil

import pytest

from capacity.measure.decoder.cpu import step as cpu_step
from capacity.measure.decoder.cpu.weights import random_weights as cpu_weights
from capacity.measure.decoder.cuda.emulator import Emulator
from capacity.measure.decoder.prefill import Prefill
from capacity.measure.decoder.weights import random_weights
from capacity.measure.runs import check
from capacity.measure.runs.quality import with_result
from capacity.measure.shape import DecoderShape
from capacity.specs.measured_run import Quality

torch = pytest.importorskip("torch")
torch.set_num_threads(1)
pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="decoder and emulation are built with g++")


@pytest.fixture(scope="session")
def tiny(pretend_cuda):
    """A tiny decoder with weights in bf16."""
    return pretend_cuda.shapes(quick=False)[0]


def test_a_wrong_kernel_and_one_that_returns_nan_are_rejected(monkeypatch, tiny):
    weights = random_weights(tiny)
    good = check.check_cuda_decode(tiny, 2, 40, Emulator(), weights)
    assert good.relative_error < good.tolerance
    for factor, nan in ((1.001, 0), (float("nan"), 2 * tiny.vocabulary)):

        class Wrong(check.CudaDecoder):
            def step(self, factor=factor):
                super().step()
                self.logits.mul_(factor)

        with monkeypatch.context() as patch:
            patch.setattr(check, "CudaDecoder", Wrong)
            bad = check.check_cuda_decode(tiny, 2, 40, Emulator(), weights)
        assert bad.relative_error > 100 * bad.tolerance
        assert bad.nan_count == nan


def test_the_checked_step_has_the_plan_of_the_timed_one(monkeypatch, tiny):
    """The whole vocabulary and context, so that blocks, splits and machine code are the same; only layers are fewer."""
    deep = dataclasses.replace(tiny, layers=4)
    created = []

    class Recording(check.CudaDecoder):
        def __init__(self, *given, **options):
            super().__init__(*given, **options)
            created.append(self)

    weights = random_weights(deep)
    monkeypatch.setattr(check, "CudaDecoder", Recording)
    check.check_cuda_decode(deep, 1, 300, Emulator(), weights)
    timed = check.CudaDecoder(deep, 1, 300, Emulator(), weights=weights, advance=False)
    checked = created[0]
    assert (checked.choices(), checked.splits) == (timed.choices(), timed.splits)
    assert checked.splits > 1
    assert len(checked.keys) == 2


def test_a_nan_after_the_replays_fails_the_run():
    fine = Quality(relative_error=1e-7, argmax_match=True, tolerance=5e-6)
    assert with_result(fine, torch.ones(3)) == fine
    failed = with_result(fine, torch.tensor([1.0, float("nan"), float("inf")]))
    assert failed.relative_error > failed.tolerance
    assert failed.nan_count == 2


@pytest.mark.parametrize("weights", ["bf16", "fp16", "fp32"])
def test_the_check_of_a_prefill_finds_a_wrong_layer(weights, pretend_cuda):
    model = Prefill(DecoderShape(name="t", weight_format=weights, **pretend_cuda.TINY), seed=3)
    prompts = torch.randint(0, 130, (2, 20), generator=torch.Generator().manual_seed(0))
    good = check.check_prefill(model, prompts)
    assert good.relative_error < good.tolerance
    assert good.argmax_match
    model._rotate = lambda heads: heads
    assert check.check_prefill(model, prompts).relative_error > 3 * good.tolerance


CPU_SHAPE = DecoderShape("t", 3, 128, 4, 2, 32, 192, 512, weight_format="bf16", kv_format="fp32")


def test_a_step_on_a_cpu_is_accepted():
    quality = check.check_cpu_decode(CPU_SHAPE, 3, 50, cpu_weights(CPU_SHAPE, seed=0))
    assert quality.relative_error < quality.tolerance
    assert quality.argmax_match


@pytest.mark.parametrize("array", ["keys", "values"])
def test_a_key_or_value_that_was_stored_wrongly_is_rejected(monkeypatch, array):
    """One element of one sequence, off by a thousandth, which the logits of a later step would hardly show."""

    class Wrong(cpu_step.CpuDecoder):
        def step(self):
            super().step()
            block, at = self.block_table[1, 49 // 16], 49 % 16
            index = at if array == "keys" else at * 32  # keys lie transposed in their block
            getattr(self, array)[1, block, 0, index] += 1e-3

    monkeypatch.setattr(check, "CpuDecoder", Wrong)
    quality = check.check_cpu_decode(CPU_SHAPE, 3, 50, cpu_weights(CPU_SHAPE, seed=0))
    assert quality.relative_error > 10 * quality.tolerance


@pytest.mark.parametrize("factor", [1.001, float("nan")])
def test_wrong_logits_of_a_step_on_a_cpu_are_rejected(monkeypatch, factor):
    class Wrong(cpu_step.CpuDecoder):
        def step(self):
            super().step()
            self.workspace["logits"] *= factor

    monkeypatch.setattr(check, "CpuDecoder", Wrong)
    quality = check.check_cpu_decode(CPU_SHAPE, 3, 50, cpu_weights(CPU_SHAPE, seed=0))
    assert quality.relative_error > 100 * quality.tolerance
