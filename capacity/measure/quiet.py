"""Whether the core that is timed is ours alone: a short loop whose time is known tells a sample that was disturbed.

On a shared machine another tenant of the same core slows arithmetic by a third for seconds at a time, which no counter
of ours shows. The loop works on registers only, so its rate depends on clock and sharing and on nothing else.
"""

from __future__ import annotations

import ctypes
import time
from dataclasses import dataclass, field
from statistics import median

import numpy as np

from capacity.measure import cpu_library

PROBE_ROUNDS = 50_000  # about a tenth of a millisecond
PROBES = 5  # the middle of them counts
FIRST_PROBES = 1000
QUIET_SHARE = 0.9  # of the best rate seen


def multiply_add_flop_per_s(rounds: int) -> float:
    """Rate of multiply-adds on the registers of one thread."""
    seed, result = np.full(32, 0.5, np.float32), ctypes.c_float()
    address = ctypes.c_void_p(seed.ctypes.data)
    start = time.perf_counter()
    done = cpu_library.library().ref_multiply_add(address, ctypes.byref(result), ctypes.c_size_t(rounds))
    return 2.0 * rounds * float(done) / (time.perf_counter() - start)


@dataclass
class QuietCore:
    """Judges samples by a probe before and after each; its best rate is that of all probes so far."""

    best: float = field(default=0.0)

    def __post_init__(self) -> None:
        for _ in range(FIRST_PROBES):
            self.is_quiet()

    def is_quiet(self) -> bool:
        """Whether the rate is now near the best."""
        rate = median(multiply_add_flop_per_s(PROBE_ROUNDS) for _ in range(PROBES))
        self.best = max(self.best, rate)
        return rate >= QUIET_SHARE * self.best
