"""The buffers of the CUDA decoder, of fixed size: paged cache, block table, and the workspace between kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from capacity.measure.decoder.cuda.plan import MAX_ARGMAX_SLICES
from capacity.measure.decoder.oracle import rotary_angles
from capacity.measure.decoder.weights import DecoderWeights, torch_dtype
from capacity.measure.operators import CUDA_CORE_BATCH
from capacity.measure.shape import DecoderShape

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class DeviceMemory:
    """All that a step reads and writes: weights, keys and values of each layer, every other buffer by name."""

    weights: DecoderWeights
    keys: list[Tensor]
    values: list[Tensor]
    workspace: dict[str, Tensor]


def paged_cache(
    shape: DecoderShape, batch: int, max_context: int, device: str, seed: int
) -> tuple[list[Tensor], list[Tensor]]:
    """Keys and values of every layer, [blocks, kv_heads, block_tokens, head_size], of normal random numbers."""
    import torch

    source = torch.Generator(device).manual_seed(seed + 1)
    blocks = batch * shape.context_blocks(max_context)
    size = (blocks, shape.kv_heads, shape.block_tokens, shape.head_size)

    def layer() -> Tensor:
        return torch.empty(size, dtype=torch_dtype(shape.kv_format), device=device).normal_(generator=source)

    return [layer() for _ in range(shape.layers)], [layer() for _ in range(shape.layers)]


def workspace(
    shape: DecoderShape, batch: int, max_context: int, splits: int, device: str, seed: int
) -> dict[str, Tensor]:
    """Every other buffer by name. Results start as NaN, so that a value that is never written shows."""
    import torch

    def zeros(elements: int) -> Tensor:
        return torch.zeros(elements, dtype=torch.int32, device=device)

    buffers = {
        "block_table": block_table(shape, batch, max_context, device, seed),
        "rotary": rotary_table(shape, max_context, device),
        "token": zeros(batch),
        "position": zeros(batch),
        "attention_arrivals": zeros(batch * shape.query_heads),
        "argmax_arrivals": zeros(batch),
    }
    for name, (elements, number_format) in result_sizes(shape, batch, splits).items():
        dtype = torch_dtype(number_format)
        buffers[name] = torch.full((batch, elements), float("nan"), dtype=dtype, device=device)
    if batch > CUDA_CORE_BATCH and shape.weight_format == "int8":
        largest = max(rows * columns for rows, columns in shape.layer_matrices().values())
        buffers["expanded"] = torch.empty(largest, dtype=torch_dtype(shape.wide_format), device=device)
    return buffers


def block_table(shape: DecoderShape, batch: int, max_context: int, device: str, seed: int) -> Tensor:
    """Blocks of each sequence in shuffled order, as after some time of serving."""
    import torch

    source = torch.Generator(device).manual_seed(seed + 2)
    order = torch.randperm(batch * shape.context_blocks(max_context), generator=source, device=device)
    return order.to(torch.int32).view(batch, -1).contiguous()


def rotary_table(shape: DecoderShape, max_context: int, device: str) -> Tensor:
    """Cosine and sine [position][pair] in fp32, from angles in float64: no slow sine inside a kernel."""
    import torch

    angles = rotary_angles(shape, torch.arange(max_context, device=device))
    return torch.stack([angles.cos(), angles.sin()], -1).float().contiguous()


def result_sizes(shape: DecoderShape, batch: int, splits: int) -> dict[str, tuple[int, str]]:
    """Elements per sequence and format of the buffers between kernels."""
    fused = batch <= CUDA_CORE_BATCH
    narrow = "fp32" if fused else shape.wide_format
    sizes = {
        "x": (shape.hidden_size, "fp32"),
        "q": (shape.query_size, "fp32"),
        "attended": (shape.query_size, narrow),
        "h": (shape.intermediate_size, narrow),
        "logits": (shape.vocabulary, narrow),
        "best_value": (MAX_ARGMAX_SLICES, "fp32"),
        "best_index": (MAX_ARGMAX_SLICES, "fp32"),
    }
    if splits > 1:
        sizes["partial"] = (shape.query_size * splits, "fp32")
        sizes["peaks"] = (shape.query_heads * splits * 2, "fp32")
    if not fused:
        sizes["normed"] = (shape.hidden_size, narrow)
        sizes["qkv_rows"] = (shape.qkv_rows, narrow)
        sizes["gate_up_rows"] = (2 * shape.intermediate_size, narrow)
        sizes["delta"] = (shape.hidden_size, narrow)
    return sizes
