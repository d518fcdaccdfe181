"""A layer that does not mix tokens."""

from __future__ import annotations

from collections.abc import Iterator

from capacity.demand.costs import LayerCache, LayerFormats, OperatorCost
from capacity.demand.weights import Module
from capacity.specs.model import NoMixer

OVERRIDE_PART = None
SUMS = 0


def weights(mixer: NoMixer, width: int) -> Iterator[Module]:
    """No matrices."""
    return iter(())


def costs(mixer: NoMixer, formats: LayerFormats, *, layers: int, tensor_parallel: int) -> Iterator[OperatorCost]:
    """No operators beyond matrices.

    Parameters
    ----------
    mixer : NoMixer
        The mixer.
    formats : LayerFormats
        Formats of cache, states and activations.
    layers : int
        Equal layers. [layer]
    tensor_parallel : int
        Ranks that divide the heads. [1]
    """
    return iter(())


def cache(mixer: NoMixer, formats: LayerFormats, *, tensor_parallel: int) -> LayerCache:
    """No cache."""
    return LayerCache()


def cache_makers(mixer: NoMixer) -> frozenset[str]:
    """None."""
    return frozenset()


def state_bits(mixer: NoMixer, formats: LayerFormats, *, tensor_parallel: int, spared_columns: int = 0) -> int:
    """No state.

    Parameters
    ----------
    mixer : NoMixer
        The mixer.
    formats : LayerFormats
        Formats of the states.
    tensor_parallel : int
        Ranks that divide the heads. [1]
    spared_columns : int
        Columns of the window of a convolution that an engine does not keep between passes. [token]

    Returns
    -------
    int
        0. [bit]
    """
    return 0


def activation_tensors(mixer: NoMixer, *, tensor_parallel: int) -> dict[str, int]:
    """Nothing alive beyond the residual. [element]"""
    return {}


def check_sharding(mixer: NoMixer, model: str, *, tensor_parallel: int) -> None:
    """Any degree divides nothing."""


def rotary_size(mixer: NoMixer) -> int:
    """It has no rotary positions. [element]"""
    return 0


def is_ordinary(mixer: NoMixer) -> bool:
    """Whether the reference decoder has this mixer."""
    return False


def summary(mixer: NoMixer) -> str:
    """The mixer in a few words."""
    return "none"
