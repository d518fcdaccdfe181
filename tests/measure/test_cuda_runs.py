"""The GPU campaign rehearsed on the emulation: every record is made, written, read, and set beside the estimates."""

from __future__ import annotations

import dataclasses
import shutil
from types import SimpleNamespace

import pytest

from capacity.errors import CapacityError
from capacity.measure import campaign, cuda_check, cuda_machine, cuda_runs
from capacity.measure.emulator import Emulator
from capacity.measure.records import read_runs
from capacity.measure.shape import DecoderShape
from capacity.measure.weights import random_weights

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="the emulation is built with g++")


@pytest.fixture(scope="session")
def tiny(pretend_cuda):
    """A tiny decoder with weights in bf16."""
    return pretend_cuda.shapes(quick=False)[0]


@pytest.fixture(scope="module")
def rehearsed(pretend_cuda, tmp_path_factory):
    """The records of a whole campaign, by kind, as read back from their file."""
    path = tmp_path_factory.mktemp("rehearsal") / "runs.jsonl"
    with pytest.MonkeyPatch.context() as patch, pretend_cuda.OnProcessor():
        pretend_cuda.put_in_place(patch)
        done = campaign.run("all", "cuda", out=path)
    assert not done.failed
    runs = read_runs(path)
    assert len(runs) == done.runs
    return {kind: [run for run in runs if run.kind == kind] for kind in ("ceiling", "memory", "decode", "prefill")}


def test_a_campaign_makes_every_kind_of_record(rehearsed):
    assert {kind: len(runs) for kind, runs in rehearsed.items()} == {
        "ceiling": 1,
        "memory": 2,
        "decode": 3,
        "prefill": 2,
    }


def test_a_record_says_on_what_it_was_made(rehearsed):
    run = rehearsed["decode"][0]
    assert (run.source, run.code_commit) == ("gpu", "rehearsal")
    assert (run.machine.device_name, run.machine.part) == ("NVIDIA H200", "nvidia-h200-sxm5-141gb")
    assert (run.machine.driver, run.machine.ecc, run.machine.power_limit_w) == ("580.1", True, 700)
    assert dict(run.machine.clock_hz_before) == {"sm": 1.98e9, "memory": 3.201e9}
    assert run.software.backend == run.software.compiler.split()[0]


def test_decode_runs_are_checked_and_say_how_they_were_cut(rehearsed):
    plain, narrow, int8 = rehearsed["decode"]
    for run in rehearsed["decode"]:
        assert run.quality.relative_error < run.quality.tolerance
        assert run.quality.argmax_match
        assert run.quality.nan_count == 0
        assert (run.clock, run.software.graph, len(run.samples_s)) == ("cuda_event", True, 3)
    assert [run.workload.batch for run in rehearsed["decode"]] == [1, 5, 1]  # int8 up to batch 4 only
    assert [run.software.gemm_backend for run in (plain, narrow)] == ["simt", "torch.mm"]
    assert {"QKV_PAIRS", "QKV_SPLIT", "MATRIX_THREADS", "DOWN_STAGED", "QKV_BLOCKS"} <= set(int8.software.launch)
    assert plain.software.launch["BATCH"] == 1
    assert set(plain.operator_s) == {"embed", "qkv", "attention", "output", "gate_up", "down", "head", "argmax"}


def test_prefills_are_checked_before_they_are_timed(rehearsed):
    for run in rehearsed["prefill"]:
        assert 0 < run.quality.relative_error < run.quality.tolerance


def test_memory_comes_in_two_records_that_the_estimates_meet(rehearsed, pretend_cuda):
    from capacity.validation.reference import compare

    held, arena = rehearsed["memory"]
    assert held.memory.max_batch is None
    assert held.memory.context_bytes is None  # stands in the ceilings
    found = {pair.group: pair for pair in compare(held)}
    assert all(pair.predicted == pair.measured for pair in found.values())
    assert found["activation peak"].measured == pretend_cuda.PEAK_BYTES
    measured = [held.memory.weight_bytes, held.memory.kv_bytes, held.memory.kv_allocated_bytes]
    assert [found[name].measured for name in ("weights", "kv cache", "kv cache in blocks")] == measured
    # Two sequences of 20 tokens, 2 layers, keys and values of 2 x 16 elements in 2 bytes; blocks of 16 tokens.
    assert measured[1:] == [2 * 20 * 2 * 2 * 32 * 2, 2 * 32 * 2 * 2 * 32 * 2]
    assert arena.memory.max_batch > 0
    assert arena.memory.kv_bytes is None


def test_ceilings_hold_reads_copies_and_a_peak_for_each_format(rehearsed, pretend_cuda):
    values = rehearsed["ceiling"][0].values
    assert {f"{name}_gemm_flop_per_s" for name in ("bf16", "fp16", "fp32", "int8")} <= set(values)
    assert values["context_bytes"] == pretend_cuda.TOTAL_BYTES - pretend_cuda.FREE_BYTES
    assert all(value > 0 for value in values.values())


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
