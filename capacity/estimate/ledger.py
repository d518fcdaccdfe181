"""The memory table evaluated for one batch and context: a ledger of each distinct device."""

from __future__ import annotations

from capacity.demand.passes import local_sequences
from capacity.engines.table import MemoryRow, MemoryTable
from capacity.estimate.memory import activation_bytes, refuse_overflow, sequence_cache_bytes
from capacity.results import Ledger, LedgerLine
from capacity.specs.deployment import Deployment


def ledgers(
    table: MemoryTable,
    budget_bytes: int,
    capacity_bytes: int,
    deploy: Deployment,
    *,
    batch: int,
    context_tokens: int,
    assumed: tuple[str, ...] = (),
) -> tuple[Ledger, ...]:
    """The memory of one device of each distinct kind, heaviest first.

    Parameters
    ----------
    table : MemoryTable
        Uses of the memory.
    budget_bytes, capacity_bytes : int
        What the engine may plan with, and what programs can have. [B]
    deploy : Deployment
        Parallelism.
    batch, context_tokens : int
        Sequences of the replica, and tokens of each. [sequence], [token]
    assumed : tuple of str
        What was not stated, a line each.
    """
    refuse_overflow(table, batch=batch, context_tokens=context_tokens)
    local = int(local_sequences(batch, deploy))
    found = []
    for number in range(table.ranks):
        held = ledger_lines(table, number, sequences=local, context_tokens=context_tokens)
        found.append(
            Ledger(
                rank=number,
                devices=deploy.tensor_parallel * deploy.data_parallel,
                lines=held,
                total_bytes=sum([line.held_bytes for line in held]),
                usable_bytes=budget_bytes,
                capacity_bytes=capacity_bytes,
                assumed=assumed,
            )
        )
    return tuple(sorted(found, key=lambda ledger: ledger.margin_bytes))


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
    rank, rows = table.by_rank[number], table.of_rank(number)
    found = [
        LedgerLine(row.name, row.fixed_bytes, row.evidence) for row in rows if row.fixed_bytes and not row.alternative
    ]
    content = int(sequence_cache_bytes(rank, context_tokens))
    blocks = int(sequence_cache_bytes(rank, context_tokens, block_tokens=table.block_tokens))
    found.append(LedgerLine("KV cache", sequences * content, "computed"))
    if blocks > content:
        found.append(LedgerLine("KV cache, internal fragmentation", sequences * (blocks - content), "computed"))
    if rank.sequence_bytes:
        found.append(LedgerLine("state", sequences * rank.sequence_bytes, "computed"))
    peak = int(activation_bytes(table, rank, sequences=sequences, context_tokens=context_tokens))
    return (*found, LedgerLine("activations", peak, _peak_evidence(rows)))


def _peak_evidence(rows: tuple[MemoryRow, ...]) -> str:
    return next((row.evidence for row in rows if row.alternative), "computed")
