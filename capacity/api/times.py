"""How fast: ridge point, time per output token, time to first token, latency of a request."""

from __future__ import annotations

from typing import Any

from capacity.api._checked import checked_case
from capacity.arrays import ArrayLike, plain
from capacity.estimate import request
from capacity.formulas import serving
from capacity.inputs import check_kind, check_time, same_shape, whole
from capacity.results import Estimate
from capacity.specs.deployment import Deployment
from capacity.specs.hardware import HardwareSpec
from capacity.specs.world import Subject
from capacity.supply import ceilings


def ridge_point(hardware: HardwareSpec, number_format: str, *, attainable: bool = False) -> float:
    """FLOP per byte at which compute time equals memory time [1]_.

    Parameters
    ----------
    hardware : HardwareSpec
        The part.
    number_format : str
        The format computed in.
    attainable : bool
        Whether on measured ceilings instead of the datasheet.

    Returns
    -------
    float
        Arithmetic intensity. [FLOP/B]

    Raises
    ------
    CapacityError
        If the part has no path for the format, or measured ceilings are wanted and were not measured.

    Examples
    --------
    >>> import capacity as cap
    >>> round(cap.ridge_point(cap.load_hardware("nvidia-h100-sxm5-80gb"), "bf16"))
    295

    References
    ----------
    .. [1] Williams, Waterman, Patterson, "Roofline", CACM 52(4), 2009.
    """
    check_kind("hardware", hardware, HardwareSpec)
    check_kind("number_format", number_format, str)
    return ceilings.ridge_point(hardware, number_format, attainable=attainable)


def tpot(
    model: Subject, hardware: HardwareSpec, deploy: Deployment, *, batch: ArrayLike, context_tokens: ArrayLike
) -> Estimate:
    """Time per output token: one decode step of ``batch`` sequences [1]_.

    Parameters
    ----------
    model : ModelSpec or WorldModelSpec
        The network.
    hardware : HardwareSpec
        The part.
    deploy : Deployment
        Number formats, parallelism and launch mode.
    batch : array_like
        Sequences of the replica. [sequence]
    context_tokens : array_like
        Tokens of each sequence, including the one that the step computes. [token]

    Returns
    -------
    Estimate
        ``.bound`` that no engine beats, ``.roofline`` of an ordinary engine on the datasheet, ``.attainable`` (None
        where time on links is not modelled), ``.value``, ``.low`` and ``.high`` (None where no calibration covers the
        case), in the broadcast shape of both numbers; ``.bound_by`` and ``.largest_operator`` say what binds. [s]

    Raises
    ------
    CapacityError
        If a number is not whole, the model cannot have this deployment, or the part has no path for a format.

    Examples
    --------
    >>> import capacity as cap
    >>> model, part = cap.load_model("llama-3-8b"), cap.load_hardware("nvidia-h100-sxm5-80gb")
    >>> step = cap.tpot(model, part, cap.Deployment(weights="bf16"), batch=1, context_tokens=2048)
    >>> round(step.roofline * 1e3, 2)  # 15.0 GB of weights and 0.27 GB of cache at 3.35 TB/s [ms]
    4.56
    >>> round(step.bound * 1e3, 2)  # of which 50 MB may lie in the last-level cache [ms]
    4.54

    References
    ----------
    .. [1] Pope et al., "Efficiently Scaling Transformer Inference", MLSys 2023, arXiv:2211.05102: memory time
       and compute time of prefill and decode; the roofline is that of Williams, Waterman, Patterson, CACM 52(4), 2009.
    """
    batch, context = whole("batch", batch), whole("context_tokens", context_tokens)
    same_shape(batch=batch, context_tokens=context)
    return request.tpot(checked_case(model, hardware, deploy), batch=batch, context_tokens=context)


def ttft(
    model: Subject, hardware: HardwareSpec, deploy: Deployment, *, batch: ArrayLike, prompt_tokens: ArrayLike
) -> Estimate:
    """Time to first token of ``batch`` prompts prefilled together; a world model encodes its images first [1]_.

    Parameters
    ----------
    model : ModelSpec or WorldModelSpec
        The network.
    hardware : HardwareSpec
        The part.
    deploy : Deployment
        Number formats, parallelism and launch mode.
    batch : array_like
        Prompts of the replica. [sequence]
    prompt_tokens : array_like
        Tokens of each; of a world model those that its views and text make. [token]

    Returns
    -------
    Estimate
        As by `tpot`. [s]

    Raises
    ------
    CapacityError
        As by `tpot`, or if a world model is asked about another prompt than its own.

    Examples
    --------
    >>> import capacity as cap
    >>> model, part = cap.load_model("llama-3-8b"), cap.load_hardware("nvidia-h100-sxm5-80gb")
    >>> first = cap.ttft(model, part, cap.Deployment(weights="bf16"), batch=1, prompt_tokens=2048)
    >>> round(first.roofline * 1e3, 1), round(first.bound * 1e3, 1)  # the last layer is needed for one token alone [ms]
    (30.3, 29.1)

    References
    ----------
    .. [1] Pope et al., "Efficiently Scaling Transformer Inference", MLSys 2023, arXiv:2211.05102: memory time
       and compute time of prefill and decode; the roofline is that of Williams, Waterman, Patterson, CACM 52(4), 2009.
    """
    batch, prompt = whole("batch", batch), whole("prompt_tokens", prompt_tokens)
    same_shape(batch=batch, prompt_tokens=prompt)
    return request.ttft(checked_case(model, hardware, deploy), batch=batch, prompt_tokens=prompt)


def request_latency(ttft_s: ArrayLike, tpot_s: ArrayLike, output_tokens: ArrayLike) -> Any:
    r"""Time of a whole request; the time to first token holds the first of ``output_tokens`` [1]_.

    .. math:: T = TTFT + (N - 1) TPOT

    Parameters
    ----------
    ttft_s : array_like
        Time to first token. [s]
    tpot_s : array_like
        Time per output token after the first. [s]
    output_tokens : array_like
        Tokens of the answer, N. [token]

    Returns
    -------
    float or ndarray
        In the broadcast shape of all. [s]

    Raises
    ------
    CapacityError
        If a time is negative or not finite, or the tokens are not whole.

    Examples
    --------
    >>> import capacity as cap
    >>> round(cap.request_latency(0.180, 0.035, 20), 3)
    0.845

    References
    ----------
    .. [1] vLLM, ``vllm bench serve``: "Time per Output Token (excl. 1st token)", of which N - 1 follow the first.
    """
    first, each = check_time("ttft_s", ttft_s, zero=True), check_time("tpot_s", tpot_s, zero=True)
    count = whole("output_tokens", output_tokens)
    same_shape(ttft_s=first, tpot_s=each, output_tokens=count)
    return plain(serving.request_latency_s(first, each, count))
