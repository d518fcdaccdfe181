"""Provenance of a sizing: evidence of each figure, defaults taken, unverified figures of the part, and notes."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from capacity.demand.arithmetic import arithmetic
from capacity.demand.feed_forwards import routes
from capacity.demand.placement import weight_shards
from capacity.engines.runtime import system_bytes
from capacity.errors import CapacityError
from capacity.estimate.case import Case
from capacity.results import Estimate, SharedMemory
from capacity.specs.deployment import Deployment
from capacity.specs.hardware import HardwareSpec
from capacity.specs.provenance import matches
from capacity.specs.workload import Workload
from capacity.supply.paths import ordinary_path
from capacity.units import number_format

UNUSED = ("requests_per_s", "percentile")  # of a workload: they ask about many requests, not about one replica
WEAKEST_FIRST = ("assumed", "calibrated", "published", "measured", "computed")


def evidence(case: Case, tpot: Estimate, ttft: Estimate) -> dict[str, str]:
    """The evidence of each figure: no better than the weakest figure of the part behind it."""
    kinds = dict.fromkeys(("weights", "kv cache", "state"), "computed")
    # Limits leave room for activations, which are a schedule of the reference decoder.
    kinds |= dict.fromkeys(("activations", "max_batch", "max_context"), "assumed")
    bound, attainable = _evidence_of_ceilings(case)
    kinds["ridge point"] = bound
    for name, estimate in (("tpot", tpot), ("ttft", ttft)):
        kinds[f"{name}.bound"] = bound
        if estimate.attainable is not None:
            kinds[f"{name}.attainable"] = attainable
        if estimate.value is not None:
            kinds[f"{name}.value"] = estimate.evidence
    return kinds


@lru_cache(maxsize=512)
def _evidence_of_ceilings(case: Case) -> tuple[str, str]:
    """Evidence of a bound and of an attainable time."""
    measured, kinds = _attainable_figures(case)
    bound = _weakest("computed", *_not_published(case.hardware, case.decode_ceilings.figures))
    if routes(case.model):  # how freely tokens choose experts is assumed
        return bound, "assumed"
    return bound, _weakest(*map(case.hardware.evidence, measured), *kinds)


def _weakest(*kinds: str) -> str:
    return min(kinds, key=WEAKEST_FIRST.index)


def _not_published(hardware: HardwareSpec, figures: Iterable[str]) -> list[str]:
    """The kinds of those figures that no datasheet states: assumed, or measured."""
    return [kind for figure in figures if (kind := hardware.evidence(figure)) != "published"]


def _attainable_figures(case: Case) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Figures of the part that an attainable time rests on, and the evidence that counts with them: a share
    of the datasheet in place of a measurement, and fixed times of links."""
    ceilings = case.measured_ceilings(case.arithmetic)
    if ceilings is None:  # no attainable time is given then
        return (), ("assumed",)
    shares = ("assumed",) if ceilings.assumed else ()
    if case.deploy.devices == 1 or isinstance(case.link, CapacityError):
        return ceilings.figures, shares
    of_links = "assumed" if case.link.network else case.link.evidence  # no one named the server
    return (*ceilings.figures, *case.link.figures), (*shares, of_links)


def workload_assumptions(workload: Workload, *, workload_given: bool) -> tuple[str, ...]:
    """Defaults of the workload, one line each: all of it where none was given."""
    if workload_given:
        names = ["prompt_tokens", "output_tokens", "concurrency"]
        return tuple([f"{name} = {getattr(workload, name)}" for name in names if name not in workload.model_fields_set])
    fields = {name: getattr(workload, name) for name in Workload.model_fields}
    return tuple([f"{name} = {value}" for name, value in fields.items() if value is not None])


@lru_cache(maxsize=512)
def weak_figures(case: Case) -> tuple[str, ...]:
    """Unverified and replaced figures of the part that a sizing uses."""
    hardware = case.hardware
    rests_on = {
        "memory.capacity_bytes",
        "memory.reserve_bytes",
        *case.decode_ceilings.figures,
        *_attainable_figures(case)[0],
    }
    kinds = {"replaced or inherited": hardware.assumed, "unverified": hardware.unverified}
    return tuple(
        f"{hardware.name}: {pattern} ({kind})"
        for kind, patterns in kinds.items()
        for pattern in patterns
        if any(matches(figure, (pattern,)) for figure in rests_on)
    )


def unused(workload: Workload) -> tuple[str, ...]:
    """Notes on fields that were given but are not used when one replica is sized."""
    unused_fields = [name for name in UNUSED if getattr(workload, name) is not None]
    return tuple(
        [f"{name} does not enter the sizing of a replica, which is at the given concurrency" for name in unused_fields]
    )


def notes(case: Case, batch: int, memory_tokens: int) -> tuple[str, ...]:
    """What to know of the model and of the deployment at this batch and context. [sequence], [token]"""
    model = case.model
    remarks = list(model.notes if case.world is None else dict.fromkeys((*model.notes, *case.world.notes)))
    if model.positions is not None and memory_tokens > model.positions:
        remarks.append(f"context {memory_tokens:,} is beyond the {model.positions:,} positions of {model.name}")
    routed, dequantised = _standing_notes(case)
    if routed and batch > 1:
        remarks.append(
            "experts: the bound charges the fewest that any routing visits, the roofline the expected distinct ones "
            "under uniform routing"
        )
    return (*remarks, *dequantised)


def shared_memory(part: HardwareSpec, deploy: Deployment, *, taken_bytes: int = 0) -> SharedMemory | None:
    """Memory shared with the system: how much is set aside, and how much more the system is expected to keep. [B]"""
    if not part.memory.unified:
        return None
    aside = (part.memory.reserve_bytes or 0) + deploy.reserved_bytes + taken_bytes
    return SharedMemory(aside, system_bytes(part, deploy, taken_bytes=taken_bytes))


@lru_cache(maxsize=512)
def _standing_notes(case: Case) -> tuple[bool, tuple[str, ...]]:
    """Whether the model routes tokens to experts, and a note for each format of weights that is dequantised."""
    parts: dict[str, dict[str, None]] = {}
    for shard in weight_shards(case.model, case.deploy):
        if not shard.module.vector:
            parts.setdefault(shard.format, {})[shard.module.part] = None
    remarks = []
    for stored, names in parts.items():
        arithmetic_of_weights = arithmetic(number_format(stored), case.model, case.deploy)
        computes = ordinary_path(case.hardware, arithmetic_of_weights) or arithmetic_of_weights.computed
        if number_format(stored).element_bits < number_format(computes).element_bits:
            remarks.append(f"weights in {stored} ({', '.join(names)}) are dequantised and computed in {computes}")
    return routes(case.model), tuple(remarks)
