"""Memory runs on a CPU against the estimates."""

from __future__ import annotations

import shutil

import pytest

from capacity.measure.runs.cpu_runs import cpu_memory_run
from capacity.measure.shape import DecoderShape

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="the CPU decoder is built with g++")


def test_a_memory_run_equals_the_estimates_to_the_byte():
    pytest.importorskip("torch")
    from capacity.validation.reference import compare

    for inner in (96, 192, 640):
        shape = DecoderShape("t", 3, 128, 4, 2, 32, inner, 512, weight_format="fp32", kv_format="fp32")
        for batch, tokens in ((1, 33), (4, 7), (8, 1)):
            pairs = list(compare(cpu_memory_run(shape, batch=batch, tokens=tokens, threads=1, part="none")))
            assert [pair.predicted for pair in pairs] == [pair.measured for pair in pairs]
