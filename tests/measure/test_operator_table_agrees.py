"""The reference decoder's own count and that of ``demand``: two tables that share no code, to the byte."""

from __future__ import annotations

from collections import Counter

import pytest

import capacity as cap
from capacity.demand.phases import decode_phase
from capacity.measure.operators import operator_table
from capacity.measure.shape import DecoderShape
from capacity.specs.model import Attention, Dense, LayerGroup

OPERATORS = ("qkv", "attention", "output", "gate_up", "down", "head")
SHAPE = {
    "layers": 3,
    "hidden_size": 256,
    "query_heads": 8,
    "kv_heads": 2,
    "head_size": 64,
    "intermediate_size": 704,
    "vocabulary": 1024,
}


def of_the_decoder(shape, batch, context):
    """Bytes read and FLOP by operator, without the keys and values of the step itself.

    The decoder writes these to the cache and reads them back; an engine need not, so ``demand`` counts those before.
    """
    read_bytes, flop = Counter(), Counter()
    for row in operator_table(shape, batch, context):
        read_bytes[row.operator] += row.weight_bytes + row.kv_read_bytes
        read_bytes["attention"] -= row.kv_write_bytes
        flop[row.operator] += row.flop
    return {name: (read_bytes[name], flop[name]) for name in OPERATORS}


def of_demand(model, deploy, batch, context):
    """Bytes read and FLOP by operator."""
    work = decode_phase(model, deploy, batch=batch, context_tokens=context).work
    moved_bytes, flop = Counter(), Counter()
    for block in work.blocks:
        for row, operator in enumerate(block.operators):
            moved_bytes[operator] += int(block.moved_bytes[row])
            flop[operator] += int(block.flop[row])
    return {name: (moved_bytes[name], flop[name]) for name in OPERATORS}


@pytest.mark.parametrize("weights", ["bf16", "fp16", "int8", "fp32"])
@pytest.mark.parametrize(
    ("batch", "context", "window"), [(1, 1, 0), (3, 100, 0), (4, 1000, 24), (2, 24, 24), (2, 25, 24), (6, 90, 0)]
)
def test_both_tables_count_the_same_bytes_and_flop(weights, batch, context, window, make_decoder):
    shape = DecoderShape(name="small", weight_format=weights, window=window, **SHAPE)
    group = LayerGroup(
        indices=(0, 1, 2),
        mixer=Attention(
            query_heads=8, kv_heads=2, head_size=64, span="sliding" if window else "full", window=window or None
        ),
        feed_forward=Dense(intermediate_size=704),
    )
    model = make_decoder("small", 256, 1024, [group])
    deploy = cap.Deployment(weights=weights, kv_cache="bf16")
    assert of_the_decoder(shape, batch, context) == of_demand(model, deploy, batch, context)


def test_both_tables_count_the_same_launches_of_matrices(make_llama):
    shape = DecoderShape(name="small", **SHAPE)
    model = make_llama("small", 3, 256, 8, 2, 64, 704, 1024)
    counted = sum(row.launches for row in operator_table(shape, 1, 9) if row.operator in OPERATORS)
    assert counted == decode_phase(model, cap.Deployment(weights="bf16"), batch=1, context_tokens=9).launches


def test_the_cache_of_the_decoder_is_the_estimate_in_whole_blocks(make_llama):
    shape = DecoderShape(name="small", **SHAPE)
    model = make_llama("small", 3, 256, 8, 2, 64, 704, 1024)
    deploy = cap.Deployment(weights="bf16")
    assert shape.cache_bytes(3, 100) == cap.kv_cache_bytes(model, deploy, batch=3, context_tokens=112)
