"""How the key-value cache of sequences is held: policies that make cache rows of the memory table."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from capacity.demand.memory import cache_rows
from capacity.engines.table import MemoryRow
from capacity.specs.deployment import Deployment
from capacity.specs.model import ModelSpec


def paged(model: ModelSpec, deploy: Deployment) -> Iterator[MemoryRow]:
    """Each sequence holds whole blocks of its tokens; a layer with a window holds min(context, window) of them."""
    return _in_blocks(model, deploy, deploy.block_tokens)


def growing_buffer(model: ModelSpec, deploy: Deployment) -> Iterator[MemoryRow]:
    """Each sequence, the session of a robot, holds one buffer that grows by the token."""
    return _in_blocks(model, deploy, 1)


def _in_blocks(model: ModelSpec, deploy: Deployment, block_tokens: int) -> Iterator[MemoryRow]:
    for row in cache_rows(model, deploy):
        if row.layer.token_bytes:
            yield MemoryRow(
                "KV cache",
                row.rank,
                blocks="windowed" if row.layer.window else "all",
                block_bytes=row.layers * row.layer.token_bytes * block_tokens,
                block_tokens=block_tokens,
                window_tokens=row.layer.window,
            )


CACHES: dict[str, Callable[[ModelSpec, Deployment], Iterator[MemoryRow]]] = {
    "paged": paged,
    "growing_buffer": growing_buffer,
}
