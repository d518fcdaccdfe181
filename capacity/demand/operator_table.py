"""Operators of one pass as a table: the columns of their coefficients, and the rows of each kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from capacity.arrays import BoolArray, FloatArray
from capacity.demand.costs import OperatorCost
from capacity.units import Arithmetic

NO_WINDOW = 2.0**62  # tokens; above every context, and finite, so that no product with 0 is undefined


@dataclass(frozen=True, eq=False)
class OperatorTable:
    """Operators of one pass, and the columns of their coefficients: one row per operator and arithmetic."""

    costs: tuple[OperatorCost, ...]

    def column(self, name: str) -> FloatArray:
        """One coefficient of every operator."""
        return np.array([getattr(cost, name) for cost in self.costs], dtype=np.float64)

    @cached_property
    def operators(self) -> tuple[str, ...]:
        """Names, one per row; several rows may share one."""
        return tuple(cost.operator for cost in self.costs)

    @cached_property
    def arithmetic(self) -> tuple[Arithmetic, ...]:
        """How each row is stored and computed."""
        return tuple(cost.arithmetic for cost in self.costs)

    @cached_property
    def launches(self) -> int:
        """Kernel launches of one pass."""
        return sum(cost.launches for cost in self.costs)

    @cached_property
    def weight_bytes(self) -> FloatArray:
        """Column of the bytes of weights read once per pass. [B]"""
        return self.column("weight_bytes")

    @cached_property
    def token_flop(self) -> FloatArray:
        """Column of the FLOP per token. [FLOP]"""
        return self.column("token_flop")

    @cached_property
    def sequence_bytes(self) -> FloatArray:
        """Column of the state of one sequence, read and written. [B]"""
        return self.column("sequence_bytes")

    @cached_property
    def heads(self) -> BoolArray:
        """Which rows are applied to the last token of a prompt only."""
        return np.array([cost.last_token_only for cost in self.costs], dtype=bool)

    @cached_property
    def routed(self) -> tuple[int, ...]:
        """Rows of routed experts."""
        return tuple(row for row, cost in enumerate(self.costs) if cost.experts)

    @cached_property
    def attention(self) -> OperatorTable:
        """The rows that read keys."""
        return self._where(lambda cost: bool(cost.key_flop or cost.key_bytes))

    @cached_property
    def matrices(self) -> OperatorTable:
        """The rows that read no keys: matrices, experts and states."""
        return self._where(lambda cost: not (cost.key_flop or cost.key_bytes))

    @cached_property
    def projecting(self) -> tuple[int, ...]:
        """Rows that project a cross-attention source."""
        return tuple(row for row, cost in enumerate(self.costs) if cost.source_tokens and cost.weight_bytes)

    @cached_property
    def without_sources(self) -> OperatorTable:
        """The rows that every pass runs: without the projections of a cross-attention source."""
        return self._where(lambda cost: not (cost.source_tokens and cost.weight_bytes))

    @cached_property
    def sources(self) -> OperatorTable:
        """The projections of a cross-attention source alone, which run once per source."""
        return self._where(lambda cost: bool(cost.source_tokens and cost.weight_bytes))

    def _where(self, predicate: Callable[[OperatorCost], bool]) -> OperatorTable:
        selection = tuple(cost for cost in self.costs if predicate(cost))
        return self if len(selection) == len(self.costs) else OperatorTable(selection)
