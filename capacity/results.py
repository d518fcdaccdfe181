"""What the package answers: frozen values with units in their names, which print and become plain dictionaries."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, ClassVar, Literal

import numpy as np

OUTSIDE_MEMORY = ("runtime context, libraries and allocator slack (memory outside memory_fraction is meant for them)",)
OUTSIDE_TIME = (
    "in a bound: links between devices and kernel launches (an attainable time counts both)",
    "scheduling and sampling time",
    "activation traffic and cache writes",
)
OUTSIDE_DECISION = (
    "in a bound: kernel launches, and links between devices (an attainable time counts both)",
    "sampling and detokenisation on the host",
    "warm-up: first calls compile, capture graphs and load weights",
)

Binding = Literal["weights", "memory", "max_sequences", "positions"]
MemoryVerdict = Literal["fits", "tight", "does not fit"]


class Result:
    """Printing and plain values shared by the results; their text and HTML are made by ``presentation``.

    A dataclass inside a result that names properties in ``DERIVED`` has them in its dictionary too.
    """

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain Python values, arrays as lists; units are in the names."""
        return _plain(self)

    def __eq__(self, other: object) -> bool:
        """Whether both say the same, arrays element by element."""
        return type(self) is type(other) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash((type(self), repr(self.to_dict())))

    def __str__(self) -> str:
        from capacity.presentation import terminal

        return terminal.text(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from capacity.presentation import notebook

        return notebook.html(self)


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
class MomentRow:
    """What is alive at one moment of a pass, by tensor; ``layer`` is None outside the layers. [B]"""

    DERIVED: ClassVar = ("held_bytes",)

    moment: str
    stage: str
    layer: int | None
    rank: int
    tensors: dict[str, int]

    @property
    def held_bytes(self) -> int:
        """Of all tensors. [B]"""
        return sum(self.tensors.values())


@dataclass(frozen=True, repr=False, eq=False)
class ActivationMoments(Result):
    """What is alive on one device at each moment of the widest pass, of ``tokens_in_flight`` tokens. [B], [token]"""

    DERIVED: ClassVar = ("peak_bytes",)

    model: str
    batch: int
    tokens: int
    tokens_in_flight: int
    rows: tuple[MomentRow, ...]
    assumed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    not_modelled: tuple[str, ...] = OUTSIDE_MEMORY

    @property
    def peak_bytes(self) -> int:
        """Of the moment at which most is alive. [B]"""
        return max([row.held_bytes for row in self.rows], default=0)


@dataclass(frozen=True)
class LedgerLine:
    """One use of a device's memory. [B]"""

    name: str
    held_bytes: int
    evidence: str


@dataclass(frozen=True, repr=False, eq=False)
class Ledger(Result):
    """The memory of one device of pipeline ``rank``; ``devices`` of the replica are equal. [B]

    ``outside_bytes`` is what the engine does not plan with; ``runtime_bytes`` what a process takes that no line holds.
    """

    DERIVED: ClassVar = ("margin_bytes", "left_bytes", "tight")

    rank: int
    devices: int
    lines: tuple[LedgerLine, ...]
    total_bytes: int
    usable_bytes: int
    capacity_bytes: int
    outside_bytes: int = 0
    runtime_bytes: int = 0
    assumed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    not_modelled: tuple[str, ...] = OUTSIDE_MEMORY

    @property
    def margin_bytes(self) -> int:
        """What is left of the usable memory; negative when it does not fit. [B]"""
        return self.usable_bytes - self.total_bytes

    @property
    def left_bytes(self) -> int:
        """What no line takes of the device, within the plan of the engine or outside it. [B]"""
        return self.margin_bytes + self.outside_bytes

    @property
    def tight(self) -> bool:
        """Whether all lines fit, and the rest is less than the runtime needs."""
        return self.margin_bytes >= 0 and self.left_bytes < self.runtime_bytes

    def line(self, name: str) -> int:
        """Bytes of the lines called ``name``. [B]"""
        return sum(line.held_bytes for line in self.lines if line.name == name)


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


@dataclass(frozen=True)
class Objective:
    """An objective, the bound it is compared with (None if unknown), and whether even that misses it. [s]"""

    DERIVED: ClassVar = ("state",)

    name: str
    limit_s: float
    bound_s: float | None
    missed: bool

    @property
    def state(self) -> Literal["missed", "not excluded"]:
        """The verdict as a code; a bound can exclude an objective but never prove that it is met."""
        return "missed" if self.missed else "not excluded"


@dataclass(frozen=True)
class SharedMemory:
    """Memory shared with the system: how much is set aside, and how much more the system is expected to keep. [B]"""

    set_aside_bytes: int
    expected_bytes: int


@dataclass(frozen=True)
class RelaxedLimit:
    """A limit that was assumed, and a value with which the verdict turns."""

    name: str
    assumed: float
    turning: float


@dataclass(frozen=True)
class Enough:
    """The fewest devices on which a case fits that does not fit as given, and the evidence for it. [device]"""

    devices: int
    tensor_parallel: int
    assumed: tuple[str, ...] = ()


@dataclass(frozen=True, repr=False, eq=False)
class Sizing(Result):
    """One replica of a model on a part under a workload: does it fit, what limits it, and how fast it can be.

    Memory is judged at ``memory_tokens``, TPOT at ``tpot_context_tokens``, TTFT for one prompt at batch 1.
    ``binding`` is a code for what limits the case: its weights alone, memory, the sequences that the deployment allows
    or the positions of the model. ``weight_bytes`` are those of the heaviest device; ``ridge_format`` is the compute
    format of most of a decode step (the ridge, TTFT and the request bound are None for a part without peaks, whose TPOT
    bound is that of its memory); ``verdict`` is "tight" where all that is counted fits and the runtime, which is
    not, may find no room; ``shared`` is None for a part with a memory of its own; ``enough`` is how many devices would
    do, where it does not fit, and ``turned_by`` the assumed limits with which, set otherwise, it would. ``evidence``
    says for each figure what kind of knowledge it is; ``not_modelled`` lists what is left out.
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
    verdict: MemoryVerdict
    binding: Binding
    margin_bytes: int
    weight_bytes: int
    positions: int | None
    ledger: tuple[Ledger, ...]
    max_batch: int
    max_context_tokens: int
    max_context_bound_by: str
    ridge_format: str | None
    ridge_flop_per_byte: float | None
    intensity_flop_per_byte: float
    tpot: Estimate
    ttft: Estimate
    request_bound_s: float | None
    tokens_per_s_bound: float
    parameters: int
    active_parameters: int
    objectives: tuple[Objective, ...]
    evidence: dict[str, str]
    notes: tuple[str, ...]
    not_modelled: tuple[str, ...]
    enough: Enough | None = None
    shared: SharedMemory | None = None
    turned_by: tuple[RelaxedLimit, ...] = ()

    @property
    def missed(self) -> bool:
        """Whether an objective is out of reach even at the bound."""
        return any(objective.missed for objective in self.objectives)

    @property
    def heaviest(self) -> Ledger:
        """The ledger of the device with the least memory left."""
        return min(self.ledger, key=lambda ledger: ledger.margin_bytes)


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in fields(value)] + list(getattr(value, "DERIVED", ()))
        return {name: _plain(getattr(value, name)) for name in names}
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, np.ndarray):
        return [_plain(item) for item in value.tolist()]
    plain = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(plain, float) and not math.isfinite(plain) else plain
