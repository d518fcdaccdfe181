"""What a sequence holds on one device, and what is alive at each moment of a pass: coefficients read off the specs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from capacity.demand import feed_forwards, mixers
from capacity.demand.costs import LayerCache
from capacity.demand.formats import activation_element_bytes
from capacity.demand.operators import layer_formats
from capacity.demand.pipeline import rank_of_layer
from capacity.specs.deployment import Deployment
from capacity.specs.model import LayerGroup, ModelSpec, Stage


@dataclass(frozen=True, slots=True)
class CacheRow:
    """Key-value caches of equal layers on one pipeline rank. ``window`` is 0 for a cache that grows without end."""

    rank: int
    layers: int
    layer: LayerCache


@lru_cache(maxsize=512)
def cache_rows(model: ModelSpec, deploy: Deployment) -> tuple[CacheRow, ...]:
    """The key-value caches of the stages behind the encoders, per device, in rows of equal layers."""
    counts: Counter[tuple[int, LayerCache]] = Counter()
    for stage in _remembering(model):
        for group in stage.layers:
            kind = mixers.of(group.mixer)
            for layer in group.indices:
                formats = layer_formats(layer, model, deploy)
                cached = kind.cache(group.mixer, formats, tensor_parallel=deploy.tensor_parallel)
                counts[rank_of_layer(layer, stage.name, model, deploy), cached] += 1
    rows = (CacheRow(rank, layers, cached) for (rank, cached), layers in counts.items())
    return tuple(row for row in rows if row.layer.token_bytes or row.layer.constant_bytes)


def keeps_latents(model: ModelSpec, deploy: Deployment) -> bool:
    """Whether layers keep latents instead of keys and values.

    Parameters
    ----------
    model : ModelSpec
        The network.
    deploy : Deployment
        Number formats and parallelism.
    """
    return any(row.layer.latent for row in cache_rows(model, deploy))


@dataclass(frozen=True, slots=True)
class StateRow:
    """State of constant size of one sequence in each of some alike layers of a pipeline rank. [layer], [bit]"""

    rank: int
    layers: int
    layer_bits: int


@lru_cache(maxsize=512)
def state_rows(model: ModelSpec, deploy: Deployment, spared_columns: int = 0) -> tuple[StateRow, ...]:
    """Recurrent and convolution states of the stages behind the encoders, per device, in rows of equal layers.

    Parameters
    ----------
    model : ModelSpec
        The network.
    deploy : Deployment
        Formats of the states, and parallelism.
    spared_columns : int
        Columns of the window of a convolution that an engine does not keep. [token]
    """
    counts: Counter[tuple[int, int]] = Counter()
    for stage in _remembering(model):
        for group in stage.layers:
            kind = mixers.of(group.mixer)
            for layer in group.indices:
                formats = layer_formats(layer, model, deploy)
                bits = kind.state_bits(
                    group.mixer, formats, tensor_parallel=deploy.tensor_parallel, spared_columns=spared_columns
                )
                counts[rank_of_layer(layer, stage.name, model, deploy), bits] += 1
    return tuple(StateRow(rank, layers, bits) for (rank, bits), layers in counts.items() if bits)


@lru_cache(maxsize=512)
def sequence_state_bytes(model: ModelSpec, deploy: Deployment, spared_columns: int = 0) -> tuple[int, ...]:
    """Recurrent, convolution and cross-attention state of one sequence on a device of each pipeline rank.

    Parameters
    ----------
    model : ModelSpec
        The network.
    deploy : Deployment
        Formats of the states, and parallelism.
    spared_columns : int
        Columns of the window of a convolution that an engine does not keep. [token]

    Returns
    -------
    tuple of int
        For each rank. [B]
    """
    constants, bits = ([0] * deploy.pipeline_parallel for _ in range(2))
    for row in cache_rows(model, deploy):
        constants[row.rank] += row.layers * row.layer.constant_bytes
    for state in state_rows(model, deploy, spared_columns):
        bits[state.rank] += state.layers * state.layer_bits
    return tuple(cross - (-state // 8) for cross, state in zip(constants, bits, strict=True))


def _remembering(model: ModelSpec) -> Iterable[Stage]:
    """Stages that keep something between passes: an encoder's keys live no longer than its pass."""
    return (stage for stage in model.stages if stage.role != "encoder")


@dataclass(frozen=True, slots=True)
class ActivationPeak:
    """A moment of a pass at which much is alive: bytes per token in flight and per sequence sampled. [B]"""

    name: str
    token_bytes: int
    sequence_bytes: int


@lru_cache(maxsize=512)
def activation_peaks(model: ModelSpec, deploy: Deployment) -> tuple[ActivationPeak, ...]:
    """What is alive on one device at the end of the widest layer and at the sampler, for the reference decoder.

    In elements of the 16-bit (or wider) compute format, a token holds at the end of a layer residual, normed
    input, projection and new residual of the hidden width D, with gate, up, activation and product of the
    feed-forward, 4 D + 4 F, or query, key, value, rotated query and key and attended values,
    4 D + 3 H d + 2 H_kv d + H_kv d. Experts count those that a token visits and the shared ones. The sampler
    holds D of every token, and for each sequence its normed row, the logits over the whole vocabulary (which is
    gathered), their 32-bit copy where they are narrower, and 32-bit probabilities.

    References
    ----------
    ``capacity/measure``, prefill of the reference decoder: the schedule; measured runs of kind ``memory`` hold it to
    the byte.
    """
    layer = ActivationPeak("layer", max(layer_peak_bytes(stage, deploy) for stage in model.stages), 0)
    if not model.vocabulary:
        return (layer,)
    widths = [stage.hidden_size for stage in model.stages if stage.role == "decoder"]
    return layer, sampler_peak(widths[-1] if widths else 0, model.vocabulary, deploy)


HIDDEN_ROWS = ("residual", "normed input", "projection", "new residual")  # of the hidden width, at the end of a layer


def layer_peak_bytes(stage: Stage, deploy: Deployment) -> int:
    """Bytes per token at the end of the widest layer of one stage; 0 for a stage without layers. [B]

    Parameters
    ----------
    stage : Stage
        A stage of the network.
    deploy : Deployment
        Number formats, parallelism and limits.

    Returns
    -------
    int
        Per token in flight. [B]
    """
    degree = 1 if stage.role == "encoder" else deploy.tensor_parallel
    inner = [_inner_elements(group, degree) for group in stage.layers]
    return (len(HIDDEN_ROWS) * stage.hidden_size + max(inner)) * activation_element_bytes(deploy) if inner else 0


def _inner_elements(group: LayerGroup, tensor_parallel: int) -> int:
    return max([sum(tensors.values()) for tensors in layer_tensors(group, tensor_parallel).values()])


def layer_tensors(group: LayerGroup, tensor_parallel: int) -> dict[str, dict[str, int]]:
    """What is alive per token at the end of mixer and feed-forward, beyond rows of the hidden width. [element]

    Parameters
    ----------
    group : LayerGroup
        Equal layers.
    tensor_parallel : int
        Ranks that divide heads and inner widths. [1]

    Returns
    -------
    dict
        Elements per token by tensor, of mixer and feed-forward. [element]
    """
    mixing = mixers.of(group.mixer).activation_tensors(group.mixer, tensor_parallel=tensor_parallel)
    forward = feed_forwards.of(group.feed_forward).activation_tensors(
        group.feed_forward, tensor_parallel=tensor_parallel
    )
    return {"mixer": mixing, "feed-forward": forward}


def sampler_peak(width: int, vocabulary: int, deploy: Deployment) -> ActivationPeak:
    """What is alive while the next token of each sequence is sampled from logits over the whole vocabulary.

    Parameters
    ----------
    width : int
        Hidden size. [1]
    vocabulary : int
        Tokens that can be sampled. [token]
    deploy : Deployment
        Number formats, parallelism and limits.
    """
    element = activation_element_bytes(deploy)
    logits_and_probabilities = element + 4 + (4 if element < 4 else 0)
    return ActivationPeak("sampler", width * element, width * element + vocabulary * logits_and_probabilities)
