"""Specs, a part and numbers in; ledgers, limits and estimates out. Here numbers are checked first, and only here
work, memory and latency meet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from capacity.catalog.calibrations import calibration_for, measured, told, unlike_the_fit
from capacity.demand import memory, work
from capacity.demand.placement import pieces
from capacity.errors import CapacityError, DoesNotFit, unknown_name
from capacity.formulas import latency, limits
from capacity.inputs import plain
from capacity.results import Estimate, Ledger, LedgerLine, OperatorRow
from capacity.specs.base import LARGEST_COUNT
from capacity.specs.calibration import Calibration
from capacity.specs.deployment import Deployment
from capacity.specs.hardware import HardwareSpec
from capacity.specs.model import ModelSpec
from capacity.supply.ceilings import Ceilings, attainable, comm_s, datasheet, peak_or_refuse

ArrayLike = Any
RESOURCES = ("memory", "compute")
ENGINES = ("reference",)  # those whose allocation is known


def usable_bytes(hardware: HardwareSpec, deploy: Deployment) -> int:
    """Memory that an engine may plan with on one device: the fraction it takes, less what is reserved. [B]

    Raises
    ------
    DoesNotFit
        If more is reserved than there is.
    """
    share = int(hardware.usable_bytes * deploy.memory_fraction)
    if deploy.reserved_bytes > share:
        raise DoesNotFit(
            f"reserved_bytes = {deploy.reserved_bytes:,} is more than the {share:,} bytes that memory_fraction = "
            f"{deploy.memory_fraction:g} takes of {hardware.name}"
        )
    return share - deploy.reserved_bytes


def refuse_overflow(deploy: Deployment, model: ModelSpec, batch: ArrayLike, context: ArrayLike) -> None:
    """Products of whole numbers must stay below 2^62 (a factor of two for rounding, since they
    are judged in floating point before any is formed), for each pair of ``batch`` and ``context`` that is asked."""
    per_token = sum(row.layers * row.token_bytes for row in memory.cache_rows(model, deploy))
    moments = memory.activation_moments(model, deploy)
    a, b = max(m.token_bytes for m in moments), max(m.sequence_bytes for m in moments)
    constant = sum(memory.sequence_state_bytes(model, deploy, rank) for rank in range(deploy.pipeline_parallel))
    heaviest = max(sum(parts.values()) for parts in memory.weight_bytes_by_rank(model, deploy))
    if heaviest >= 2**62:
        raise CapacityError(f"{model.name}: the weights of one device are more than 2^62 bytes")
    blocks = np.ceil(np.divide(context, deploy.block_tokens)) * deploy.block_tokens
    asked = np.asarray(batch, dtype=float) * (blocks * float(max(per_token, a, 1)) + float(constant + a + b))
    if np.any(asked >= 2**62):
        most = np.argmax(asked)
        pair = (np.broadcast_to(number, asked.shape).flat[most] for number in (batch, context))
        raise CapacityError("batch {} with context {} asks for more than 2^62 bytes".format(*pair))


def ledgers(
    model: ModelSpec, hardware: HardwareSpec, deploy: Deployment, *, batch: int, context_tokens: int
) -> tuple[Ledger, ...]:
    """The memory of one device of each distinct kind, heaviest first."""
    refuse_overflow(deploy, model, batch, context_tokens)
    found = [_ledger(model, hardware, deploy, rank, batch, context_tokens) for rank in range(deploy.pipeline_parallel)]
    return tuple(sorted(found, key=lambda ledger: ledger.margin_bytes))


def _ledger(
    model: ModelSpec, hardware: HardwareSpec, deploy: Deployment, rank: int, batch: int, context_tokens: int
) -> Ledger:
    mine = int(work.rank_batch(batch, deploy))
    weights = memory.weight_bytes_by_rank(model, deploy)[rank]
    held = int(memory.sequence_cache_bytes(model, deploy, context_tokens=context_tokens, rank=rank))
    blocks = int(
        memory.sequence_cache_bytes(
            model, deploy, context_tokens=context_tokens, rank=rank, block_tokens=deploy.block_tokens
        )
    )
    in_flight = int(memory.activation_bytes(model, deploy, rank_batch=mine, tokens=context_tokens))
    state = memory.sequence_state_bytes(model, deploy, rank)
    lines = [LedgerLine(f"weights: {part}", size, "computed") for part, size in weights.items()]
    lines.append(LedgerLine("kv cache", mine * held, "computed"))
    if blocks > held:
        lines.append(LedgerLine("kv cache, unused rest of blocks", mine * (blocks - held), "computed"))
    if state:
        lines.append(LedgerLine("state", mine * state, "computed"))
    lines.append(LedgerLine("activations", in_flight, "assumed"))
    return Ledger(
        rank=rank,
        devices=deploy.tensor_parallel * deploy.data_parallel,
        lines=tuple(lines),
        total_bytes=sum(line.held_bytes for line in lines),
        usable_bytes=usable_bytes(hardware, deploy),
        capacity_bytes=hardware.usable_bytes,
    )


def max_batch(model: ModelSpec, hardware: HardwareSpec, deploy: Deployment, *, context_tokens: ArrayLike) -> Any:
    """Sequences one replica can hold at ``context_tokens`` each; 0 when weights alone do not fit. [sequence]"""
    refuse_overflow(deploy, model, 1, context_tokens)
    best: Any = limits.UNBOUNDED
    for rank, moment in _ranks_and_moments(model, deploy):
        cache = memory.sequence_cache_bytes(
            model, deploy, context_tokens=context_tokens, rank=rank, block_tokens=deploy.block_tokens
        )
        fitting = limits.max_rank_batch(
            free_bytes=_free_bytes(model, hardware, deploy, rank),
            sequence_bytes=cache + memory.sequence_state_bytes(model, deploy, rank),
            token_activation_bytes=moment.token_bytes,
            sequence_activation_bytes=moment.sequence_bytes,
            tokens=context_tokens,
            chunk_tokens=deploy.prefill_chunk_tokens,
        )
        best = np.minimum(best, fitting)
    best = np.minimum(best, LARGEST_COUNT) * deploy.data_parallel
    return best if deploy.max_sequences is None else np.minimum(best, deploy.max_sequences)


def max_context(model: ModelSpec, hardware: HardwareSpec, deploy: Deployment, *, batch: ArrayLike) -> tuple[Any, Any]:
    """Longest context that each of ``batch`` sequences can have, 0 where the deployment forbids that many, and the
    longest that memory allows, 2^31 where memory never ends it. [token]"""
    refuse_overflow(deploy, model, batch, 1)
    best: Any = limits.UNBOUNDED
    mine = work.rank_batch(batch, deploy)
    for rank, moment in _ranks_and_moments(model, deploy):
        rows = [row for row in memory.cache_rows(model, deploy) if row.rank == rank and row.token_bytes]
        fitting = limits.max_tokens(
            free_bytes=_free_bytes(model, hardware, deploy, rank),
            rank_batch=mine,
            layers=[row.layers for row in rows],
            token_bytes=[row.token_bytes for row in rows],
            windows=[row.window for row in rows],
            block_tokens=deploy.block_tokens,
            constant_bytes=memory.sequence_state_bytes(model, deploy, rank) + moment.sequence_bytes,
            token_activation_bytes=moment.token_bytes,
            chunk_tokens=deploy.prefill_chunk_tokens,
        )
        best = np.minimum(best, fitting)
    in_memory = np.minimum(best, LARGEST_COUNT)
    allowed = np.less_equal(batch, deploy.max_sequences or LARGEST_COUNT)
    return np.where(allowed, np.minimum(in_memory, model.positions or LARGEST_COUNT), 0), in_memory


def _ranks_and_moments(model: ModelSpec, deploy: Deployment) -> Iterator[tuple[int, memory.Moment]]:
    """Each pipeline rank at each moment of its peak: all of them must fit."""
    for rank in range(deploy.pipeline_parallel):
        for moment in memory.activation_moments(model, deploy):
            yield rank, moment


def _free_bytes(model: ModelSpec, hardware: HardwareSpec, deploy: Deployment, rank: int) -> int:
    return usable_bytes(hardware, deploy) - sum(memory.weight_bytes_by_rank(model, deploy)[rank].values())


def tpot(
    model: ModelSpec,
    hardware: HardwareSpec,
    deploy: Deployment,
    *,
    batch: ArrayLike,
    context_tokens: ArrayLike,
) -> Estimate:
    """Time per output token of ``batch`` sequences of ``context_tokens`` each. [s]"""
    refuse_overflow(deploy, model, batch, context_tokens)
    done = list(work.decode_work(model, deploy, batch=batch, context_tokens=context_tokens))
    return _estimate(Case("TPOT", model, hardware, deploy, batch, context_tokens), done)


def ttft(
    model: ModelSpec,
    hardware: HardwareSpec,
    deploy: Deployment,
    *,
    batch: ArrayLike,
    prompt_tokens: ArrayLike,
) -> Estimate:
    """Time to first token of ``batch`` prompts that are prefilled together. [s]"""
    refuse_overflow(deploy, model, batch, prompt_tokens)
    done = list(work.prefill_work(model, deploy, batch=batch, prompt_tokens=prompt_tokens))
    return _estimate(Case("TTFT", model, hardware, deploy, batch, prompt_tokens), done)


@dataclass(frozen=True)
class Case:
    """What a time is asked of: TPOT at a context, or TTFT of prompts. [sequence], [token]"""

    quantity: str
    model: ModelSpec
    hardware: HardwareSpec
    deploy: Deployment
    batch: Any
    context_tokens: Any

    @property
    def sequences(self) -> Any:
        """Sequences that one device works on in one pass. [sequence]"""
        return work.rank_batch(work.micro_batch(self.batch, self.deploy), self.deploy)

    @property
    def tokens(self) -> Any:
        """Tokens that one device works on in one pass. [token]"""
        return self.sequences if self.quantity == "TPOT" else self.sequences * self.context_tokens


def _estimate(case: Case, done: list[work.Work]) -> Estimate:
    model, hardware, deploy = case.model, case.hardware, case.deploy
    ceilings = datasheet(model, hardware, deploy)
    moved = charged_bytes(done, ceilings.cache_bytes * deploy.pipeline_parallel)
    times = operator_times(done, moved, ceilings)
    bound = _step(times, ceilings, launches=0, comm=0.0)
    names = tuple(f"{operator}, {resource}" for operator in times for resource in RESOURCES)
    shape = np.broadcast_shapes(np.shape(case.batch), np.shape(case.context_tokens))
    code = _in_shape(_binding_code(list(times.values())), shape)
    most = max_batch(model, hardware, deploy, context_tokens=case.context_tokens)
    reachable, notes = _attainable_s(case, done)
    band, remarks = _calibrated_s(case, done, bound)
    return Estimate(
        quantity=case.quantity,
        bound=_in_shape(bound, shape),
        bound_by=code if shape else names[code],
        operators=names,
        fits=plain(np.less_equal(case.batch, most)),
        evidence="calibrated" if band else "computed",
        value=_in_shape(band.value_s, shape) if band else None,
        low=_in_shape(band.low_s, shape) if band else None,
        high=_in_shape(band.high_s, shape) if band else None,
        attainable=None if reachable is None else _in_shape(reachable, shape),
        rows=() if shape else _rows(done, moved, times),
        notes=(*ceilings.notes, *notes, *remarks),
    )


def _in_shape(value: Any, shape: tuple[int, ...]) -> Any:
    """What does not depend on context (or batch) comes in its shape all the same; a single value as a plain number."""
    return np.broadcast_to(value, shape).copy() if np.shape(value) != shape else plain(value)


@dataclass(frozen=True)
class Band:
    """A calibrated time with its ends. [s]"""

    value_s: Any
    low_s: Any
    high_s: Any


def _calibrated_s(case: Case, done: list[work.Work], bound: Any) -> tuple[Band | None, tuple[str, ...]]:
    """The latency law with the constants of a calibration, and what to know of it; NaN outside its range. [s]"""
    found = calibration_for(case.deploy, case.hardware, "decode" if case.quantity == "TPOT" else "prefill")
    if found is None:
        return None, ()
    if reason := unlike_the_fit(case.model, case.hardware, case.deploy):
        return None, (f"no estimate: calibration {found.name} {reason}",)
    inside = measured(found.scope, case.batch, case.context_tokens)
    if not np.any(inside):
        return None, _beyond(found, inside)
    value = np.where(inside, np.maximum(bound, _law_s(case, done, found)), np.nan)
    band = Band(value, np.maximum(bound, value * found.band_low), value * found.band_high)
    return band, (told(found), *_beyond(found, inside))


def _beyond(found: Calibration, inside: Any) -> tuple[str, ...]:
    """Where the range that was measured ends, for points that lie outside it."""
    if np.all(inside):
        return ()
    which = f" at {np.sum(~inside)} of {inside.size} points" if inside.ndim else ""
    batch, context = found.scope.largest_batch or 0, found.scope.largest_context_tokens or 0
    return (f"no estimate{which}: calibration {found.name} was measured up to batch {batch:,} and context {context:,}",)


def _law_s(case: Case, done: list[work.Work], found: Calibration) -> Any:
    """The latency law with the constants of a calibration. [s]"""
    operators: Any = 0.0
    for item in done:
        operators = operators + latency.operator_s(
            item.moved_bytes,
            item.flop,
            bytes_per_s=found.read_bytes_per_s or case.hardware.memory.bytes_per_s,
            flop_per_s=peak_or_refuse(case.hardware, case.deploy, item.term.compute_format),
            memory_efficiency=_of(found.memory_efficiency, item.term.operator),
            flop_efficiency=_of(found.flop_efficiency, item.term.operator),
        )
    return latency.step_s(
        operators,
        layers=case.model.decoder.layer_count,
        layer_s=found.layer_s,
        launches=sum(item.term.launches for item in done),
        launch_s=found.launch_s,
        sequences=case.sequences,
        sequence_s=found.sequence_s,
        comm_s=0.0,
        host_floor_s=found.host_floor_s,
        prefill_share=found.prefill_share,
    )


def _of(table: Mapping[str, float], operator: str) -> float:
    return table.get(operator, table.get("default", 1.0))


def _attainable_s(case: Case, done: list[work.Work]) -> tuple[Any, tuple[str, ...]]:
    """The same arithmetic on measured ceilings, with launches and links; None where a ceiling is unknown. [s]"""
    ceilings = attainable(case.model, case.hardware, case.deploy)
    if ceilings is None:
        return None, ()
    comm, notes = comm_s(case.model, case.hardware, case.deploy, tokens=case.tokens, sequences=case.sequences)
    if comm is None:
        return None, notes
    times = operator_times(done, [item.moved_bytes for item in done], ceilings)
    launches = sum(item.term.launches for item in done)
    return _step(times, ceilings, launches=launches, comm=comm), (*ceilings.notes, *notes)


def charged_bytes(done: list[work.Work], cache_bytes: int) -> list[Any]:
    """Bytes of each term; weights that all fit the last-level cache together are not charged."""
    total: Any = 0
    for item in done:
        total = total + item.weight_bytes
    if cache_bytes == 0 or np.all(np.greater_equal(total, cache_bytes)):
        return [item.moved_bytes for item in done]
    kept = np.where(np.less(total, cache_bytes), 1.0, 0.0)
    return [item.moved_bytes - kept * item.weight_bytes for item in done]


@dataclass
class OperatorTime:
    """Times of one operator: bound, and its memory and compute side. [s]"""

    bound_s: Any = 0.0
    memory_s: Any = 0.0
    compute_s: Any = 0.0


def operator_times(done: list[work.Work], moved: list[Any], ceilings: Ceilings) -> dict[str, OperatorTime]:
    """Sum the terms of each operator, each at its own roofline."""
    times: dict[str, OperatorTime] = {}
    for item, moved_bytes in zip(done, moved, strict=True):
        row = times.setdefault(item.term.operator, OperatorTime())
        peak = ceilings.flop_per_s[item.term.compute_format]
        row.bound_s = row.bound_s + latency.operator_s(
            moved_bytes,
            item.flop,
            bytes_per_s=ceilings.bytes_per_s,
            flop_per_s=peak,
            memory_efficiency=1.0,
            flop_efficiency=1.0,
        )
        row.memory_s = row.memory_s + np.divide(moved_bytes, ceilings.bytes_per_s)
        row.compute_s = row.compute_s + np.divide(item.flop, peak)
    return times


def _step(times: dict[str, OperatorTime], ceilings: Ceilings, *, launches: int, comm: Any) -> Any:
    total: Any = 0.0
    for row in times.values():
        total = total + row.bound_s
    return latency.step_s(
        total,
        layers=0,
        layer_s=0.0,
        launches=launches,
        launch_s=ceilings.launch_s,
        sequences=0,
        sequence_s=0.0,
        comm_s=comm,
        host_floor_s=0.0,
        prefill_share=0.0,
    )


def _binding_code(times: list[OperatorTime]) -> Any:
    """Code of the operator that takes longest, twice its index, plus one where compute binds it."""
    best: Any = times[0].bound_s
    code: Any = np.where(np.greater(times[0].compute_s, times[0].memory_s), 1, 0)
    for index, row in enumerate(times[1:], start=1):
        own = 2 * index + np.greater(row.compute_s, row.memory_s)
        longer = np.greater(row.bound_s, best)
        code, best = np.where(longer, own, code), np.maximum(best, row.bound_s)
    return code


def _rows(done: list[work.Work], moved: list[Any], times: dict[str, OperatorTime]) -> tuple[OperatorRow, ...]:
    rows = []
    for operator, row in times.items():
        mine = [(m, item.flop) for item, m in zip(done, moved, strict=True) if item.term.operator == operator]
        binds = RESOURCES[int(row.compute_s > row.memory_s)]
        moved_bytes, flop = float(sum(m for m, _ in mine)), float(sum(f for _, f in mine))
        rows.append(OperatorRow(operator, moved_bytes, flop, float(row.bound_s), binds))
    return tuple(rows)


def intensity(model: ModelSpec, deploy: Deployment, *, batch: ArrayLike, context_tokens: ArrayLike) -> Any:
    """FLOP of a decode step over the bytes it moves. [FLOP/B]"""
    flop: Any = 0.0
    moved: Any = 0.0
    for item in work.decode_work(model, deploy, batch=batch, context_tokens=context_tokens):
        flop, moved = flop + item.flop, moved + item.moved_bytes
    return np.divide(flop, moved)


def check(model: ModelSpec, deploy: Deployment) -> None:
    """Refuse a deployment that this model cannot have, or an engine nobody described, before any number is made."""
    if deploy.engine not in ENGINES:
        raise CapacityError(unknown_name("engine", deploy.engine, ENGINES))
    if deploy.engine_version is not None:
        raise CapacityError(f"engine_version {deploy.engine_version!r}: engine {deploy.engine!r} has no versions")
    pieces(model, deploy)
