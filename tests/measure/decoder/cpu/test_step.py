"""The CPU decoder against float64, and its own counts against the operator table."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from capacity.measure.decoder.cpu.library import library
from capacity.measure.decoder.cpu.step import CpuDecoder
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
    """5e-6 of the norm: fp32 sums; weights are exact in all formats, so that none needs a wider limit."""
    torch = pytest.importorskip("torch")
    from capacity.measure.decoder import oracle

    shape = DecoderShape(name="t", weight_format=weights, window=window, **SIZES)
    decoder = CpuDecoder(shape, batch, context)
    token, position, table = (
        torch.from_numpy(array.copy()) for array in (decoder.tokens, decoder.positions, decoder.block_table)
    )
    decoder.step()
    caches = decoder.cache_tensors()
    expected = oracle.step(shape, decoder.weights.stored_weights(), token, position, *caches, table)
    assert oracle.relative_error(torch.from_numpy(decoder.workspace["logits"]), expected.logits) < 5e-6
    for stored, exact in zip(caches, (expected.keys, expected.values), strict=True):
        for cache, rows in zip(stored, exact, strict=True):
            assert oracle.relative_error(oracle.stored_rows(shape, cache, table, position), rows) < 5e-6


@pytest.mark.parametrize("weights", ["fp32", "bf16", "int8"])
def test_what_ran_counts_as_the_operator_table_does(weights):
    shape = DecoderShape(name="t", weight_format=weights, **SIZES)
    counts = CpuDecoder(shape, 3, 50).counts()
    table = operator_table(shape, 3, 50)
    for name in ("qkv", "attention", "output", "gate_up", "down", "head"):
        ran = [count for count in counts if count.operator == name]
        listed = [count for count in table if count.operator == name]
        assert sum(count.flop for count in ran) == sum(count.flop for count in listed)
        read_bytes = sum(count.weight_bytes + count.kv_read_bytes for count in ran)
        assert read_bytes == sum(count.weight_bytes + count.kv_read_bytes for count in listed)


def test_loading_the_kernels_leaves_subnormal_numbers_on():
    """A library linked with -ffast-math flushes them to zero in the whole process."""
    library()
    assert np.float64(5e-324) * np.float64(1.0) > 0
    assert np.float64(2.3e-308) / np.float64(4.0) > 0
