"""The largest batch that fits an arena of fixed size, by bisection on real arrays whose bytes are counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from capacity.measure.decoder.prefill import Prefill
from capacity.measure.decoder.weights import torch_dtype
from capacity.measure.runs.live_storage import LiveStorage
from capacity.measure.shape import DecoderShape


def largest_batch(fits: Callable[[int], bool], *, limit: int = 1024) -> int:
    """Largest n up to ``limit`` that fits, 0 if 1 does not; doubles n first, then bisects.

    >>> largest_batch(lambda n: n <= 37)
    37
    """
    if not fits(1):
        return 0
    low, high = 1, 2
    while high <= limit and fits(high):
        low, high = high, high * 2
    high = min(high, limit + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def arena_holds(model: Prefill, *, batch: int, tokens: int, arena_bytes: int) -> bool:
    """Whether weights, the paged cache of ``batch`` sequences and a prefill of all of them fit the arena together.

    The cache is allocated and the prefill runs; their bytes are counted, not computed.
    """
    import torch

    prompts = torch.zeros((batch, tokens), dtype=torch.int64, device=model.device)
    with LiveStorage() as cache:
        tensors = paged_cache(model.shape, batch, tokens, model.device)
    with LiveStorage() as live:
        model(prompts)
    used = model.weight_bytes + cache.alive_bytes + live.peak_bytes
    del tensors
    return used <= arena_bytes


def paged_cache(shape: DecoderShape, batch: int, tokens: int, device: str) -> list[Any]:
    """Keys and values of every layer in whole blocks."""
    import torch

    blocks = batch * shape.context_blocks(tokens)
    size = (2, blocks, shape.block_tokens, shape.kv_size)
    return [torch.empty(size, dtype=torch_dtype(shape.kv_format), device=device) for _ in range(shape.layers)]
