"""Operators of some phases: as rows of a table, and the one that takes longest of a bound."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from capacity.arrays import FloatArray, IntArray
from capacity.estimate.law import BlockSides
from capacity.estimate.time import PhaseFigures
from capacity.results import OperatorRow

SIDES = ("memory", "compute")


def bound_side(figures: Sequence[PhaseFigures]) -> IntArray:
    """Which side takes most of a bound: 0 where phases bound by memory do, 1 for compute. Shape: of the bound. [1]

    Parameters
    ----------
    figures : sequence of PhaseFigures
        The phases of a request or decision.

    Returns
    -------
    ndarray
        In the shape of the bound. [1]
    """
    lead: FloatArray = np.asarray(0.0)
    for item in figures:
        lead = lead + np.where(item.compute_s > item.memory_s, item.bound_s, -item.bound_s)
    return np.asarray(lead > 0, dtype=np.int64)


def largest_operator(figures: Sequence[PhaseFigures], side: IntArray) -> tuple[tuple[str, ...], IntArray]:
    """Names of the operators of all phases, and the index of the one that takes longest on a side. [1]

    Parameters
    ----------
    figures : sequence of PhaseFigures
        The phases of a request or decision.
    side : ndarray
        0 for memory, 1 for compute. [1]

    Returns
    -------
    tuple
        Names, and the index in the shape of ``side``, [1], of the largest.
    """
    sums: dict[str, Any] = {}
    for item in figures:
        lead = f"{item.phase.name} " if len(figures) > 1 else ""
        for least, weight in zip(item.least, item.bound_weights, strict=True):
            often = item.phase.passes * weight
            for rows in least.rows:
                for name, own_s in zip(rows.block.operators, _on_side(rows, side), strict=True):
                    sums[lead + name] = sums.get(lead + name, 0.0) + often * own_s
            for name, idle_s in least.idle:
                sums[lead + name] = sums[lead + name] - np.where(side, often * idle_s, 0.0)
    return tuple(sums), _largest(list(sums.values())) if side.ndim else np.asarray(np.argmax(list(sums.values())))


def _on_side(rows: BlockSides, side: IntArray) -> Iterable[FloatArray]:
    """Time of each row on the side that takes most of a bound; one row after another, since arrays may be large. [s]"""
    if side.ndim == 0:
        return rows.block.flop / rows.flop_per_s if side else rows.moved_bytes / rows.bytes_per_s
    columns = zip(rows.moved_bytes, rows.block.flop, rows.flop_per_s, strict=True)
    return (np.where(side, flop / peak, moved / rows.bytes_per_s) for moved, flop, peak in columns)


def _largest(values: Sequence[FloatArray]) -> IntArray:
    """The first index of the largest of some arrays, of which no copy is made. Shape: broadcast. [1]"""
    best, code = np.asarray(-1.0), np.asarray(0)
    for index, own in enumerate(values):
        code, best = np.where(own > best, index, code), np.maximum(best, own)
    return code


def operator_rows(figures: Sequence[PhaseFigures]) -> list[OperatorRow]:
    """Operators of scalar figures, which sum to the roofline: bytes, FLOP, time, and which of the two takes longer.

    Parameters
    ----------
    figures : sequence of PhaseFigures
        The phases of a request or decision.
    """
    sums: dict[str, list[float]] = {}
    for item in figures:
        lead = f"{item.phase.name} " if len(figures) > 1 else ""
        for times, weight in zip(item.operators, item.roofline_weights, strict=True):
            often = float(item.phase.passes * weight)
            for rows, rows_s in zip(times.rows, times.rows_s, strict=True):
                sides = (rows.moved_bytes / rows.bytes_per_s, rows.block.flop / rows.flop_per_s)
                columns = (rows.block.moved_bytes, rows.block.flop, rows_s, *sides)
                _add_rows(sums, lead, rows.block.operators, columns, often)
    table = []
    for name, (moved, flop, whole_s, memory_s, compute_s) in sums.items():
        table.append(OperatorRow(name, moved, flop, whole_s, SIDES[int(compute_s > memory_s)]))
    return table


def _add_rows(
    sums: dict[str, list[float]], lead: str, names: Sequence[str], columns: Sequence[FloatArray], often: float
) -> None:
    """Columns of scalar rows, added to those of their names."""
    for name, values in zip(names, np.array(columns).T.tolist(), strict=True):
        totals = sums.setdefault(lead + name, [0.0] * len(values))
        for place, value in enumerate(values):
            totals[place] += often * value
