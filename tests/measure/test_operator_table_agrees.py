"""The reference decoder's own count beside the estimators': two tables that share no code, to the byte."""

from __future__ import annotations

import pytest

import capacity as cap
from capacity.demand import work
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


@pytest.mark.parametrize("weights", ["bf16", "fp16", "int8", "fp32"])
@pytest.mark.parametrize(("batch", "context", "window"), [(1, 1, 0), (3, 100, 0), (4, 1000, 24), (6, 90, 0)])
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
    counted = operator_table(shape, batch, context)
    estimated = list(work.decode_work(model, deploy, batch=batch, context_tokens=context))
    for operator in OPERATORS:
        rows = [row for row in counted if row.operator == operator]
        mine = [item for item in estimated if item.term.operator == operator]
        assert sum(row.flop for row in rows) == sum(int(item.flop) for item in mine), operator
        read = sum(row.weight_bytes + row.kv_read_bytes for row in rows)
        assert read == sum(int(item.moved_bytes) for item in mine), operator


def test_both_tables_count_the_same_launches_of_matrices(make_llama):
    shape = DecoderShape(name="small", **SHAPE)
    model = make_llama("small", 3, 256, 8, 2, 64, 704, 1024)
    counted = sum(row.launches for row in operator_table(shape, 1, 9) if row.operator in OPERATORS)
    terms = work.decode_work(model, cap.Deployment(weights="bf16"), batch=1, context_tokens=9)
    assert counted == sum(item.term.launches for item in terms)


def test_the_cache_of_the_decoder_is_the_estimate_in_whole_blocks(make_llama):
    shape = DecoderShape(name="small", **SHAPE)
    model = make_llama("small", 3, 256, 8, 2, 64, 704, 1024)
    deploy = cap.Deployment(weights="bf16")
    assert shape.cache_bytes(3, 100) == cap.kv_cache_bytes(model, deploy, batch=3, context_tokens=112)
