"""A discrete-event simulation of one replica, written to check closed forms against; it shares no code with them.

First come, first served: a prompt is prefilled alone as soon as a slot is free, while the sequences in decode wait.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np


@dataclass
class Sequence:
    """One request on its way."""

    arrived_s: float
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

    def settled(self):
        """In order of arrival, without the first fifth."""
        order = np.argsort(self.arrived_s)[len(self.arrived_s) // 5 :]
        return Seen(*(column[order] for column in vars(self).values()))


def simulate(arrivals_s, output_tokens, *, slots, prefill_s, step_s):
    """Run all requests to their end; ``step_s(decoding)`` is the time of a decode step of that many sequences."""
    waiting = deque(Sequence(float(at), int(n)) for at, n in zip(arrivals_s, output_tokens, strict=True))
    decoding: list[Sequence] = []
    now, done = 0.0, []
    while waiting or decoding:
        if waiting and waiting[0].arrived_s <= now and len(decoding) < slots:
            sequence = waiting.popleft()
            now += prefill_s
            sequence.first_s, sequence.made = now, 1
            decoding.append(sequence)
        elif decoding:
            now += step_s(len(decoding))
            for sequence in decoding:
                sequence.made += 1
        else:
            now = waiting[0].arrived_s
        for sequence in [item for item in decoding if item.made == item.output_tokens]:
            decoding.remove(sequence)
            done.append((sequence.arrived_s, sequence.first_s, now, sequence.output_tokens))
    return Seen(*np.array(done).T)
