"""One replica sized: limits, times, objectives, and what would make it fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from capacity.results.base import Result
from capacity.results.memory import CachePool, Ledger, MemoryVerdict, SharedMemory
from capacity.results.times import Estimate

Binding = Literal["weights", "memory", "max_sequences", "positions"]


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
    do, where it does not fit, and ``turned_by`` the assumed limits with which, set otherwise, it would. ``pool`` is the
    cache that the engine sets apart, None where it sets none. ``evidence``
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
    pool: CachePool | None = None

    @property
    def missed(self) -> bool:
        """Whether an objective is out of reach even at the bound."""
        return any(objective.missed for objective in self.objectives)

    @property
    def heaviest(self) -> Ledger:
        """The ledger of the device with the least memory left."""
        return min(self.ledger, key=lambda ledger: ledger.margin_bytes)
