"""Whether an engine starts with a deployment: it must hold one sequence of the longest context that it admits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from capacity.errors import CapacityError
from capacity.estimate import memory
from capacity.estimate.case import Case, prepare
from capacity.estimate.ledger import ledgers
from capacity.estimate.pool import cache_pool
from capacity.results import OUTSIDE_MEMORY, CachePool, Enough, Ledger, Result
from capacity.specs.deployment import Deployment
from capacity.specs.hardware import HardwareSpec
from capacity.specs.model import ModelSpec
from capacity.studies.devices import fewest_devices

MAX_FRACTION = 0.98  # beyond it the driver and other processes have no room
FRACTION_STEPS = 100
UNSTATED_CONTEXT = 8192  # of a model whose positions no file states [token]


@dataclass(frozen=True, repr=False, eq=False)
class Start(Result):
    """Whether an engine starts, and of what would let it start the smallest change of each kind. [token]

    ``sequences`` of ``context_tokens`` must be held at once: one, or all slots of an engine that reserves them.
    ``longest_context_tokens`` is what would start, 0 where nothing does; ``fraction`` the smallest memory fraction that
    would, and ``enough`` the fewest devices, both None where it starts as it is or none would do.
    """

    model: str
    part: str
    engine: str
    version: str
    devices: int
    starts: bool
    sequences: int
    context_tokens: int
    longest_context_tokens: int
    ledger: Ledger
    pool: CachePool | None
    fraction: float | None = None
    enough: Enough | None = None
    assumed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    not_modelled: tuple[str, ...] = (*OUTSIDE_MEMORY, "peaks of loading and repacking weights")


def start(model: ModelSpec, hardware: HardwareSpec, deploy: Deployment, *, context_tokens: int | None = None) -> Start:
    """Whether the engine of a deployment starts.

    Parameters
    ----------
    model : ModelSpec
        The network.
    hardware : HardwareSpec
        The part.
    deploy : Deployment
        Names the engine; what it leaves open is as the engine has it.
    context_tokens : int, optional
        Longest sequence to admit; the positions of the model where it is not given. [token]

    Raises
    ------
    CapacityError
        If the model cannot have this deployment.
    """
    case = prepare(model, hardware, deploy)
    context = context_tokens or model.positions or UNSTATED_CONTEXT
    fits = partial(_holds, model, hardware, context)
    starts, (longest, _) = fits(deploy), _longest(case)
    rows = ledgers(
        case.memory, case.budget, case.deploy, batch=_sequences(case), context_tokens=context, assumed=case.assumed
    )
    return Start(
        model=model.name,
        part=hardware.name,
        engine=case.deploy.engine,
        version=_version(case),
        devices=deploy.devices,
        starts=starts,
        sequences=_sequences(case),
        context_tokens=context,
        longest_context_tokens=longest,
        ledger=rows[0],
        pool=cache_pool(case, context_tokens=context),
        fraction=None if starts else _fraction(deploy, case, fits),
        enough=None if starts else fewest_devices(hardware, deploy, fits),
        assumed=(*case.assumed, *(() if context_tokens else (f"longest context = {context:,} tokens",))),
    )


def _sequences(case: Case) -> int:
    """Sequences that are held from the start: all slots where they are reserved, else one."""
    caches = [cache for kind in case.memory.kinds for cache in kind.totals.caches]
    reserved = any(cache.blocks in ("preallocated", "unified") for cache in caches)
    return (case.deploy.max_sequences or 1) if reserved else 1


def _version(case: Case) -> str:
    pool = cache_pool(case, context_tokens=1)
    return pool.version if pool else case.deploy.engine_version or ""


def _holds(model: ModelSpec, hardware: HardwareSpec, context_tokens: int, deploy: Deployment) -> bool:
    case = prepare(model, hardware, deploy)
    fits = memory.fits(case.memory, case.budget, case.deploy, batch=_sequences(case), context_tokens=context_tokens)
    return bool(fits)


def _longest(case: Case) -> tuple[int, int]:
    longest, in_memory = memory.max_context(
        case.memory, case.budget, case.deploy, batch=_sequences(case), positions=case.model.positions
    )
    return int(longest), int(in_memory)


def _fraction(deploy: Deployment, case: Case, fits: Callable[[Deployment], bool]) -> float | None:
    """The smallest memory fraction, in steps of a hundredth, with which it starts."""
    first = int(case.deploy.memory_fraction * FRACTION_STEPS) + 1
    for step in range(first, int(MAX_FRACTION * FRACTION_STEPS) + 1):
        try:
            if fits(deploy.replace(memory_fraction=step / FRACTION_STEPS)):
                return step / FRACTION_STEPS
        except CapacityError:
            return None
    return None
