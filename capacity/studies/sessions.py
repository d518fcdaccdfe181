"""Sessions of an interactive world model on one device: the time of a frame, and the memory of growing caches."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from capacity.arrays import ArrayLike, FloatArray
from capacity.demand.decisions import decision_phases
from capacity.demand.stage_phase import Phase
from capacity.engines.budget import Budget
from capacity.estimate import memory
from capacity.estimate.case import Case
from capacity.estimate.decision import decision_figures
from capacity.estimate.time import total
from capacity.estimate.usage import cache_bytes
from capacity.formulas import sharing
from capacity.specs.world import WorldModelSpec
from capacity.studies.robots import leading
from capacity.studies.what_if import max_batch_of

PER_FRAME = ("decode", "denoise", "plan", "detokenise")
MAX_BATCH = 256  # sessions that a batch is tried for


@dataclass(frozen=True, eq=False)
class Sessions:
    """What the time and the memory of sessions depend on. [B]"""

    case: Case
    world: WorldModelSpec
    taken_bytes: int

    def phases(self, sessions: ArrayLike, cached_tokens: int) -> tuple[Phase, ...]:
        """The phases of batches whose frames end with ``cached_tokens`` in each cache."""
        start = max(0, cached_tokens - self.world.answer_tokens)
        return decision_phases(self.world, self.case.deploy, batch=sessions, context_tokens=start)

    def frame_s(self, sessions: ArrayLike, cached_tokens: int) -> tuple[FloatArray, FloatArray, bool]:
        """Time of one frame of a batch, its bound, and whether the time is an estimate. Shape: ``sessions``. [s]"""
        figures = decision_figures(self.case, self.phases(sessions, cached_tokens))
        per_frame = [item for item in figures if item.phase.name in PER_FRAME]
        times = total([item.bound_s if item.value_s is None else item.value_s for item in per_frame])
        return times, total([item.bound_s for item in per_frame]), all(item.value_s is not None for item in figures)

    def in_time(self, budget_s: float, cached_tokens: int) -> int:
        """Largest number of sessions whose frames of one batch stay within the budget."""
        times, _, _ = self.frame_s(np.arange(1, MAX_BATCH + 1), cached_tokens)
        return leading(np.broadcast_to(times, MAX_BATCH) <= budget_s)

    def session_bytes(self, cached_tokens: int) -> int:
        """Cache and state of one session. [B]"""
        (kind,) = self.case.memory.kinds
        cache = cache_bytes(kind.totals, sequences=1, context_tokens=cached_tokens)
        return int(cache) + kind.totals.sequence_bytes

    @property
    def token_bytes(self) -> int:
        """Cache of one more token. [B]"""
        return self.session_bytes(2) - self.session_bytes(1)

    def needed_bytes(self, sessions: int, cached_tokens: int) -> int:
        """All memory of one device with these sessions. [B]"""
        case = self.case
        return memory.heaviest_bytes(case.memory, case.deploy, batch=sessions, context_tokens=cached_tokens)

    @property
    def budget(self) -> Budget:
        """What the engine may plan with, less what other programs hold."""
        return self.case.budget.less(self.taken_bytes)

    def in_memory(self, cached_tokens: int) -> int:
        """Largest number of sessions that fit; 2^31 where memory does not limit them. [session]"""
        return max_batch_of(self.case, self.budget, cached_tokens)

    def seconds_until_full(self, sessions: int, window_tokens: int | None, growth_bytes_per_s: float) -> float | None:
        """Time from the start until the caches have filled the memory; None where they stop growing before. [s]"""
        case, start = self.case, self.world.prompt_tokens
        longest = int(memory.max_context(case.memory, self.budget, case.deploy, batch=sessions, positions=None)[1])
        if window_tokens is not None and window_tokens <= longest:
            return None
        if growth_bytes_per_s == 0:
            return None if max(start, 1) <= longest else 0.0
        free = self.session_bytes(max(start, longest)) - self.session_bytes(start)
        return float(sharing.seconds_until_full(free, sessions=1, bytes_per_s=growth_bytes_per_s))


def frame_tokens(world: WorldModelSpec) -> int:
    """Tokens that a frame adds to the context: its own and those of the action. [token]"""
    return (world.answer_tokens or world.image_tokens) + world.state_tokens
