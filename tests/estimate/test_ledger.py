"""A ledger's total comes from the memory table; its lines, made row by row, add up to it."""

from __future__ import annotations

import pytest

import capacity as cap
from capacity.estimate.case import prepare
from capacity.estimate.ledger import ledgers

PART = "nvidia-h200-sxm5-141gb"
SUBJECTS = [*map(cap.load_model, cap.model_ids()), *map(cap.load_world_model, cap.world_model_ids())]


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
def test_lines_add_up_to_the_total(subject):
    case = prepare(subject, cap.load_hardware(PART), cap.Deployment(weights="bf16"))
    for batch, context in [(1, 1), (3, 1000), (64, 5001)]:
        for ledger in ledgers(case.memory, case.budget, case.deploy, batch=batch, context_tokens=context):
            assert sum(line.held_bytes for line in ledger.lines) == ledger.total_bytes
