"""Rows on the cache that a serving engine sets apart, in the words of its own log."""

from __future__ import annotations

from collections.abc import Iterator

from capacity.presentation.sheet import Cell
from capacity.results import CachePool

Row = tuple[Cell, ...]


def pool_rows(pool: CachePool) -> Iterator[Row]:
    """The pool of a device, its blocks and tokens, and how many requests of the longest context it holds."""
    name = f"{pool.engine} {pool.version}"
    blocks = (Cell(pool.blocks, "block"), " blocks of ", Cell(pool.block_bytes, "B"), f", as {name} sets it apart")
    yield Cell("KV cache pool"), Cell(pool.pool_bytes, "B", pool.evidence, blocks)
    if pool.tokens is not None:
        yield Cell("KV cache size"), Cell(pool.tokens, "token", pool.evidence, f"tokens, as {name} prints it")
    request = ("requests of ", Cell(pool.context_tokens, "token"), " tokens, each ", Cell(pool.request_bytes, "B"))
    yield Cell("maximum concurrency"), Cell(pool.requests, "request", pool.evidence, request, digits=2)
