"""Each timed program against the float64 oracle: its first layers, with the whole vocabulary and context."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from capacity.measure.decoder import oracle
from capacity.measure.decoder.cpu.step import CpuDecoder
from capacity.measure.decoder.cpu.weights import Weights
from capacity.measure.decoder.cuda.step import CudaDecoder
from capacity.measure.decoder.weights import DecoderWeights
from capacity.measure.runs.quality import (
    NARROW_TOLERANCES,
    PREFILL_TOLERANCES,
    TIE_SHARE,
    TOLERANCE,
    finite_error,
    quality_of,
)
from capacity.measure.shape import DecoderShape
from capacity.specs.measured_run import Quality

if TYPE_CHECKING:
    from torch import Tensor

    from capacity.measure.decoder.prefill import Prefill

CHECKED_LAYERS = 2  # every kernel and every buffer between layers; further layers only repeat them
CHECKED_PROMPT = 256


def first_tokens(shape: DecoderShape, batch: int) -> list[int]:
    """The token with which each sequence of a measured step begins: a different one for each."""
    return [number % shape.vocabulary for number in range(batch)]


def check_cpu_decode(shape: DecoderShape, batch: int, context: int, weights: Weights) -> Quality:
    """A step of the CPU decoder; the error is the largest of logits, stored keys and stored values."""
    import torch

    first = replace(shape, layers=min(shape.layers, CHECKED_LAYERS))
    part = replace(weights, layers=weights.layers[: first.layers])
    decoder = CpuDecoder(first, batch, context, weights=part)
    token = torch.from_numpy(decoder.tokens.copy())  # the step replaces its own
    position, table = torch.from_numpy(decoder.positions), torch.from_numpy(decoder.block_table)
    decoder.step()
    keys, values = decoder.cache_tensors()
    expected = oracle.step(first, part.stored_weights(), token, position, keys, values, table)
    stored = [
        finite_error(oracle.relative_error(oracle.stored_rows(first, cache, table, position), rows))
        for cache, rows in zip([*keys, *values], [*expected.keys, *expected.values], strict=True)
    ]
    logits = decoder.workspace["logits"].astype(np.float64)
    quality = quality_of(logits, expected.logits.numpy(), tolerance=TOLERANCE)
    return quality.replace(relative_error=max(quality.relative_error, *stored))


def check_cuda_decode(shape: DecoderShape, batch: int, context: int, backend: Any, weights: DecoderWeights) -> Quality:
    """A step of the CUDA decoder, with the plan and splits of the whole decoder."""
    import torch

    first = replace(shape, layers=min(shape.layers, CHECKED_LAYERS))
    part = replace(weights, layers=weights.layers[: first.layers])
    decoder = CudaDecoder(first, batch, context, backend, weights=part, advance=False)
    decoder.set_state(first_tokens(first, batch), [context - 1] * batch)
    token = decoder.token.clone()  # the step replaces its own
    decoder.step()
    if backend.device == "cuda":
        torch.cuda.synchronize()
    table = decoder.workspace["block_table"]
    expected = oracle.step(first, part, token, decoder.position, decoder.keys, decoder.values, table).logits
    narrow = decoder.gemm_backend != "simt"
    tolerance = NARROW_TOLERANCES[shape.weight_format] if narrow else TOLERANCE
    tie_share = 2 * tolerance if narrow else TIE_SHARE  # either of two logits may be off by the tolerance
    return quality_of(_as_array(decoder.logits), _as_array(expected), tolerance=tolerance, tie_share=tie_share)


def check_prefill(model: Prefill, prompts: Tensor) -> Quality:
    """The first tokens of the prompts [batch, tokens] through the first layers."""
    import torch

    first, prefixes = model.first_layers(CHECKED_LAYERS), prompts[:, :CHECKED_PROMPT]
    weights = first.stored_weights()
    logits = torch.cat([oracle.prompt(first.shape, weights, row) for row in prefixes])
    tolerance = PREFILL_TOLERANCES[first.shape.weight_format]
    expected = _as_array(logits.softmax(-1))
    return quality_of(_as_array(first(prefixes)), expected, tolerance=tolerance, tie_share=2 * tolerance)


def _as_array(tensor: Tensor) -> np.ndarray:
    """The values in float64 on the host."""
    array: np.ndarray = tensor.double().cpu().numpy()
    return array
