"""Mixers with constant memory (state space, delta rule, gated recurrence, short convolution): matrices and state.

State heads divide over tensor-parallel ranks.
"""

from __future__ import annotations

from collections.abc import Iterator

from capacity.demand.costs import LayerCache, LayerFormats, OperatorCost
from capacity.demand.weights import Module, matrix, vector
from capacity.errors import CapacityError
from capacity.specs.model import StateMixer
from capacity.units import Arithmetic

OVERRIDE_PART = "state"
SUMS = 1


def weights(mixer: StateMixer, width: int) -> Iterator[Module]:
    """The matrices that its spec lists, and its small tensors as one vector."""
    for item in mixer.matrices:
        unit = max(1, item.rows // mixer.heads) if item.shard == "rows" else 1
        yield matrix(item.name, "state", "attention", item.rows, item.columns, item.shard, unit=unit)
    if mixer.vector_parameters:
        yield vector("state_vectors", "state", mixer.vector_parameters)


def costs(mixer: StateMixer, formats: LayerFormats, *, layers: int, tensor_parallel: int) -> Iterator[OperatorCost]:
    """A pass reads the state and writes it back; its arithmetic is the spec's ``update_flop``.

    Parameters
    ----------
    mixer : StateMixer
        The mixer.
    formats : LayerFormats
        Formats of cache, states and activations.
    layers : int
        Equal layers. [layer]
    tensor_parallel : int
        Ranks that divide the heads. [1]
    """
    bits = state_bits(mixer, formats, tensor_parallel=tensor_parallel)
    computed = "fp32" if mixer.update_flop else formats.conv.name
    yield OperatorCost(
        operator="state",
        arithmetic=Arithmetic(computed, computed, "checkpoint"),
        layers=layers,
        launches=layers,
        token_flop=mixer.update_flop / tensor_parallel * layers,
        sequence_bytes=2 * bits / 8 * layers,
    )


def cache(mixer: StateMixer, formats: LayerFormats, *, tensor_parallel: int) -> LayerCache:
    """No key-value cache."""
    return LayerCache()


def cache_makers(mixer: StateMixer) -> frozenset[str]:
    """All of them: the state after a token depends on every matrix before it."""
    return frozenset(item.name for item in mixer.matrices)


def state_bits(mixer: StateMixer, formats: LayerFormats, *, tensor_parallel: int, spared_columns: int = 0) -> int:
    """State of one sequence in one layer: recurrent in its own format, convolution at 16 bit.

    Parameters
    ----------
    mixer : StateMixer
        The mixer.
    formats : LayerFormats
        Formats of the states.
    tensor_parallel : int
        Ranks that divide the state. [1]
    spared_columns : int
        Columns of the window of a convolution that an engine does not keep between passes. [token]

    Returns
    -------
    int
        Per device. [bit]
    """
    kinds = {"recurrent": formats.recurrent, "conv": formats.conv}
    sizes = [(kinds[state.kind], state.kept_elements(spared_columns)) for state in mixer.state]
    return sum(stored.cache_bits(-(-elements // tensor_parallel)) for stored, elements in sizes)


def activation_tensors(mixer: StateMixer, *, tensor_parallel: int) -> dict[str, int]:
    """What is alive per token at the end of the mixer, by name. [element]"""
    outputs = sum(-(-item.rows // tensor_parallel) for item in mixer.matrices)
    return {"projections": outputs, "projections after the recurrence": outputs}


def check_sharding(mixer: StateMixer, model: str, *, tensor_parallel: int) -> None:
    """Refuse a degree that does not divide the state heads.

    Raises
    ------
    CapacityError
        If it does not.
    """
    if mixer.heads % tensor_parallel:
        raise CapacityError(f"tensor_parallel {tensor_parallel} must divide the {mixer.heads} state heads of {model}")


def rotary_size(mixer: StateMixer) -> int:
    """It has no rotary positions. [element]"""
    return 0


def is_ordinary(mixer: StateMixer) -> bool:
    """Whether the reference decoder has this mixer."""
    return False


def summary(mixer: StateMixer) -> str:
    """The mixer in a few words."""
    return f"state, {mixer.name}"
