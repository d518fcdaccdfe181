"""What is timed on a GPU, held against the float64 oracle first: the first layers, the whole vocabulary and context."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from capacity.measure import oracle
from capacity.measure.harness import CHECKED_LAYERS, NO_NUMBER, TIE_SHARE, TOLERANCE, quality_of
from capacity.measure.shape import DecoderShape
from capacity.measure.step import ReferenceDecoder
from capacity.measure.weights import DecoderWeights, LayerWeights, StoredMatrix
from capacity.specs.measured_run import Quality

if TYPE_CHECKING:
    from torch import Tensor

    from capacity.measure.prefill import Prefill

# Where activations are in 16 bits they round once a kernel or operator (docs/kernel.md); else they are fp32.
NARROW_TOLERANCES = {"bf16": 2e-2, "int8": 2e-2, "fp16": 3e-3}
PREFILL_TOLERANCES = {"fp32": 1e-5, "bf16": 5e-2, "fp16": 6e-3}  # of probabilities, as in harness.py
CHECKED_PROMPT = 256


def first_tokens(shape: DecoderShape, batch: int) -> list[int]:
    """The token that each sequence of a measured step begins with: a different one for each."""
    return [number % shape.vocabulary for number in range(batch)]


def check_decode(one: DecoderShape, batch: int, context: int, backend: Any, weights: DecoderWeights) -> Quality:
    """A step of the first layers, with the table, head, context and cut of the whole decoder."""
    import torch

    first = replace(one, layers=min(one.layers, CHECKED_LAYERS))
    part = replace(weights, layers=weights.layers[: first.layers])
    decoder = ReferenceDecoder(first, batch, context, backend, weights=part, advance=False)
    decoder.set_state(first_tokens(first, batch), [context - 1] * batch)
    token = decoder.token.clone()  # the step replaces its own
    decoder.step()
    if backend.device == "cuda":
        torch.cuda.synchronize()
    table = decoder.workspace["block_table"]
    expected = oracle.step(first, part, token, decoder.position, decoder.keys, decoder.values, table).logits
    narrow = decoder.gemm_backend != "simt"
    tolerance = NARROW_TOLERANCES[one.weight_format] if narrow else TOLERANCE
    tie_share = 2 * tolerance if narrow else TIE_SHARE  # either of two logits may be off by that much
    return quality_of(as_array(decoder.logits), as_array(expected), tolerance=tolerance, tie_share=tie_share)


def check_prefill(model: Prefill, prompts: Tensor) -> Quality:
    """The first layers on the beginning of the prompts [batch, tokens]."""
    import torch

    first, begun = model.first_layers(CHECKED_LAYERS), prompts[:, :CHECKED_PROMPT]
    weights = weights_of(first)
    logits = torch.cat([oracle.prompt(first.shape, weights, row) for row in begun])
    tolerance = PREFILL_TOLERANCES[first.shape.weight_format]
    expected = as_array(logits.softmax(-1))
    return quality_of(as_array(first(begun)), expected, tolerance=tolerance, tie_share=2 * tolerance)


def weights_of(model: Prefill) -> DecoderWeights:
    """The weights of a prefill as the oracle reads them."""
    import torch

    def matrix(layer: dict[str, Tensor], *names: str) -> StoredMatrix:
        return StoredMatrix(torch.cat([layer[name] for name in names]))

    layers = tuple(
        LayerWeights(
            attention_norm=layer["gain_1"],
            qkv=matrix(layer, "query", "key", "value"),
            output=matrix(layer, "output"),
            mlp_norm=layer["gain_2"],
            gate_up=matrix(layer, "gate", "up"),
            down=matrix(layer, "down"),
        )
        for layer in model.layers
    )
    return DecoderWeights(StoredMatrix(model.embedding), layers, model.gain, StoredMatrix(model.head))


def with_result(quality: Quality, result: Tensor) -> Quality:
    """The quality with what the timed program itself left behind: a value that is no number spoils it."""
    count = int((~result.isfinite()).sum())
    if not count:
        return quality
    return quality.replace(relative_error=NO_NUMBER, nan_count=quality.nan_count + count)


def as_array(tensor: Tensor) -> np.ndarray:
    """The values in float64 on the host."""
    found: np.ndarray = tensor.double().cpu().numpy()
    return found
