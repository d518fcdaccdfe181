"""How many robots one replica (mostly one device) decides for, by how their requests reach it."""

from __future__ import annotations

import numpy as np

from capacity.arrays import ArrayLike, BoolArray
from capacity.formulas import sharing
from capacity.studies.control_case import ControlCase
from capacity.studies.control_result import MAX_BATCH, Robots
from capacity.studies.deadline import Timing, late_s, limit_s


def robots_per_device(case: ControlCase, timing: Timing, *, bound_only: bool) -> Robots:
    """Largest numbers of robots served one after another, with batching of unsynchronised and of synchronised requests.

    Served one after another, each robot has a data-parallel rank to itself once per interval between its requests. With
    batching of unsynchronised requests, one that just missed a batch waits for it and then for its own, and a batch
    must be done before its robots ask again; a single robot waits for none.
    """
    batches = np.arange(1, MAX_BATCH + 1)
    (times, estimated), fits = case.decisions_s(range(1, MAX_BATCH + 1)), case.fits(batches)
    request_interval_s = timing.executed_actions * timing.period_s
    together = met(times, timing) & fits
    waits = np.minimum(batches, 2)
    any_time = met(waits * times, timing) & fits & (times <= request_interval_s)
    unbatched = int(sharing.robots_unbatched(times[0], replan_interval_s=request_interval_s)) if together[0] else 0
    return Robots(
        in_turns=unbatched * case.deploy.data_parallel,
        batched_at_any_time=leading(any_time),
        batched_together=leading(together),
        judged=estimated or bound_only,
    )


def met(decision_s: ArrayLike, timing: Timing) -> BoolArray:
    """Whether cycles with these decision times keep the period at the percentile. Shape: of ``decision_s``. [s]"""
    return np.asarray(late_s(decision_s, timing) <= limit_s(timing))


def leading(holds: BoolArray) -> int:
    """Largest n for which a monotone predicate holds, given for 1, 2, 3 ...

    >>> leading(np.array([True, True, False]))
    2
    """
    return int(np.sum(np.logical_and.accumulate(holds)))
