"""The scope of a calibration: what it may leave out and what it may not."""

from __future__ import annotations

import pytest

from capacity.errors import SpecError
from capacity.specs.calibration import Scope


@pytest.mark.parametrize(
    ("ends", "sentence"),
    [
        ({"largest_batch": 16}, "both largest_batch and largest_context_tokens, or neither"),
        ({"largest_context_tokens": 1024}, "both largest_batch and largest_context_tokens, or neither"),
        ({"largest_batch": 0, "largest_context_tokens": 1024}, "largest_batch"),
        ({"largest_batch": 16, "largest_context_tokens": 2.5}, "largest_context_tokens"),
    ],
)
def test_a_measured_range_has_two_whole_ends(ends, sentence):
    with pytest.raises(SpecError, match=sentence):
        Scope.parse({"model_kind": "language", "engine": "reference", **ends}, "reference.toml")


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("model_kind", "speech", "model_kind: must be 'language' or 'world'"),
        ("phase", "encode", "phase: must be 'decode' or 'prefill'"),
        ("launch_mode", "warp", "launch_mode: must be 'eager', 'compiled', 'graph' or 'tuned'"),
        ("launch_modes", "graph", "unknown field 'launch_modes'; nearest: launch_mode"),
    ],
)
def test_a_scope_of_an_unknown_kind_is_one_sentence(field, value, sentence):
    with pytest.raises(SpecError, match=sentence):
        Scope.parse({"model_kind": "world", field: value}, "world.toml")


def test_a_scope_without_a_range_has_neither_end():
    scope = Scope.parse({"model_kind": "world", "launch_mode": "graph"}, "world.toml")

    assert (scope.largest_batch, scope.largest_context_tokens) == (None, None)
