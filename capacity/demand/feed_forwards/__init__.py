"""Feed-forwards, one file per kind: its matrices, activations, how it shards and what routing exchanges.

Every file has the same functions: ``weights``, ``activation_tensors``, ``check_sharding``, ``routed_per_token``,
``is_ordinary`` and ``summary``, and the fact ``SUMS`` (all-reduces per layer under tensor parallelism). `of` is the
only dispatch on the kind of a feed-forward.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from capacity.demand.feed_forwards import dense, experts, none
from capacity.specs.model import ModelSpec

KINDS: dict[str, ModuleType] = {"dense": dense, "experts": experts, "none": none}


def of(feed_forward: Any) -> Any:
    """The file of this kind of feed-forward.

    Parameters
    ----------
    feed_forward : Dense, Experts or NoFeedForward
        Any feed-forward of a layer group.
    """
    return KINDS[feed_forward.kind]


def routes(model: ModelSpec) -> bool:
    """Whether any layer routes tokens to experts.

    Parameters
    ----------
    model : ModelSpec
        The network.
    """
    groups = (group for stage in model.stages for group in stage.layers)
    return any(of(group.feed_forward).routed_per_token(group.feed_forward) for group in groups)
