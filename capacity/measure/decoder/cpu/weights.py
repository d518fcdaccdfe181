"""Weights of the CPU decoder as numpy arrays, in the layout that its kernels read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from capacity.measure.shape import DecoderShape

if TYPE_CHECKING:
    from capacity.measure.decoder.weights import DecoderWeights, StoredMatrix

PANEL = 16  # rows of a matrix that are interleaved in memory, PANEL of cpu_ref.cpp


@dataclass(frozen=True)
class Matrix:
    """A matrix as stored, [rows / 16, columns, 16], with one fp32 scale per row for int8; or a gain, [columns]."""

    format: str
    values: np.ndarray
    scales: np.ndarray | None = None

    @property
    def nbytes(self) -> int:
        """Bytes held, scales included. [B]"""
        return self.values.nbytes + (self.scales.nbytes if self.scales is not None else 0)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        panels, columns, rows = self.values.shape
        return panels * rows, columns

    def exact(self) -> np.ndarray:
        """The stored numbers as float64, [rows, columns]; [columns] for a gain."""
        values = in_rows(self.values) if self.values.ndim == 3 else self.values
        exact = from_bf16(values) if self.format == "bf16" else values.astype(np.float64)
        return exact if self.scales is None else exact * self.scales[:, None]


def in_panels(values: np.ndarray) -> np.ndarray:
    """A matrix [rows, columns] in its memory layout, [rows / 16, columns, 16]."""
    rows, columns = values.shape
    return np.ascontiguousarray(values.reshape(rows // PANEL, PANEL, columns).transpose(0, 2, 1))


def in_rows(panels: np.ndarray) -> np.ndarray:
    """The inverse of ``in_panels``."""
    return panels.transpose(0, 2, 1).reshape(-1, panels.shape[1])


def random_matrix(rng: np.random.Generator, rows: int, columns: int, number_format: str) -> Matrix:
    """Random weights of variance 1 / columns in ``number_format``; not zeros, with which a step runs faster."""
    values = rng.standard_normal((rows, columns), dtype=np.float32)
    values *= np.float32(columns**-0.5)
    if number_format == "bf16":
        return Matrix("bf16", in_panels(to_bf16(values)))
    if number_format == "int8":
        scales = np.abs(values).max(axis=1) / np.float32(127)
        return Matrix("int8", in_panels(np.rint(values / scales[:, None]).astype(np.int8)), scales)
    return Matrix("fp32", in_panels(values))


def to_bf16(values: np.ndarray) -> np.ndarray:
    """Upper halves of fp32 values, rounded to nearest even, as uint16."""
    words = values.view(np.uint32)
    return ((words + 0x7FFF + ((words >> 16) & 1)) >> 16).astype(np.uint16)


def from_bf16(values: np.ndarray) -> np.ndarray:
    """float64 values of bf16 held as uint16."""
    return (values.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


@dataclass
class Weights:
    """All weights of a decoder; ``layers`` holds the matrices and gains of each layer by name."""

    embedding: Matrix
    head: Matrix
    gain: Matrix
    layers: list[dict[str, Matrix]] = field(default_factory=list)

    @property
    def nbytes(self) -> int:
        """Bytes held; a tied head counts once. [B]"""
        tables = [self.embedding] if self.head is self.embedding else [self.embedding, self.head]
        inside = [matrix for layer in self.layers for matrix in layer.values()]
        return sum(matrix.nbytes for matrix in [*tables, self.gain, *inside])

    def stored_weights(self) -> DecoderWeights:
        """The same numbers in float64 as the oracle reads them."""
        import torch

        from capacity.measure.decoder.weights import DecoderWeights, LayerWeights, StoredMatrix

        def matrix(stored: Matrix) -> StoredMatrix:
            return StoredMatrix(torch.from_numpy(stored.exact()))

        layers = tuple(
            LayerWeights(
                attention_norm=matrix(layer["gain_1"]).data,
                mlp_norm=matrix(layer["gain_2"]).data,
                **{name: matrix(layer[name]) for name in ("qkv", "output", "gate_up", "down")},
            )
            for layer in self.layers
        )
        embedding = matrix(self.embedding)
        head = embedding if self.head is self.embedding else matrix(self.head)
        return DecoderWeights(embedding, layers, matrix(self.gain).data, head)


def random_weights(shape: DecoderShape, seed: int) -> Weights:
    """Random weights of ``shape``, the same for the same seed."""
    rng = np.random.default_rng(seed)
    embedding = random_matrix(rng, shape.vocabulary, shape.hidden_size, shape.wide_format)
    head = embedding if shape.tied else random_matrix(rng, shape.vocabulary, shape.hidden_size, shape.wide_format)
    weights = Weights(embedding, head, _gain(rng, shape))
    for _ in range(shape.layers):
        layer = {
            operator: random_matrix(rng, rows, columns, shape.weight_format)
            for operator, (rows, columns) in shape.layer_matrices().items()
        }
        weights.layers.append(layer | {"gain_1": _gain(rng, shape), "gain_2": _gain(rng, shape)})
    return weights


def _gain(rng: np.random.Generator, shape: DecoderShape) -> Matrix:
    values = 1 + np.float32(0.1) * rng.standard_normal(shape.hidden_size, dtype=np.float32)
    return Matrix("bf16", to_bf16(values)) if shape.wide_format == "bf16" else Matrix("fp32", values)
