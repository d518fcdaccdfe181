"""What fits: the largest batch and the longest context of one replica."""

from __future__ import annotations

from typing import Any

from capacity.api._checked import check_keeps_context, checked_case
from capacity.arrays import ArrayLike, plain
from capacity.estimate import memory
from capacity.inputs import whole
from capacity.specs.deployment import Deployment
from capacity.specs.hardware import HardwareSpec
from capacity.specs.world import Subject


def max_batch(model: Subject, hardware: HardwareSpec, deploy: Deployment, *, context_tokens: ArrayLike) -> Any:
    """Largest batch of one replica: n fits and n + 1 does not; 0 where the weights alone do not fit [1]_.

    Parameters
    ----------
    model : ModelSpec or WorldModelSpec
        The network.
    hardware : HardwareSpec
        The part.
    deploy : Deployment
        Number formats, parallelism and memory limit.
    context_tokens : array_like
        Tokens of each sequence at its longest, prompt and answer. [token]

    Returns
    -------
    int or ndarray
        Sequences of the replica, in the shape of ``context_tokens``. [sequence]

    Raises
    ------
    CapacityError
        If a number is not whole, the model cannot have this deployment, or the part's memory is not known.

    Examples
    --------
    >>> import capacity as cap
    >>> model, part = cap.load_model("llama-3-8b"), cap.load_hardware("nvidia-h100-sxm5-80gb")
    >>> cap.max_batch(model, part, cap.Deployment(weights="bf16"), context_tokens=8192)
    55

    References
    ----------
    .. [1] Kwon et al., "Efficient Memory Management for Large Language Model Serving with PagedAttention",
       SOSP 2023, arXiv:2309.06180, section 4: caches in blocks.
    """
    context = whole("context_tokens", context_tokens)
    case = checked_case(model, hardware, deploy)
    check_keeps_context(model)
    return plain(memory.max_batch(case.memory, case.budget, case.deploy, context_tokens=context))


def max_context(model: Subject, hardware: HardwareSpec, deploy: Deployment, *, batch: ArrayLike) -> Any:
    """Longest context of each of ``batch`` sequences that fits, at most the model's positions [1]_.

    Parameters
    ----------
    model : ModelSpec or WorldModelSpec
        The network.
    hardware : HardwareSpec
        The part.
    deploy : Deployment
        Number formats, parallelism and memory limit.
    batch : array_like
        Sequences of the replica. [sequence]

    Returns
    -------
    int or ndarray
        Tokens of each sequence, in the shape of ``batch``; 0 where the deployment allows fewer sequences. [token]

    Raises
    ------
    CapacityError
        If a number is not whole, the model cannot have this deployment, or the part's memory is not known.

    Examples
    --------
    >>> import capacity as cap
    >>> model, part = cap.load_model("llama-3-8b"), cap.load_hardware("nvidia-h100-sxm5-80gb")
    >>> cap.max_context(model, part, cap.Deployment(weights="bf16"), batch=1)  # the positions of the model
    8192

    References
    ----------
    .. [1] Kwon et al., "Efficient Memory Management for Large Language Model Serving with PagedAttention",
       SOSP 2023, arXiv:2309.06180, section 4: caches in blocks.
    """
    batch = whole("batch", batch)
    case = checked_case(model, hardware, deploy)
    check_keeps_context(model)
    context, _ = memory.max_context(case.memory, case.budget, case.deploy, batch=batch, positions=case.model.positions)
    return plain(context)
