"""A dense feed-forward of two matrices, or three when gated: its inner width divides over tensor-parallel ranks."""

from __future__ import annotations

from collections.abc import Iterator

from capacity.demand.weights import Module, matrix, vector
from capacity.specs.model import Dense

SUMS = 1


def weights(feed_forward: Dense, width: int) -> Iterator[Module]:
    """Up (and gate) and down matrices, with biases where it has them."""
    size = feed_forward.intermediate_size
    up = 2 * size if feed_forward.gated else size
    yield matrix("gate_up" if feed_forward.gated else "up", "gate_up", "mlp", up, width, "rows", unit=up // size)
    yield matrix("down", "down", "mlp", width, size, "columns")
    if feed_forward.bias:
        yield vector("up_bias", "gate_up", up, part="mlp", shard="rows", unit=up // size)
        yield vector("down_bias", "down", width, part="mlp")


def activation_tensors(feed_forward: Dense, *, tensor_parallel: int) -> dict[str, int]:
    """What is alive per token at the end of the feed-forward, by name. [element]"""
    width = -(-feed_forward.intermediate_size // tensor_parallel)
    return {"gate": width, "up": width, "activation": width, "product": width}


def check_sharding(feed_forward: Dense, model: str, *, expert_parallel: int) -> None:
    """Every degree is allowed: the inner width is padded."""


def routed_per_token(feed_forward: Dense) -> int:
    """Experts that a token is sent to. [expert]"""
    return 0


def is_ordinary(feed_forward: Dense) -> bool:
    """Whether the reference decoder has this feed-forward."""
    return feed_forward.gated


def summary(feed_forward: Dense) -> str:
    """The feed-forward in a few words."""
    return f"{'gated, ' if feed_forward.gated else ''}width {feed_forward.intermediate_size:,}"
