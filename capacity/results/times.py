"""Times: of one quantity over operators, and of one decision over its phases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from capacity.results.base import Result
from capacity.results.not_modelled import OUTSIDE_DECISION, OUTSIDE_TIME


@dataclass(frozen=True)
class OperatorRow:
    """One operator of a step on one device: what it moves and computes, its time on the datasheet, and which of the
    two takes longer. The rows sum to the roofline. [B], [FLOP], [s]"""

    operator: str
    moved_bytes: float
    flop: float
    roofline_s: float
    bound_by: str


@dataclass(frozen=True, repr=False, eq=False)
class Estimate(Result):
    """A time [s]: the bound that no engine beats, the roofline of an ordinary engine on the datasheet, the attainable
    time on measured ceilings, and a calibrated value with its band.

    ``value``, ``low`` and ``high`` are None until a calibration applies, in arrays NaN where it does not.
    ``bound_by`` is "memory" or "compute", in arrays 0 or 1; ``largest_operator`` is the operator that takes longest on
    that side, in arrays a code into ``operators``. ``rows`` sum to the roofline. ``fits`` is the verdict on memory at
    the same batch and context. Arrays have the broadcast shape of the inputs.
    """

    quantity: str
    bound: Any
    roofline: Any
    bound_by: Any
    largest_operator: Any
    operators: tuple[str, ...]
    fits: Any
    evidence: str
    attainable: Any = None
    value: Any = None
    low: Any = None
    high: Any = None
    rows: tuple[OperatorRow, ...] = ()
    notes: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    not_modelled: tuple[str, ...] = OUTSIDE_TIME


@dataclass(frozen=True)
class PhaseTime:
    """Time of all passes of one phase. ``value_s`` is None without a launch mode. [s], [FLOP], [B]

    ``memory_s`` and ``compute_s`` are how long the least work keeps each of the two busy.
    """

    name: str
    passes: int
    flop: float
    moved_bytes: float
    launches: int
    bound_s: float
    roofline_s: float
    bound_by: str
    memory_s: float
    compute_s: float
    launch_mode: str | None = None
    value_s: float | None = None
    attainable_s: float | None = None


@dataclass(frozen=True, repr=False, eq=False)
class Decision(Result):
    """Time that one decision keeps the device busy: the sum of its phases. [s]

    ``attainable_s`` is the time on measured ceilings, None where time on links is not modelled.
    """

    phases: tuple[PhaseTime, ...]
    bound_s: float
    roofline_s: float
    value_s: float | None
    low_s: float | None
    high_s: float | None
    evidence: str
    notes: tuple[str, ...] = ()
    attainable_s: float | None = None
    assumed: tuple[str, ...] = ()
    not_modelled: tuple[str, ...] = OUTSIDE_DECISION

    @property
    def best_s(self) -> float:
        """The estimate, or the bound where there is none. [s]"""
        return self.bound_s if self.value_s is None else self.value_s

    def phase(self, name: str) -> PhaseTime | None:
        """The phase called ``name``, or None."""
        return next((phase for phase in self.phases if phase.name == name), None)
