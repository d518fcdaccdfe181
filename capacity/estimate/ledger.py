"""The memory table evaluated for one batch and context: a ledger of each distinct device."""

from __future__ import annotations

from dataclasses import replace

from capacity.demand.passes import local_sequences
from capacity.engines.budget import Budget
from capacity.engines.kinds import DeviceKind
from capacity.engines.table import MemoryTable
from capacity.estimate.memory import refuse_overflow
from capacity.estimate.usage import activation_bytes, held_bytes, total_bytes
from capacity.results import Ledger, LedgerLine
from capacity.specs.deployment import Deployment

NO_CACHE = (("KV cache", ()),)


def ledgers(
    table: MemoryTable,
    budget: Budget,
    deploy: Deployment,
    *,
    batch: int,
    context_tokens: int,
    runtime_bytes: int = 0,
    assumed: tuple[str, ...] = (),
) -> tuple[Ledger, ...]:
    """The memory of one device of each distinct kind, heaviest first.

    Parameters
    ----------
    table : MemoryTable
        Uses of the memory.
    budget : Budget
        What the engine may plan with.
    deploy : Deployment
        Parallelism.
    batch, context_tokens : int
        Sequences of the replica, and tokens of each. [sequence], [token]
    runtime_bytes : int
        What a process takes that no row holds. [B]
    assumed : tuple of str
        What was not stated, a line each.
    """
    refuse_overflow(table, batch=batch, context_tokens=context_tokens)
    local = int(local_sequences(batch, deploy))
    all_ledgers = []
    for kind in table.kinds:
        planned = budget.planned_bytes(kind.loaded_bytes)
        one = Ledger(
            rank=kind.ranks[0],
            devices=deploy.tensor_parallel * deploy.data_parallel,
            lines=_lines(kind, local, context_tokens),
            total_bytes=_planned_bytes(kind, sequences=local, context_tokens=context_tokens),
            usable_bytes=planned,
            capacity_bytes=budget.capacity_bytes,
            outside_bytes=budget.outside_bytes(planned),
            runtime_bytes=runtime_bytes,
            assumed=assumed,
        )
        all_ledgers += [one, *[replace(one, rank=rank) for rank in kind.ranks[1:]]]
    return tuple(sorted(all_ledgers, key=lambda ledger: (ledger.margin_bytes, ledger.rank)))


def ledger_lines(table: MemoryTable, number: int, *, sequences: int, context_tokens: int) -> tuple[LedgerLine, ...]:
    """The rows of one pipeline rank as lines: blocks apart from what tokens fill of them, peaks as their largest.

    Parameters
    ----------
    table : MemoryTable
        Uses of the memory.
    number : int
        The pipeline rank. [1]
    sequences : int
        Sequences of this device. [sequence]
    context_tokens : int
        Tokens of each. [token]
    """
    kind = table.kind_of(number)
    return _lines(kind, sequences, context_tokens)


def _planned_bytes(kind: DeviceKind, *, sequences: int, context_tokens: int) -> int:
    """What the rows take of what the engine plans with. [B]"""
    taken_bytes = int(total_bytes(kind.totals, sequences=sequences, context_tokens=context_tokens))
    if kind.outside_budget is None:
        return taken_bytes
    return taken_bytes - int(total_bytes(kind.outside_budget, sequences=sequences, context_tokens=context_tokens))


def _lines(kind: DeviceKind, sequences: int, context_tokens: int) -> tuple[LedgerLine, ...]:
    totals, at = kind.totals, {"sequences": sequences, "context_tokens": context_tokens}
    lines = [
        LedgerLine(row.name, row.fixed_bytes, row.evidence, row.inside) for row in kind.static_rows if row.fixed_bytes
    ]
    for name, caches in totals.caches_by_name.items() or NO_CACHE:
        content = blocks = 0
        for cache in caches:
            content += int(held_bytes(cache.content, **at))
            blocks += int(held_bytes(cache, **at))
        lines.append(LedgerLine(name, content, "computed"))
        if blocks > content:
            lines.append(LedgerLine(f"{name}, internal fragmentation", blocks - content, "computed"))
    lines += [
        LedgerLine(row.name, sequences * row.sequence_bytes, row.evidence, row.inside)
        for row in kind.static_rows
        if row.sequence_bytes
    ]
    planned = kind.outside_budget is None or not kind.outside_budget.alternatives
    return (*lines, LedgerLine("activations", int(activation_bytes(totals, **at)), kind.peak_evidence, planned))
