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
        Scope.parse({"engine": "reference", **ends}, "reference.toml")


def test_a_scope_without_a_range_has_neither_end():
    scope = Scope.parse({"engine": "world", "launch_mode": "graph"}, "world.toml")

    assert (scope.largest_batch, scope.largest_context_tokens) == (None, None)
