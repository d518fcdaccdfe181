"""One replica in steady state: its rates by concurrency, the largest concurrency within objectives, and arrivals.

A prompt is prefilled alone as soon as a sequence ends, while the others wait: the simplest schedule of an engine.
Data-parallel ranks work on sequences of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import ceil

import numpy as np

from capacity.arrays import BoolArray, FloatArray, IntArray
from capacity.estimate import memory, request
from capacity.estimate.case import Case
from capacity.formulas import queueing, steady_state
from capacity.results import Estimate
from capacity.specs.workload import Workload
from capacity.studies.provenance import evidence
from capacity.studies.sustained_result import Arrivals, Figure, Rates

SIDES = ("bound", "roofline", "attainable", "value")
POINTS = 1024  # numbers of sequences tried in one vectorised call


@dataclass(frozen=True, eq=False)
class Steady:
    """Requests of one kind on a replica."""

    case: Case
    load: Workload

    @property
    def ranks(self) -> int:
        """Data-parallel ranks, each with sequences of its own. [1]"""
        return self.case.deploy.data_parallel

    @cached_property
    def max_batch(self) -> int:
        """Sequences that memory and the deployment allow. [sequence]"""
        case = self.case
        return int(memory.max_batch(case.memory, case.budget, case.deploy, context_tokens=self.load.memory_tokens))

    @cached_property
    def prefill(self) -> Estimate:
        """One prompt on each rank."""
        return request.ttft(self.case, batch=self.ranks, prompt_tokens=self.load.prompt_tokens)

    @cached_property
    def rests_on(self) -> str:
        """The best side there is: calibrated, else attainable, else the roofline."""
        step = self.steps(np.array([1]))
        for side in ("value", "attainable"):
            if getattr(self.prefill, side) is not None and getattr(step, side) is not None:
                return side
        return "roofline"

    def steps(self, batch: IntArray) -> Estimate:
        """Decode steps of numbers of sequences, at the mean context of their answers."""
        return request.tpot(self.case, batch=batch, context_tokens=self.load.mean_context_tokens)

    def requests_per_s(self, side: str, step_s: FloatArray, batch: IntArray) -> FloatArray:
        """Requests per second of the replica on one side but the bound. Shape: of the batch. [1/s]"""
        prompt_s = getattr(self.prefill, side)
        per_rank = batch / self.ranks
        rate = steady_state.requests_per_s(prompt_s, step_s, batch=per_rank, output_tokens=self.load.output_tokens)
        return self.ranks * rate

    def served_tpot_s(self, side: str, step_s: FloatArray, batch: IntArray) -> FloatArray:
        """Time per output token with the prefill of others, which a bound leaves out. Shape: of the batch. [s]"""
        if side == "bound":
            return step_s
        per_rank = np.maximum(batch / self.ranks, 1.0)
        prompt_s, tokens = getattr(self.prefill, side), self.load.output_tokens
        return steady_state.served_tpot_s(prompt_s, step_s, batch=per_rank, output_tokens=tokens)

    def max_requests_per_s(self, batch: int) -> float:
        """Upper bound at this batch: each rank as if it held as many sequences as the fullest. [1/s]"""
        load, case = self.load, self.case
        _, prompt_s = request.busy_s(case, request.first_token_of(case, self.ranks, load.prompt_tokens))
        step = request.decode_of(case, batch=batch, context_tokens=load.mean_context_tokens)
        memory_s, compute_s = request.busy_s(case, (step,))
        if case.deploy.pipeline_parallel > 1:  # stages work on different requests: their times do not add up
            memory_s, compute_s = self.steps(np.array([batch])).bound, np.asarray(0.0)
        per_rank = {"batch": ceil(batch / self.ranks), "output_tokens": load.output_tokens}
        return self.ranks * float(np.max(steady_state.max_requests_per_s(prompt_s, compute_s, memory_s, **per_rank)))

    def rates(self, batch: int) -> Rates:
        """All figures with ``batch`` requests always in flight."""
        numbers, tokens = np.array([batch]), self.load.output_tokens
        steps = {side: step for side in SIDES if (step := self._step_s(side, numbers)) is not None}
        tpot = {side: float(self.served_tpot_s(side, step, numbers)[0]) for side, step in steps.items() if tokens > 1}
        first = {side: float(getattr(self.prefill, side) + step[0]) for side, step in steps.items()}
        rate = {side: self.rate_on(side, batch) for side in steps if side != "bound"}
        rate["bound"], first["bound"] = self.max_requests_per_s(batch), float(self.prefill.bound)
        return Rates(
            concurrency=batch,
            requests_per_s=_figure(rate),
            tokens_per_s=_figure({side: value * tokens for side, value in rate.items()}),
            tpot_s=_figure(tpot) if tpot else None,
            ttft_s=_figure(first),
        )

    def _step_s(self, side: str, batch: IntArray) -> FloatArray | None:
        """Decode steps on one side; None where step or prefill has none. Shape: of the batch. [s]"""
        step: FloatArray | None = getattr(self.steps(batch), side)
        return None if getattr(self.prefill, side) is None else step

    def largest(self) -> tuple[int, str]:
        """The largest concurrency within memory and objectives, and what limits it. [sequence]"""
        if self.max_batch == 0:
            return 0, "memory"
        largest = largest_where(lambda batch: self._within(batch)[0], self.max_batch)
        if largest == self.max_batch:
            allowed = self.case.deploy.max_sequences
            return largest, "max_sequences" if allowed == largest else "memory"
        tpot_holds = self._within(np.array([largest + 1]))[1]
        return largest, "TTFT" if bool(tpot_holds[0]) else "TPOT"

    def _within(self, batch: IntArray) -> tuple[BoolArray, BoolArray]:
        """Whether both objectives are kept with numbers of sequences, and whether that of TPOT is."""
        load, side = self.load, self.rests_on
        step_s = getattr(self.steps(batch), side)
        tpot_s = self.served_tpot_s(side, step_s, batch) if load.output_tokens > 1 else np.zeros(len(batch))
        tpot_holds = tpot_s <= (load.max_tpot_s or np.inf)
        return tpot_holds & (getattr(self.prefill, side) + step_s <= (load.max_ttft_s or np.inf)), tpot_holds

    def arrivals(self) -> Arrivals | None:
        """Requests that arrive at random, spread evenly over replicas; None where no request keeps the objectives."""
        rate, (max_sequences, _) = self.load.requests_per_s, self.largest()
        if rate is None or max_sequences == 0:
            return None
        max_rate = self.rate_on(self.rests_on, max_sequences)
        replicas = ceil(rate / max_rate)
        own_rate = rate / replicas
        batch = 1 + largest_where(lambda numbers: self._rates_on(self.rests_on, numbers) < own_rate, max_sequences - 1)
        tpot_s, ttft_s, tail_s = self._times(batch, own_rate)
        within_objectives = tpot_s <= (self.load.max_tpot_s or np.inf) and (tail_s or ttft_s) <= (
            self.load.max_ttft_s or np.inf
        )
        return Arrivals(
            requests_per_s=rate,
            max_requests_per_s=max_rate,
            replicas=replicas,
            utilisation=own_rate / max_rate,
            concurrency=batch,
            tpot_s=tpot_s,
            ttft_s=ttft_s,
            percentile=self.load.percentile,
            ttft_percentile_s=tail_s,
            within=within_objectives if self.load.max_ttft_s or self.load.max_tpot_s else None,
        )

    def rate_on(self, side: str, batch: int) -> float:
        """Requests per second on one side but the bound, with a number of sequences. [1/s]"""
        return float(self._rates_on(side, np.array([batch]))[0])

    def _rates_on(self, side: str, batch: IntArray) -> FloatArray:
        return self.requests_per_s(side, getattr(self.steps(batch), side), batch)

    def _times(self, batch: int, rate: float) -> tuple[float, float, float | None]:
        """TPOT, longer by the share of prefill, and TTFT with the wait for prompts ahead: mean and percentile. [s]"""
        prompt_s, step = (
            float(getattr(self.prefill, self.rests_on)),
            getattr(self.steps(np.array([batch, batch + 1])), self.rests_on),
        )
        share, step_s = rate * prompt_s / self.ranks, float(step[0])
        per_token = {"prefill_share": share, "decode_per_s": rate * (self.load.output_tokens - 1) / self.ranks}
        tpot_s = float(steady_state.arrivals_tpot_s(step_s, (step[1] - step[0]) * self.ranks, **per_token))
        mean_s = prompt_s + step_s / 2 + float(queueing.mean_wait_s(prompt_s, share))
        if self.load.percentile is None:
            return tpot_s, mean_s, None
        tail_s = prompt_s + step_s + float(queueing.wait_at_percentile_s(prompt_s, share, self.load.percentile))
        return tpot_s, mean_s, tail_s

    def evidence(self) -> dict[str, str]:
        """The evidence of each side."""
        kinds = evidence(self.case, self.steps(np.array([1])), self.prefill)
        return {side: kinds[f"tpot.{side}"] for side in ("bound", "attainable", "value") if f"tpot.{side}" in kinds}

    def notes(self) -> Iterator[str]:
        """What to know of these rates."""
        yield from dict.fromkeys((*self.prefill.notes, *self.steps(np.array([1])).notes))
        if self.case.deploy.pipeline_parallel > 1:
            yield "pipeline: a prompt passes all stages before the next one starts, in all but the bound"


def _figure(by_side: Mapping[str, float]) -> Figure:
    return Figure(by_side["bound"], by_side["roofline"], by_side.get("attainable"), by_side.get("value"))


def largest_where(holds: Callable[[IntArray], BoolArray], maximum: int) -> int:
    """Largest n from 0 to ``maximum`` for which a monotone predicate holds.

    Powers of two are tried first, then all numbers, or evenly spaced ones, between the last that holds and the first
    that does not.
    """
    numbers = np.unique(np.minimum(2 ** np.arange(maximum.bit_length() + 1), maximum))
    low, high = 0, maximum + 1
    while numbers.size:
        true = holds(numbers)
        low = int(numbers[true].max(initial=low))
        high = int(numbers[~true].min(initial=high))
        numbers = np.unique(np.linspace(low, high, min(high - low, POINTS) + 1, dtype=np.int64))[1:-1]
    return low
