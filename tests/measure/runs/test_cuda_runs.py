"""Runs of the CUDA decoder that the rehearsal of the whole campaign (test_gpu_campaign.py) leaves out."""

from __future__ import annotations

import shutil

import pytest

from capacity.measure.decoder.cuda.emulator import Emulator
from capacity.measure.runs.cuda_runs import tiny_steps

torch = pytest.importorskip("torch")
torch.set_num_threads(1)


@pytest.mark.skipif(shutil.which("g++") is None, reason="the emulation is built with g++")
def test_the_steps_for_a_memory_checker_agree_with_the_oracle(capsys):
    tiny_steps(Emulator())
    errors = [line.split("error ")[1].split(" of ") for line in capsys.readouterr().out.splitlines()]
    assert len(errors) == 2
    assert all(float(error) < float(limit.rstrip(".")) for error, limit in errors)
