"""Published speeds compared with bounds and attainable times: every row that the rules of `speed_rows` map."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from capacity.arrays import FloatArray
from capacity.catalog.models import load_model
from capacity.catalog.parts import load_hardware
from capacity.engines.budget import Budget
from capacity.errors import CapacityError
from capacity.estimate import memory, request
from capacity.estimate.case import Case, prepare
from capacity.results import OUTSIDE_TIME, Estimate, Result
from capacity.specs.deployment import Deployment
from capacity.validation.compare import Pair, by_group
from capacity.validation.published_names import runs_eagerly
from capacity.validation.published_table import read_table
from capacity.validation.speed_rows import COLUMNS, SpeedCase, read_cases

TABLES = ("speed.csv", "speed_2.csv")
ASSUMED = (
    "where a source leaves a format, a variant of a part or a way of sharing open, the bound takes the fastest",
    "context of a decode step = prompt + output / 2 where a row states none",
    "a first token at a concurrency above 1 is judged with the bound of one prompt",
    "a step of a number of sequences that is not stated has at least one; a rate of such is bounded by the best batch",
)


@dataclass(frozen=True)
class Agreement:
    """Ratios to what was measured, of the rows of one kind. [1]"""

    group: str
    rows: int
    above: int
    bound_median: float
    bound_p10: float
    bound_max: float
    attainable_rows: int
    attainable_above: int
    attainable_median: float | None
    attainable_p10: float | None
    attainable_max: float | None


@dataclass(frozen=True, repr=False, eq=False)
class PublishedSpeed(Result):
    """Bounds compared with published speeds: every row by itself, by kind, and those that cannot be compared.

    ``apart`` and ``left_out`` are ids of rows by reason: the former measure something else, the latter are not read.
    """

    DERIVED: ClassVar = ("bounds_hold",)

    pairs: tuple[Pair, ...]
    agreements: tuple[Agreement, ...]
    apart: dict[str, tuple[str, ...]]
    left_out: dict[str, tuple[str, ...]]
    single_stream_median: float | None
    assumed: tuple[str, ...] = ASSUMED
    notes: tuple[str, ...] = ()
    not_modelled: tuple[str, ...] = OUTSIDE_TIME

    @property
    def above(self) -> tuple[Pair, ...]:
        """Rows whose bound lies above what was measured."""
        return tuple(pair for pair in self.pairs if pair.bound_holds is False)

    @property
    def bounds_hold(self) -> bool:
        """Whether no bound lies above a measurement."""
        return not self.above


def validate(file: str | Path | None = None) -> PublishedSpeed:
    """Compare the shipped tables, or another with the same columns.

    Raises
    ------
    CapacityError
        If the file cannot be read, lacks a column, or no row can be compared.
    """
    shipped = [row for name in TABLES for row in read_table(None, shipped=name, columns=COLUMNS)]
    rows = shipped if file is None else read_table(file, shipped=TABLES[0], columns=COLUMNS)
    reading = read_cases(rows, flagged_too=shipped)
    if not reading.cases:
        reasons = "; ".join(list({**reading.apart, **reading.left_out})[:3])
        raise CapacityError(f"{file or 'the shipped tables'}: no row can be compared ({reasons})")
    pairs = compared(reading.cases)
    single = [
        pair.bound / pair.measured
        for case, pair in zip(reading.cases, pairs, strict=True)
        if case.group.startswith("decode, batch 1") and pair.bound and not runs_eagerly(case.engine)
    ]
    return PublishedSpeed(
        pairs=tuple(pairs),
        agreements=tuple(_agreement(name, group) for name, group in by_group(pairs, lambda pair: pair.group).items()),
        apart=dict(reading.apart),
        left_out=dict(reading.left_out),
        single_stream_median=float(np.median(single)) if single else None,
    )


def published_rows() -> int:
    """How many rows of the shipped tables are decode steps that the rules map."""
    rows = [row for name in TABLES for row in read_table(None, shipped=name, columns=COLUMNS)]
    return sum(case.timed == "decode" for case in read_cases(rows).cases)


def _agreement(name: str, pairs: Sequence[Pair]) -> Agreement:
    ratios = np.array([(pair.bound or 0.0) / pair.measured for pair in pairs])
    reached = np.array([pair.ratio for pair in pairs if np.isfinite(pair.predicted)])
    median, p10, maximum = (float(np.percentile(reached, q)) if len(reached) else None for q in (50, 10, 100))
    return Agreement(
        group=name,
        rows=len(pairs),
        above=sum(pair.bound_holds is False for pair in pairs),
        bound_median=float(np.median(ratios)),
        bound_p10=float(np.percentile(ratios, 10)),
        bound_max=float(ratios.max()),
        attainable_rows=len(reached),
        attainable_above=int(np.sum(reached > 1)),
        attainable_median=median,
        attainable_p10=p10,
        attainable_max=maximum,
    )


def compared(cases: Sequence[SpeedCase]) -> list[Pair]:
    """The pair of each case: its bound, and its attainable time where there is one (else not a number)."""
    bounds, attainables = np.full(len(cases), np.inf), np.full(len(cases), np.inf)
    fastest: list[tuple[str, Deployment]] = [(case.parts[0], case.deployments[0]) for case in cases]
    for (timed, model, part, deploy), places in _places(cases).items():
        prepared = prepare(load_model(model), load_hardware(part), deploy)
        bound, attainable = TIMES[timed](prepared, [cases[place] for place in places])
        for place in np.asarray(places)[bound < bounds[places]].tolist():
            fastest[place] = (part, deploy)
        np.minimum.at(bounds, places, bound)
        if attainable is not None:
            np.minimum.at(attainables, places, attainable)
    attainables[np.isinf(attainables) | ~_column(cases, "batch_stated")] = np.nan
    return [_pair(*item) for item in zip(cases, fastest, bounds.tolist(), attainables.tolist(), strict=True)]


def _places(cases: Sequence[SpeedCase]) -> dict[tuple[str, str, str, Deployment], list[int]]:
    """Places of the cases that one prepared case answers together."""
    places: dict[tuple[str, str, str, Deployment], list[int]] = {}
    for place, case in enumerate(cases):
        for part in case.parts:
            for deploy in case.deployments:
                places.setdefault((case.timed, case.model, part, deploy), []).append(place)
    return places


def _pair(case: SpeedCase, fastest: tuple[str, Deployment], bound_s: float, attainable_s: float) -> Pair:
    part, deploy = fastest
    what = {"decode": f"context {case.context_tokens:,}"}.get(case.timed, f"prompt {case.prompt_tokens:,}")
    where = f"{case.model} {deploy.weights} on {deploy.devices} x {part}"
    return Pair(
        name=f"{case.row_id}: {where}, batch {case.batch}, {what}, {case.engine}",
        unit="s",
        predicted=attainable_s,
        measured=case.measured_s,
        bound=bound_s,
        group=case.group,
        note=case.source,
    )


Times = tuple[FloatArray, FloatArray | None]


def _column(cases: Iterable[SpeedCase], name: str) -> np.ndarray:
    return np.array([getattr(case, name) for case in cases])


def _decode(case: Case, cases: Sequence[SpeedCase]) -> Times:
    estimate = request.tpot(case, batch=_column(cases, "batch"), context_tokens=_column(cases, "context_tokens"))
    return estimate.bound, estimate.attainable


def _prefill(case: Case, cases: Sequence[SpeedCase]) -> Times:
    estimate = request.ttft(case, batch=_column(cases, "batch"), prompt_tokens=_column(cases, "prompt_tokens"))
    return estimate.bound, estimate.attainable


def _requests(case: Case, cases: Sequence[SpeedCase]) -> Times:
    """Time of whole requests: prefill, then decode; of several requests, one may decode while another prefills. [s]"""
    first, step, steps = _prefill_and_decode(case, _column(cases, "batch"), cases)
    single = _column(cases, "batch") == 1
    bound = np.where(single, first.bound + steps * step.bound, np.maximum(first.bound, steps * step.bound))
    if first.attainable is None or step.attainable is None:
        return bound, None
    return bound, first.attainable + steps * step.attainable


def _sustained(case: Case, cases: Sequence[SpeedCase]) -> Times:
    """Time per token at the batch that gives the highest rate in memory, with prefill and decode overlapping. [s]"""
    shortest = min(item.prompt_tokens + item.output_tokens for item in cases)
    max_batch = int(
        memory.max_batch(case.memory, Budget(case.hardware.usable_bytes), case.deploy, context_tokens=shortest)
    )
    batches = np.unique(np.geomspace(1, max(1, max_batch), 64).astype(np.int64))[:, None]
    first, step, steps = _prefill_and_decode(case, batches, cases)
    tokens = batches * _column(cases, "output_tokens")
    bound = (np.maximum(first.bound, steps * step.bound) / tokens).min(axis=0)
    if first.attainable is None or step.attainable is None:
        return bound, None
    return bound, ((first.attainable + steps * step.attainable) / tokens).min(axis=0)


def _prefill_and_decode(
    case: Case, batch: np.ndarray, cases: Sequence[SpeedCase]
) -> tuple[Estimate, Estimate, np.ndarray]:
    """Prefill of a batch of prompts, a decode step at the mean context, and the number of steps."""
    prompt, output = _column(cases, "prompt_tokens"), _column(cases, "output_tokens")
    first = request.ttft(case, batch=batch, prompt_tokens=prompt)
    return first, request.tpot(case, batch=batch, context_tokens=prompt + output // 2), output - 1


TIMES = {"decode": _decode, "prefill": _prefill, "requests": _requests, "sustained": _sustained}
