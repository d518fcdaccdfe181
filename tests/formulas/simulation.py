"""A discrete-event simulation of one replica, written to check closed forms against; it shares no code with them.

Requests come first come first served. Without chunks a prompt is prefilled alone as soon as a slot is free, while the
sequences in decode wait; with chunks at most one chunk of one prompt rides along in each pass.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np


@dataclass
class Sequence:
    """One request on its way."""

    arrived_s: float
    chunks: int
    output_tokens: int
    first_s: float = 0.0
    made: int = 0


@dataclass(frozen=True)
class Seen:
    """Finished requests: arrival, first token and end of each, and the tokens they made. [s]"""

    arrived_s: np.ndarray
    first_s: np.ndarray
    finished_s: np.ndarray
    output_tokens: np.ndarray

    def after(self, share):
        """Without those that finished first, while the replica filled."""
        start = int(len(self.finished_s) * share)
        return Seen(*(column[start:] for column in vars(self).values()))

    @property
    def requests_per_s(self):
        """Finished requests over the time from the first of them to the last."""
        return (len(self.finished_s) - 1) / (self.finished_s[-1] - self.finished_s[0])

    @property
    def ttft_s(self):
        return self.first_s - self.arrived_s

    @property
    def tpot_s(self):
        return (self.finished_s - self.first_s) / (self.output_tokens - 1)


def simulate(arrivals_s, output_tokens, *, slots, chunks, prefill_s, step_s):
    """Run all requests to their end.

    ``prefill_s(decoding)`` is the time of a pass with one chunk and that many sequences in decode, ``step_s(decoding)``
    that of a decode step. ``chunks`` is 0 for prompts that are prefilled alone.
    """
    waiting = deque(
        Sequence(float(at), max(chunks, 1), int(n)) for at, n in zip(arrivals_s, output_tokens, strict=True)
    )
    prefilling: Sequence | None = None
    decoding: list[Sequence] = []
    now, done = 0.0, []
    while waiting or prefilling or decoding:
        if prefilling is None and waiting and waiting[0].arrived_s <= now and len(decoding) < slots:
            prefilling = waiting.popleft()
        if prefilling is None and not decoding:
            now = max(now, waiting[0].arrived_s)
            continue
        riding = [] if prefilling and not chunks else list(decoding)
        now += prefill_s(len(riding)) if prefilling else step_s(len(riding))
        for sequence in riding:
            sequence.made += 1
        if prefilling:
            prefilling.chunks -= 1
            if prefilling.chunks == 0:
                prefilling.first_s, prefilling.made = now, 1
                decoding.append(prefilling)
                prefilling = None
        for sequence in [item for item in decoding if item.made == item.output_tokens]:
            decoding.remove(sequence)
            done.append((sequence.arrived_s, sequence.first_s, now, sequence.output_tokens))
    return Seen(*np.array(done).T)
