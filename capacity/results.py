"""What the package answers: frozen results that print, show in a notebook and become plain dictionaries."""

from __future__ import annotations

import html
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, ClassVar

import numpy as np

from capacity.units import format_bytes, format_seconds


class Result:
    """Printing shared by the results; a subclass says its rows of label and text.

    A dataclass inside a result that names properties in ``DERIVED`` has them in its dictionary too.
    """

    def table(self) -> list[tuple[str, str]]:
        """Rows of label and text, most important first."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain Python values, arrays as lists; units are in the names."""
        return _plain(self)

    def __str__(self) -> str:
        rows = self.table()
        width = max((len(label) for label, _ in rows), default=0)
        return "\n".join(f"{label:<{width}}  {text}" for label, text in rows)

    def _repr_html_(self) -> str:
        cells = "".join(
            f"<tr><th style='text-align:left'>{html.escape(label)}</th>"
            f"<td style='text-align:left'>{html.escape(text)}</td></tr>"
            for label, text in self.table()
        )
        return f"<table>{cells}</table>"


@dataclass(frozen=True)
class OperatorRow:
    """One operator of a step on one device: what it moves and computes, its least time, and which of the two binds."""

    operator: str
    moved_bytes: float
    flop: float
    bound_s: float
    bound_by: str


@dataclass(frozen=True, repr=False)
class Estimate(Result):
    """A time [s]: bound on datasheet ceilings, attainable on measured ones, and a calibrated value with its band.

    ``value``, ``low`` and ``high`` are None until a calibration applies, in arrays NaN where it does not.
    ``bound_by`` names the operator and the resource that take most of the bound; for arrays it is a code into
    ``operators``. ``fits`` is the verdict on memory at the same batch and context. Arrays have the broadcast shape
    of the inputs.
    """

    quantity: str
    bound: Any
    bound_by: Any
    operators: tuple[str, ...]
    fits: Any
    evidence: str
    attainable: Any = None
    value: Any = None
    low: Any = None
    high: Any = None
    rows: tuple[OperatorRow, ...] = ()
    notes: tuple[str, ...] = ()

    def table(self) -> list[tuple[str, str]]:
        rows = [(f"{self.quantity} bound", f"{_times(self.bound)}  (computed{self._binding()})")]
        if self.attainable is not None:
            rows.append((f"{self.quantity} attainable", f"{_times(self.attainable)}  (measured ceilings)"))
        if self.value is not None:
            band = f"{_times(self.value)}, band {_times(np.stack([self.low, self.high]))}"
            rows.append((f"{self.quantity} estimate", f"{band}  ({self.evidence})"))
        missing = np.sum(np.logical_not(self.fits))
        if missing:
            where = f" at {missing} of {np.size(self.fits)} points" if np.ndim(self.fits) else ""
            rows.append(("verdict", f"does not fit in memory{where}: such a time cannot be reached"))
        return rows + [("note", note) for note in self.notes]

    def _binding(self) -> str:
        return "" if np.ndim(self.bound) else f"; bound by {self.bound_by}"


def _times(seconds: Any) -> str:
    """One time, or the range of an array of them; points without one are left out."""
    if np.ndim(seconds) == 0:
        return format_seconds(float(seconds))
    return f"{format_seconds(float(np.nanmin(seconds)))} to {format_seconds(float(np.nanmax(seconds)))}"


@dataclass(frozen=True)
class LedgerLine:
    """One use of a device's memory. [B]"""

    name: str
    held_bytes: int
    evidence: str


@dataclass(frozen=True, repr=False)
class Ledger(Result):
    """The memory of one device of pipeline ``rank``; ``devices`` of the replica are alike. [B]"""

    DERIVED: ClassVar = ("margin_bytes",)

    rank: int
    devices: int
    lines: tuple[LedgerLine, ...]
    total_bytes: int
    usable_bytes: int
    capacity_bytes: int

    @property
    def margin_bytes(self) -> int:
        """What is left of the usable memory; negative when it does not fit. [B]"""
        return self.usable_bytes - self.total_bytes

    def line(self, name: str) -> int:
        """Bytes of the lines called ``name``. [B]"""
        return sum(line.held_bytes for line in self.lines if line.name == name)

    def table(self) -> list[tuple[str, str]]:
        rows = [(line.name, f"{format_bytes(line.held_bytes)}  ({line.evidence})") for line in self.lines]
        rows.append(("total", format_bytes(self.total_bytes)))
        rows.append(("usable", f"{format_bytes(self.usable_bytes)} of {format_bytes(self.capacity_bytes)}"))
        rows.append(("margin", format_bytes(self.margin_bytes)))
        return rows


@dataclass(frozen=True)
class PhaseTime:
    """Time of all passes of one phase. ``value_s`` is None without a launch mode. [s], [FLOP], [B]

    ``memory_s`` and ``compute_s`` are how long the bound keeps each of the two busy.
    """

    name: str
    passes: int
    flop: float
    moved_bytes: float
    launches: int
    bound_s: float
    bound_by: str
    memory_s: float
    compute_s: float
    launch_mode: str | None = None
    value_s: float | None = None


@dataclass(frozen=True, repr=False)
class Decision(Result):
    """Time that one decision keeps the device busy: the sum of its phases. [s]"""

    phases: tuple[PhaseTime, ...]
    bound_s: float
    value_s: float | None
    low_s: float | None
    high_s: float | None
    evidence: str
    notes: tuple[str, ...] = ()

    @property
    def best_s(self) -> float:
        """The estimate, or the bound where there is none. [s]"""
        return self.bound_s if self.value_s is None else self.value_s

    def phase(self, name: str) -> PhaseTime | None:
        """The phase called ``name``, or None."""
        return next((phase for phase in self.phases if phase.name == name), None)

    def table(self) -> list[tuple[str, str]]:
        rows = [(phase.name, _phase_text(phase)) for phase in self.phases]
        rows.append(("decision bound", f"{format_seconds(self.bound_s)}  (computed)"))
        if self.value_s is not None and self.low_s is not None and self.high_s is not None:
            band = f"{format_seconds(self.low_s)} to {format_seconds(self.high_s)}"
            rows.append(("decision estimate", f"{format_seconds(self.value_s)}, {band}  ({self.evidence})"))
        return rows + [("note", note) for note in self.notes]


def _phase_text(phase: PhaseTime) -> str:
    text = f"{phase.passes} x, bound {format_seconds(phase.bound_s)} ({phase.bound_by})"
    return text if phase.value_s is None else f"{text}, estimate {format_seconds(phase.value_s)}"


@dataclass(frozen=True)
class Objective:
    """An objective of the workload, the bound beside it, and whether it is out of reach even at the bound. [s]"""

    name: str
    limit_s: float
    bound_s: float
    missed: bool


@dataclass(frozen=True, repr=False)
class Sizing(Result):
    """One replica of a model on a part under a workload: does it fit, what limits it, and how fast it can be.

    Memory is judged at ``memory_tokens``, TPOT at ``tpot_context_tokens``, TTFT for one prompt at batch 1.
    ``evidence`` says for each figure what kind of knowledge it is; ``not_modelled`` lists what is left out.
    """

    model: str
    part: str
    deployment: dict[str, Any]
    workload: dict[str, Any]
    assumed: tuple[str, ...]
    devices: int
    batch: int
    memory_tokens: int
    tpot_context_tokens: int
    prompt_tokens: int
    fits: bool
    verdict: str
    binding: str
    margin_bytes: int
    ledger: tuple[Ledger, ...]
    max_batch: int
    max_context_tokens: int
    max_context_bound_by: str
    ridge_flop_per_byte: float
    intensity_flop_per_byte: float
    tpot: Estimate
    ttft: Estimate
    request_bound_s: float
    tokens_per_s_bound: float
    parameters: int
    active_parameters: int
    objectives: tuple[Objective, ...]
    evidence: dict[str, str]
    notes: tuple[str, ...]
    not_modelled: tuple[str, ...]

    @property
    def missed(self) -> bool:
        """Whether an objective is out of reach even at the bound."""
        return any(objective.missed for objective in self.objectives)

    def table(self) -> list[tuple[str, str]]:
        heaviest = min(self.ledger, key=lambda ledger: ledger.margin_bytes)
        rows = [
            ("model", f"{self.model}, {self.parameters:,} parameters"),
            ("part", f"{self.devices} x {self.part}"),
            ("verdict", self.verdict),
            ("binding", self.binding),
            *heaviest.table(),
            ("max batch", f"{self.max_batch:,} sequences of {self.memory_tokens:,} tokens"),
            (
                "max context",
                f"{self.max_context_tokens:,} tokens at batch {self.batch} (bounded by {self.max_context_bound_by})",
            ),
            *self.ttft.table(),
            *self.tpot.table(),
            ("request bound", format_seconds(self.request_bound_s)),
            ("throughput bound", f"{self.tokens_per_s_bound:,.0f} token/s a replica"),
            (
                "intensity",
                f"{self.intensity_flop_per_byte:,.1f} FLOP/B; ridge {self.ridge_flop_per_byte:,.0f} FLOP/B",
            ),
        ]
        return rows + [("note", note) for note in self.notes]


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in fields(value)] + list(getattr(value, "DERIVED", ()))
        return {name: _plain(getattr(value, name)) for name in names}
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, np.ndarray):
        return value.tolist()
    return value.item() if isinstance(value, np.generic) else value
