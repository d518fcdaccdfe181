"""Parameters, and bytes per device: weights, key-value cache, state and activations."""

from __future__ import annotations

from typing import Any

import numpy as np

from capacity.api._checked import checked_table
from capacity.arrays import ArrayLike, plain
from capacity.demand import parameters
from capacity.demand.parameters import ParameterCount
from capacity.demand.passes import local_sequences
from capacity.estimate import moments
from capacity.estimate.memory import refuse_overflow
from capacity.estimate.usage import activation_bytes as peak_bytes
from capacity.estimate.usage import cache_bytes
from capacity.inputs import check_kind, one_count, same_shape, whole
from capacity.results import ActivationMoments
from capacity.specs.deployment import Deployment
from capacity.specs.model import ModelSpec
from capacity.specs.world import Subject, network


def parameter_count(model: ModelSpec) -> ParameterCount:
    """Parameters of a model, in all and by module [1]_.

    Parameters
    ----------
    model : ModelSpec
        The network.

    Returns
    -------
    ParameterCount
        ``.total``, ``.active`` (without the experts that a token does not visit), ``.read_per_token`` (what a decode
        step at batch 1 reads), ``.embedding``, ``.lm_head`` and ``.by_module``. [parameter]

    Raises
    ------
    CapacityError
        If ``model`` is no ModelSpec.

    Examples
    --------
    >>> import capacity as cap
    >>> cap.parameter_count(cap.load_model("llama-3-8b")).total
    8030261248

    References
    ----------
    .. [1] Counted again by Hugging Face transformers on the meta device: tests/data/model_oracle.csv.
    """
    check_kind("model", model, ModelSpec)
    return parameters.parameter_count(model)


def weight_bytes(model: Subject, deploy: Deployment) -> int:
    """Weight bytes on the heaviest device, scales and padding included [1]_.

    Parameters
    ----------
    model : ModelSpec or WorldModelSpec
        The network; parts of a world model that are offloaded are left out.
    deploy : Deployment
        Number formats and parallelism.

    Returns
    -------
    int
        Per device. [B]

    Raises
    ------
    CapacityError
        If the model cannot have this deployment.

    Examples
    --------
    >>> import capacity as cap
    >>> cap.weight_bytes(cap.load_model("llama-3-8b"), cap.Deployment(weights="bf16"))
    16060522496

    References
    ----------
    .. [1] Bits, groups, scales and zeros of each format, with their sources: capacity/data/number_formats.toml.
    """
    table = checked_table(model, deploy)
    weights = [[row.fixed_bytes for row in kind.static_rows if row.name.startswith("weights")] for kind in table.kinds]
    return max(sum(sizes) for sizes in weights)


def kv_cache_bytes(model: Subject, deploy: Deployment, *, batch: ArrayLike, context_tokens: ArrayLike) -> Any:
    """Key-value cache on the heaviest device; it grows with context [1]_.

    This is what the tokens need. An engine allocates whole blocks: the ledger of a sizing shows the rest as internal
    fragmentation.

    Parameters
    ----------
    model : ModelSpec or WorldModelSpec
        The network.
    deploy : Deployment
        Cache format and parallelism.
    batch : array_like
        Sequences of the replica. [sequence]
    context_tokens : array_like
        Tokens of each, from 0. [token]

    Returns
    -------
    int or ndarray
        Per device, in the broadcast shape of both. [B]

    Raises
    ------
    CapacityError
        If a number is not whole, the model cannot have this deployment, or the bytes exceed 2^62.

    Examples
    --------
    >>> import capacity as cap
    >>> cap.kv_cache_bytes(cap.load_model("llama-3-8b"), cap.Deployment(weights="bf16"), batch=1, context_tokens=[1, 2])
    array([131072, 262144])

    References
    ----------
    .. [1] Kwon et al., "Efficient Memory Management for Large Language Model Serving with PagedAttention",
       SOSP 2023, arXiv:2309.06180, section 4: caches in blocks.
    """
    batch, context = whole("batch", batch), whole("context_tokens", context_tokens, minimum=0)
    same_shape(batch=batch, context_tokens=context)
    table = checked_table(model, deploy)
    _ = network(model).decoder  # an encoder keeps no cache
    refuse_overflow(table, batch=batch, context_tokens=context)
    local = local_sequences(batch, deploy)
    caches = [cache_bytes(kind.totals.content, sequences=local, context_tokens=context) for kind in table.kinds]
    return plain(np.max(np.stack(np.broadcast_arrays(*caches)), axis=0))


def state_bytes(model: Subject, deploy: Deployment, *, batch: ArrayLike) -> Any:
    """Recurrent, convolution and cross-attention state on the heaviest device; constant in context [1]_.

    Parameters
    ----------
    model : ModelSpec or WorldModelSpec
        The network.
    deploy : Deployment
        State format and parallelism.
    batch : array_like
        Sequences of the replica. [sequence]

    Returns
    -------
    int or ndarray
        Per device, in the shape of ``batch``. [B]

    Raises
    ------
    CapacityError
        If a number is not whole, the model cannot have this deployment, or the bytes exceed 2^62.

    Examples
    --------
    >>> import capacity as cap
    >>> cap.state_bytes(cap.load_model("llama-3-8b"), cap.Deployment(weights="bf16"), batch=8)
    0

    References
    ----------
    .. [1] Gu, Dao, "Mamba", arXiv:2312.00752, section 3: a state of constant size in place of a cache.
    """
    batch = whole("batch", batch)
    table = checked_table(model, deploy)
    refuse_overflow(table, batch=batch, context_tokens=1)
    each = max(kind.totals.sequence_bytes for kind in table.kinds)
    return plain(np.multiply(local_sequences(batch, deploy), each))


def activation_moments(model: Subject, deploy: Deployment, *, batch: int, tokens: int) -> ActivationMoments:
    """What is alive on one device at each moment of the widest pass: which tensors, in which layer [1]_.

    Parameters
    ----------
    model : ModelSpec or WorldModelSpec
        The network.
    deploy : Deployment
        Compute format, parallelism and the size of a prefill chunk, which a pass does not exceed.
    batch : int
        Sequences of the replica. [sequence]
    tokens : int
        Tokens of each. [token]

    Returns
    -------
    ActivationMoments
        One row per moment and layer with its tensors; ``.peak_bytes`` is what `activation_bytes` gives. [B]

    Raises
    ------
    CapacityError
        If a number is not whole or the model cannot have this deployment.

    Examples
    --------
    >>> import capacity as cap
    >>> moments = cap.activation_moments(
    ...     cap.load_model("llama-3-8b"), cap.Deployment(weights="bf16"), batch=1, tokens=8192
    ... )
    >>> moments.peak_bytes, moments.rows[1].tensors["gate"] == 8192 * 14336 * 2
    (1207959552, True)

    References
    ----------
    .. [1] The schedule of the reference decoder, whose memory runs (capacity/data/runs) hold its peak to the byte.
    """
    batch, tokens = one_count("batch", batch), one_count("tokens", tokens)
    refuse_overflow(checked_table(model, deploy), batch=batch, context_tokens=tokens)
    return moments.activation_moments(model, deploy, batch=batch, tokens=tokens)


def activation_bytes(model: Subject, deploy: Deployment, *, batch: ArrayLike, tokens: ArrayLike) -> Any:
    """Activation peak of one device over phases, logits and sampler rows included [1]_.

    Parameters
    ----------
    model : ModelSpec or WorldModelSpec
        The network.
    deploy : Deployment
        Compute format, parallelism and the size of a prefill chunk, which a pass does not exceed.
    batch : array_like
        Sequences of the replica. [sequence]
    tokens : array_like
        Tokens of each. [token]

    Returns
    -------
    int or ndarray
        Per device, in the broadcast shape of both. [B]

    Raises
    ------
    CapacityError
        If a number is not whole, the model cannot have this deployment, or the bytes exceed 2^62.

    Examples
    --------
    >>> import capacity as cap
    >>> deploy = cap.Deployment(weights="bf16")
    >>> cap.activation_bytes(cap.load_model("llama-3-8b"), deploy, batch=1, tokens=8192)  # 2 (4 D + 4 F) per token
    1207959552

    References
    ----------
    .. [1] The schedule of the reference decoder, whose memory runs (capacity/data/runs) hold its peak to the byte.
    """
    batch, tokens = whole("batch", batch), whole("tokens", tokens)
    same_shape(batch=batch, tokens=tokens)
    table = checked_table(model, deploy)
    refuse_overflow(table, batch=batch, context_tokens=tokens)
    local = local_sequences(batch, deploy)
    peaks = [peak_bytes(kind.totals, sequences=local, context_tokens=tokens) for kind in table.kinds]
    return plain(np.max(np.stack(peaks), axis=0))
