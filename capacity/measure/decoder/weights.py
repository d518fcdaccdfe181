"""Weights of a decoder as torch tensors in their stored format, and the same numbers in float64 for the oracle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from capacity.measure.shape import DecoderShape

if TYPE_CHECKING:
    from torch import Generator, Tensor, dtype


@dataclass(frozen=True)
class StoredMatrix:
    """A matrix as stored; int8 has ``scales``, one fp32 per row."""

    data: Tensor
    scales: Tensor | None = None

    @property
    def nbytes(self) -> int:
        """Bytes held. [B]"""
        return self.data.nbytes + (self.scales.nbytes if self.scales is not None else 0)

    def exact(self) -> Tensor:
        """The stored numbers in float64."""
        wide = self.data.double()
        return wide if self.scales is None else wide * self.scales.double()[:, None]


@dataclass(frozen=True)
class LayerWeights:
    """One layer."""

    attention_norm: Tensor
    qkv: StoredMatrix
    output: StoredMatrix
    mlp_norm: Tensor
    gate_up: StoredMatrix
    down: StoredMatrix


@dataclass(frozen=True)
class DecoderWeights:
    """All weights; a tied head is the embedding's own tensor."""

    embedding: StoredMatrix
    layers: tuple[LayerWeights, ...]
    final_norm: Tensor
    head: StoredMatrix

    def tensors(self) -> dict[str, Tensor]:
        """Every tensor held, by name; a shared one once."""
        by_name = {"embedding": self.embedding.data, "final_norm": self.final_norm}
        if self.head is not self.embedding:
            by_name["head"] = self.head.data
        for number, layer in enumerate(self.layers):
            for name in ("attention_norm", "mlp_norm"):
                by_name[f"layers.{number}.{name}"] = getattr(layer, name)
            for name in ("qkv", "output", "gate_up", "down"):
                stored = getattr(layer, name)
                by_name[f"layers.{number}.{name}"] = stored.data
                if stored.scales is not None:
                    by_name[f"layers.{number}.{name}.scales"] = stored.scales
        return by_name

    def nbytes(self) -> int:
        """Bytes of every tensor held. [B]"""
        return sum(tensor.nbytes for tensor in self.tensors().values())


def random_weights(shape: DecoderShape, device: str = "cpu", seed: int = 0) -> DecoderWeights:
    """Normal weights that keep activations near one, drawn on the device; not zeros, with which a step runs faster."""
    import torch

    source = torch.Generator(device).manual_seed(seed)
    sizes = shape.layer_matrices()

    def layer() -> LayerWeights:
        drawn = {name: stored_matrix(_normal(*size, source), shape.weight_format) for name, size in sizes.items()}
        return LayerWeights(attention_norm=_gain(shape, source), mlp_norm=_gain(shape, source), **drawn)

    table = (shape.vocabulary, shape.hidden_size)
    embedding = stored_matrix(_normal(*table, source), shape.wide_format)
    return DecoderWeights(
        embedding=embedding,
        layers=tuple(layer() for _ in range(shape.layers)),
        final_norm=_gain(shape, source),
        head=embedding if shape.tied else stored_matrix(_normal(*table, source), shape.wide_format),
    )


def stored_matrix(matrix: Tensor, weight_format: str) -> StoredMatrix:
    """Round a matrix to its stored format; int8 is symmetric and scales the largest magnitude of a row to 127."""
    import torch

    if weight_format != "int8":
        return StoredMatrix(matrix.to(torch_dtype(weight_format)))
    scales = matrix.abs().amax(1).clamp_min(1e-30) / 127
    return StoredMatrix((matrix / scales[:, None]).round().clamp(-127, 127).to(torch.int8), scales)


def torch_dtype(number_format: str) -> dtype:
    """The dtype of torch for a number format of the reference decoder."""
    import torch

    return {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16, "int8": torch.int8}[number_format]


def _normal(rows: int, columns: int, source: Generator) -> Tensor:
    import torch

    return torch.randn(rows, columns, generator=source, device=source.device) / columns**0.5


def _gain(shape: DecoderShape, source: Generator) -> Tensor:
    import torch

    noise = torch.randn(shape.hidden_size, generator=source, device=source.device)
    return (1 + 0.1 * noise).to(torch_dtype(shape.wide_format))
