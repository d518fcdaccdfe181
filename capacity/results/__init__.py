"""What the package answers: frozen values with units in their names, which print and become plain dictionaries."""

from capacity.results.base import Result
from capacity.results.memory import (
    ActivationMoments,
    CachePool,
    Ledger,
    LedgerLine,
    MemoryVerdict,
    MomentRow,
    SharedMemory,
)
from capacity.results.not_modelled import OUTSIDE_DECISION, OUTSIDE_MEMORY, OUTSIDE_TIME
from capacity.results.sizing import Binding, Enough, Objective, RelaxedLimit, Sizing
from capacity.results.times import Decision, Estimate, OperatorRow, PhaseTime

__all__ = [
    "OUTSIDE_DECISION",
    "OUTSIDE_MEMORY",
    "OUTSIDE_TIME",
    "ActivationMoments",
    "Binding",
    "CachePool",
    "Decision",
    "Enough",
    "Estimate",
    "Ledger",
    "LedgerLine",
    "MemoryVerdict",
    "MomentRow",
    "Objective",
    "OperatorRow",
    "PhaseTime",
    "RelaxedLimit",
    "Result",
    "SharedMemory",
    "Sizing",
]
