"""A layer without a feed-forward."""

from __future__ import annotations

from collections.abc import Iterator

from capacity.demand.weights import Module
from capacity.specs.model import NoFeedForward

SUMS = 0


def weights(feed_forward: NoFeedForward, width: int) -> Iterator[Module]:
    """No matrices."""
    return iter(())


def activation_tensors(feed_forward: NoFeedForward, *, tensor_parallel: int) -> dict[str, int]:
    """Nothing alive beyond the residual. [element]"""
    return {}


def check_sharding(feed_forward: NoFeedForward, model: str, *, expert_parallel: int) -> None:
    """Any degree divides nothing."""


def routed_per_token(feed_forward: NoFeedForward) -> int:
    """Experts that a token is sent to. [expert]"""
    return 0


def is_ordinary(feed_forward: NoFeedForward) -> bool:
    """Whether the reference decoder has this feed-forward."""
    return False


def summary(feed_forward: NoFeedForward) -> str:
    """The feed-forward in a few words."""
    return "none"
