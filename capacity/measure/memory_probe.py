"""The largest batch that a fixed arena holds, found by bisection: real arrays are made and their bytes counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from capacity.measure.prefill import LiveStorage, Prefill
from capacity.measure.shape import DecoderShape


def largest_batch(fits: Callable[[int], bool], *, limit: int = 1024) -> int:
    """Largest n up to ``limit`` that fits, 0 if one does not; doubles first, then halves the gap.

    >>> largest_batch(lambda n: n <= 37)
    37
    """
    if not fits(1):
        return 0
    good, bad = 1, 2
    while bad <= limit and fits(bad):
        good, bad = bad, bad * 2
    bad = min(bad, limit + 1)
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if fits(middle) else (good, middle)
    return good


def arena_holds(model: Prefill, *, batch: int, tokens: int, arena_bytes: int) -> bool:
    """Whether weights, the paged cache of ``batch`` sequences and a prefill of them all stay within the arena.

    The cache is allocated and the prefill runs; what they take is counted, not computed.
    """
    import torch

    prompts = torch.zeros((batch, tokens), dtype=torch.int64, device=model.device)
    with LiveStorage() as cache:
        held = paged_cache(model.shape, batch, tokens, model.device)
    with LiveStorage() as live:
        model(prompts)
    used = model.weight_bytes + cache.alive_bytes + live.peak_bytes
    del held
    return used <= arena_bytes


def paged_cache(shape: DecoderShape, batch: int, tokens: int, device: str) -> list[Any]:
    """Keys and values of every layer in whole blocks."""
    import torch

    blocks = batch * shape.context_blocks(tokens)
    kind = torch.float32 if shape.kv_format == "fp32" else torch.bfloat16
    size = (2, blocks, shape.block_tokens, shape.kv_size)
    return [torch.empty(size, dtype=kind, device=device) for _ in range(shape.layers)]
