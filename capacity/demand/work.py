"""FLOP and bytes of one pass, in blocks of operators that broadcast together."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from capacity.arrays import ArrayLike, FloatArray
from capacity.demand.costs import OperatorCost
from capacity.formulas.experts import distinct_experts, fewest_experts
from capacity.units import Arithmetic


@dataclass(frozen=True, eq=False)
class WorkBlock:
    """Rows of operators that vary with the same numbers: arrays of shape (rows, *shape of those numbers). [B], [FLOP]

    ``operators`` and ``arithmetic`` are of each row.
    """

    operators: tuple[str, ...]
    arithmetic: tuple[Arithmetic, ...]
    moved_bytes: FloatArray
    flop: FloatArray
    routed: tuple[RoutedRow, ...] = ()

    def bytes_at(self, routing_exponent: float) -> FloatArray:
        """Bytes moved where tokens spread over the experts with an exponent other than 1. [B]

        Parameters
        ----------
        routing_exponent : float
            Power of the tokens that count as independent; see `capacity.formulas.experts`. [1]
        """
        if not self.routed or routing_exponent == 1.0:
            return self.moved_bytes
        moved = self.moved_bytes.copy()
        for item in self.routed:
            moved[item.row] = item.distinct_bytes(routing_exponent)
        return moved

    @property
    def fewest_bytes(self) -> FloatArray:
        """Bytes moved where all tokens visit the fewest experts that any routing does. [B]"""
        if not self.routed:
            return self.moved_bytes
        moved = self.moved_bytes.copy()
        for item in self.routed:
            moved[item.row] = np.minimum(moved[item.row], item.fewest_bytes)
        return moved


@dataclass(frozen=True, eq=False)
class RoutedRow:
    """A row of routed experts, and the tokens of all ranks that share them. [token]"""

    row: int
    cost: OperatorCost
    tokens: ArrayLike

    def distinct_bytes(self, routing_exponent: float) -> FloatArray:
        """Bytes of the expected distinct experts that the tokens visit on one device. [B]

        Parameters
        ----------
        routing_exponent : float
            Power of the tokens that count as independent. [1]
        """
        cost, tokens = self.cost, np.power(np.asarray(self.tokens, dtype=np.float64), routing_exponent)
        return cost.expert_bytes * distinct_experts(cost.experts, cost.experts_used, tokens) / cost.experts

    @property
    def fewest_bytes(self) -> float:
        """Bytes of the fewest experts that any routing visits on the heaviest device. [B]"""
        cost = self.cost
        fewest = fewest_experts(cost.experts_used, cost.experts // cost.experts_held)
        return cost.expert_bytes * fewest / cost.experts_held


@dataclass(frozen=True, eq=False)
class Work:
    """Bytes and FLOP of a pass, in blocks that broadcast together, and its kernel launches.

    ``idle`` is the part of it that the answer does not depend on, by operator and arithmetic: the last layers, on
    all tokens whose output no one reads. An ordinary engine does it; a bound leaves it out. [FLOP]
    """

    blocks: tuple[WorkBlock, ...]
    launches: int
    idle: tuple[tuple[str, Arithmetic, FloatArray], ...] = ()

    @property
    def moved_bytes(self) -> FloatArray:
        """Of all operators, in the shape of the pass. [B]"""
        return np.asarray(sum([block.moved_bytes.sum(axis=0) for block in self.blocks]))

    @property
    def flop(self) -> FloatArray:
        """Of all operators, in the shape of the pass. [FLOP]"""
        return np.asarray(sum([block.flop.sum(axis=0) for block in self.blocks]))

    @cached_property
    def arithmetic(self) -> frozenset[Arithmetic]:
        """How operators of the pass are stored and computed."""
        items: set[Arithmetic] = set()
        for block in self.blocks:
            items.update(block.arithmetic)
        return frozenset(items)

    def of_operator(self, name: str) -> tuple[FloatArray, FloatArray]:
        """Bytes moved and FLOP of the rows called ``name``, in the shape of the pass. [B], [FLOP]"""
        rows = [(block, row) for block in self.blocks for row, own in enumerate(block.operators) if own == name]
        moved: list[FloatArray] = [block.moved_bytes[row] for block, row in rows]
        return np.asarray(sum(moved)), np.asarray(sum([block.flop[row] for block, row in rows]))


def joined(parts: list[Work]) -> Work:
    """Several works of one pass as one.

    Parameters
    ----------
    parts : list of Work
        Works of the same pass. [B], [FLOP]
    """
    blocks = [block for part in parts for block in part.blocks]
    idle = [item for part in parts for item in part.idle]
    return Work(tuple(blocks), sum([part.launches for part in parts]), tuple(idle))
