"""The CPU decoder against float64, its own counts against the table and the estimates, and its memory to the byte."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

import capacity as cap
from capacity.demand import work
from capacity.errors import CapacityError
from capacity.measure.memory_probe import largest_batch
from capacity.measure.operators import operator_table
from capacity.measure.shape import DecoderShape

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="the CPU decoder is built with g++")
SIZES = {
    "layers": 3,
    "hidden_size": 128,
    "query_heads": 4,
    "kv_heads": 2,
    "head_size": 32,
    "intermediate_size": 192,
    "vocabulary": 512,
    "kv_format": "fp32",
}


@pytest.mark.parametrize("weights", ["fp32", "bf16", "int8"])
@pytest.mark.parametrize(("batch", "context", "window"), [(1, 1, 0), (3, 50, 0), (9, 33, 20), (16, 17, 0)])
def test_a_step_agrees_with_float64(weights, batch, context, window):
    """5e-6 of the norm: fp32 sums; weights are exact in all formats, so none is looser."""
    from capacity.measure.cpu_decoder import CpuDecoder
    from capacity.measure.cpu_oracle import logits

    decoder = CpuDecoder(DecoderShape(name="t", weight_format=weights, window=window, **SIZES), batch, context)
    expected = logits(decoder)
    decoder.step()
    found = decoder.workspace["logits"]
    assert np.linalg.norm(found - expected) < 5e-6 * np.linalg.norm(expected)


@pytest.mark.parametrize("weights", ["fp32", "bf16", "int8"])
def test_what_ran_counts_as_the_operator_table_and_the_estimate_do(weights, make_llama):
    from capacity.measure.cpu_decoder import CpuDecoder

    shape = DecoderShape(name="t", weight_format=weights, **SIZES)
    counts = CpuDecoder(shape, 3, 50).counts()
    table = operator_table(shape, 3, 50)
    deploy = cap.Deployment(weights=weights, activations="fp32", kv_cache="fp32")
    estimated = list(work.decode_work(make_llama("t", 3, 128, 4, 2, 32, 192, 512), deploy, batch=3, context_tokens=50))
    for name in ("qkv", "attention", "output", "gate_up", "down", "head"):
        mine = [c for c in counts if c.operator == name]
        listed = [c for c in table if c.operator == name]
        assert sum(c.flop for c in mine) == sum(c.flop for c in listed)
        read = sum(c.weight_bytes + c.kv_read_bytes for c in mine)
        assert read == sum(c.weight_bytes + c.kv_read_bytes for c in listed)
        assert read == sum(int(item.moved_bytes) for item in estimated if item.term.operator == name)


def test_a_memory_run_equals_the_estimates_to_the_byte():
    pytest.importorskip("torch")
    from capacity.measure.harness import cpu_memory_run
    from capacity.validation.reference import compare

    for inner in (96, 192, 640):
        shape = DecoderShape(name="t", weight_format="fp32", **(SIZES | {"intermediate_size": inner}))
        for batch, tokens in ((1, 33), (4, 7), (8, 1)):
            pairs = list(compare(cpu_memory_run(shape, batch=batch, tokens=tokens, threads=1, part="none")))
            assert [pair.predicted for pair in pairs] == [pair.measured for pair in pairs]


def test_loading_the_kernels_leaves_subnormal_numbers_on():
    """A library linked with -ffast-math flushes them to zero in the whole process."""
    from capacity.measure.cpu_library import library

    library()
    assert np.float64(5e-324) * np.float64(1.0) > 0
    assert np.float64(2.3e-308) / np.float64(4.0) > 0


@pytest.mark.parametrize("best", [0, 1, 2, 3, 7, 8, 100])
def test_bisection_finds_the_largest_batch(best):
    asked = []

    def fits(n):
        asked.append(n)
        return n <= best

    assert largest_batch(fits) == best
    assert len(asked) < 20


def test_bisection_stops_at_its_limit():
    assert largest_batch(lambda n: True, limit=100) == 100


def test_measuring_on_cuda_without_a_device_is_one_sentence(tmp_path):
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a device")
    from capacity.measure import campaign

    with pytest.raises(CapacityError, match="no CUDA device"):
        campaign.run("all", "cuda", out=tmp_path / "runs.jsonl")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("kind", "device"), [("dream", "cpu"), ("all", "tpu")])
def test_an_unknown_kind_or_device_is_refused(kind, device, tmp_path):
    from capacity.measure import campaign

    with pytest.raises(CapacityError, match=r"unknown (kind|device)"):
        campaign.run(kind, device, out=tmp_path / "runs.jsonl")
