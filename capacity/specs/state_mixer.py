"""Mixers of constant memory: their matrices, and what they keep of a sequence."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import model_validator

from capacity.specs.base import Count, CountOrZero, Spec
from capacity.specs.ranges import Flop


class Matrix(Spec):
    """A named weight of a state mixer: ``rows`` outputs from ``columns`` inputs; how tensor parallelism shards it."""

    name: str
    rows: Count
    columns: Count
    shard: Literal["rows", "columns", "whole"] = "rows"


class StateTensor(Spec):
    """What a state mixer keeps for one sequence, whatever its length; of a convolution the ``columns`` of its kernel.
    [element], [token]
    """

    name: str
    elements: Count
    kind: Literal["conv", "recurrent"]
    columns: Count = 1

    def kept_elements(self, spared_columns: int) -> int:
        """Elements that an engine keeps which spares some columns of a convolution; one column stays."""
        if self.kind != "conv":
            return self.elements
        return self.elements // self.columns * max(1, self.columns - spared_columns)

    @model_validator(mode="after")
    def columns_divide_the_elements(self) -> Self:
        if self.elements % self.columns:
            raise ValueError(f"{self.columns} columns do not divide {self.elements} elements")
        return self


class StateMixer(Spec):
    """A mixer with constant memory: state space, delta rule, gated recurrence, short convolution.

    ``heads`` is what tensor parallelism divides. ``vector_parameters`` are small tensors that stay 16 bit.
    ``update_flop`` is the arithmetic per token on the state itself, without the matrices.
    """

    kind: Literal["state"] = "state"
    name: str
    heads: Count = 1
    matrices: tuple[Matrix, ...]
    vector_parameters: CountOrZero = 0
    state: tuple[StateTensor, ...] = ()
    update_flop: Flop = 0.0
