"""The promised functions: check numbers, call, unwrap. Specs are positional, numbers keyword-only.

Numbers may be scalars or numpy arrays that broadcast; scalar in, Python int or float out. Bytes are per device, the
heaviest one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from capacity.demand import memory, work
from capacity.demand.memory import ParameterCount
from capacity.estimate import time as evaluate
from capacity.formulas import serving
from capacity.formulas.control_cycle import check_time
from capacity.inputs import check_kind, plain, same_shape, whole
from capacity.results import Estimate, Sizing
from capacity.specs.deployment import Deployment
from capacity.specs.hardware import HardwareSpec
from capacity.specs.model import ModelSpec
from capacity.specs.workload import Workload
from capacity.studies import size as _sizing
from capacity.supply import ceilings

ArrayLike = Any


def parameter_count(model: ModelSpec) -> ParameterCount:
    """Parameters of ``model``: .total .active .read_per_token .embedding .lm_head .by_module. [parameter]"""
    check_kind("model", model, ModelSpec)
    return memory.parameter_count(model)


def weight_bytes(model: ModelSpec, deploy: Deployment) -> int:
    """Weight bytes on the heaviest device. [B]"""
    _check(model, deploy)
    return max(sum(parts.values()) for parts in memory.weight_bytes_by_rank(model, deploy))


def kv_cache_bytes(model: ModelSpec, deploy: Deployment, *, batch: ArrayLike, context_tokens: ArrayLike) -> Any:
    """Key-value cache on the heaviest device, in the broadcast shape of the inputs; grows with context. [B]

    This is what the tokens need. An engine allocates whole blocks: the ledger of a sizing shows the unused rest.
    """
    batch, context = whole("batch", batch), whole("context_tokens", context_tokens, least=0)
    same_shape(batch=batch, context_tokens=context)
    _check(model, deploy)
    evaluate.refuse_overflow(deploy, model, batch, context)
    mine = work.rank_batch(batch, deploy)
    ranks = [
        mine * memory.sequence_cache_bytes(model, deploy, context_tokens=context, rank=rank)
        for rank in range(deploy.pipeline_parallel)
    ]
    return plain(np.max(np.stack(np.broadcast_arrays(*ranks)), axis=0))


def state_bytes(model: ModelSpec, deploy: Deployment, *, batch: ArrayLike) -> Any:
    """Recurrent, convolution and cross-attention state on the heaviest device; constant in context. [B]"""
    batch = whole("batch", batch)
    _check(model, deploy)
    evaluate.refuse_overflow(deploy, model, batch, 1)
    each = max(memory.sequence_state_bytes(model, deploy, rank) for rank in range(deploy.pipeline_parallel))
    return plain(work.rank_batch(batch, deploy) * each)


def activation_bytes(model: ModelSpec, deploy: Deployment, *, batch: ArrayLike, tokens: ArrayLike) -> Any:
    """Activation peak of one device over phases, logits and sampler rows included. [B]

    ``tokens`` are the prompt tokens of each sequence; a prefill pass holds at most ``prefill_chunk_tokens``.
    """
    batch, tokens = whole("batch", batch), whole("tokens", tokens)
    same_shape(batch=batch, tokens=tokens)
    _check(model, deploy)
    evaluate.refuse_overflow(deploy, model, batch, tokens)
    return plain(memory.activation_bytes(model, deploy, rank_batch=work.rank_batch(batch, deploy), tokens=tokens))


def max_batch(model: ModelSpec, hardware: HardwareSpec, deploy: Deployment, *, context_tokens: ArrayLike) -> Any:
    """Largest batch of one replica at ``context_tokens`` each: n fits, n + 1 does not; 0 when weights do not fit."""
    context = whole("context_tokens", context_tokens)
    _check(model, deploy, hardware)
    return plain(evaluate.max_batch(model, hardware, deploy, context_tokens=context))


def max_context(model: ModelSpec, hardware: HardwareSpec, deploy: Deployment, *, batch: ArrayLike) -> Any:
    """Longest context of each of ``batch`` sequences that fits, at most the model's positions; 0 where the
    deployment allows fewer sequences. [token]"""
    batch = whole("batch", batch)
    _check(model, deploy, hardware)
    return plain(evaluate.max_context(model, hardware, deploy, batch=batch)[0])


def ridge_point(hardware: HardwareSpec, number_format: str, *, attainable: bool = False) -> float:
    """FLOP per byte at which compute time equals memory time, on datasheet or on measured ceilings. [FLOP/B]"""
    check_kind("hardware", hardware, HardwareSpec)
    check_kind("number_format", number_format, str)
    return ceilings.ridge_point(hardware, number_format, attainable=attainable)


def tpot(
    model: ModelSpec,
    hardware: HardwareSpec,
    deploy: Deployment,
    *,
    batch: ArrayLike,
    context_tokens: ArrayLike,
) -> Estimate:
    """Time per output token of ``batch`` sequences of ``context_tokens`` each. [s]"""
    batch, context = whole("batch", batch), whole("context_tokens", context_tokens)
    same_shape(batch=batch, context_tokens=context)
    _check(model, deploy, hardware)
    return evaluate.tpot(model, hardware, deploy, batch=batch, context_tokens=context)


def ttft(
    model: ModelSpec,
    hardware: HardwareSpec,
    deploy: Deployment,
    *,
    batch: ArrayLike,
    prompt_tokens: ArrayLike,
) -> Estimate:
    """Time to first token of ``batch`` prompts that are prefilled together. [s]"""
    batch, prompt = whole("batch", batch), whole("prompt_tokens", prompt_tokens)
    same_shape(batch=batch, prompt_tokens=prompt)
    _check(model, deploy, hardware)
    return evaluate.ttft(model, hardware, deploy, batch=batch, prompt_tokens=prompt)


def request_latency(ttft_s: ArrayLike, tpot_s: ArrayLike, output_tokens: ArrayLike) -> Any:
    """TTFT + (N - 1) TPOT: the time to first token holds the first of ``output_tokens``. [s]"""
    first, each = check_time("ttft_s", ttft_s, zero=True), check_time("tpot_s", tpot_s, zero=True)
    count = whole("output_tokens", output_tokens)
    same_shape(ttft_s=first, tpot_s=each, output_tokens=count)
    return plain(serving.request_latency_s(first, each, count))


def size(
    model: ModelSpec,
    hardware: HardwareSpec,
    workload: Workload | None = None,
    deploy: Deployment | None = None,
) -> Sizing:
    """Size one replica: ledger, limits, bounds, and whether it fits."""
    check_kind("workload", workload, Workload, none=True)
    chosen = Deployment() if deploy is None else deploy
    _check(model, chosen, hardware)
    return _sizing.size(model, hardware, workload, chosen)


def _check(model: Any, deploy: Any, *hardware: Any) -> None:
    """Refuse arguments of a wrong kind, then a deployment that the model cannot have."""
    check_kind("model", model, ModelSpec)
    for part in hardware:
        check_kind("hardware", part, HardwareSpec)
    check_kind("deploy", deploy, Deployment)
    evaluate.check(model, deploy)
