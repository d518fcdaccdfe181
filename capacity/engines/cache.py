"""How the key-value cache of sequences is held: policies that make cache rows of the memory table."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from capacity.demand.memory import cache_rows
from capacity.engines.table import MemoryRow
from capacity.specs.deployment import Deployment
from capacity.specs.model import ModelSpec


def paged(model: ModelSpec, deploy: Deployment) -> Iterator[MemoryRow]:
    """Each sequence holds whole blocks of its tokens; a layer with a window holds min(context, window) of them."""
    for row in cache_rows(model, deploy):
        if row.layer.token_bytes:
            held = row.layers * row.layer.token_bytes
            yield MemoryRow("KV cache", row.rank, cache_token_bytes=held, window_tokens=row.layer.window)


CACHES: dict[str, Callable[[ModelSpec, Deployment], Iterator[MemoryRow]]] = {"paged": paged}
