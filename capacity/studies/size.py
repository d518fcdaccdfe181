"""One replica of a model on a part under a workload: does it fit, what limits it, how fast can it be."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from capacity.demand import memory
from capacity.demand.operators import compute_format
from capacity.demand.placement import QUANTISED_PARTS, pieces, sixteen_bit
from capacity.estimate import time as evaluate
from capacity.formulas import serving
from capacity.results import Estimate, Ledger, Objective, Sizing
from capacity.specs.deployment import AS_STORED, Deployment
from capacity.specs.hardware import HardwareSpec
from capacity.specs.model import ModelSpec
from capacity.specs.provenance import named
from capacity.specs.workload import Workload
from capacity.supply.ceilings import attainable, datasheet, links_rest_on, ridge_point
from capacity.units import format_bytes, number_format

NOT_MODELLED = (
    "runtime context, libraries and allocator slack (what memory_fraction leaves free is meant for them)",
    "in a bound: links between devices and kernel launches (an attainable time counts both)",
    "scheduling and sampling time",
    "activation traffic and cache writes",
)
UNUSED = ("requests_per_s", "percentile")  # of a workload: they ask about many requests, not about one replica
WEAKEST_FIRST = ("assumed", "calibrated", "published", "measured", "computed")


@dataclass(frozen=True)
class At:
    """Where the figures are judged. [sequence], [token]"""

    batch: int
    memory_tokens: int
    tpot_context_tokens: int
    prompt_tokens: int


def size(
    model: ModelSpec,
    hardware: HardwareSpec,
    workload: Workload | None = None,
    deploy: Deployment | None = None,
) -> Sizing:
    """Size one replica. Memory at prompt + output, TPOT at prompt + output / 2, TTFT for one prompt at batch 1.

    Raises
    ------
    CapacityError
        If model, part, deployment and workload do not go together.
    """
    chosen, asked = deploy or Deployment(), workload or Workload()
    at = At(asked.concurrency, asked.memory_tokens, asked.mean_context_tokens, asked.prompt_tokens)
    return size_at(model, hardware, chosen, at, workload=asked, workload_given=workload is not None)


def size_at(
    model: ModelSpec,
    hardware: HardwareSpec,
    deploy: Deployment,
    at: At,
    *,
    workload: Workload,
    workload_given: bool = True,
) -> Sizing:
    """Size one replica at given batch and contexts."""
    evaluate.check(model, deploy)
    datasheet(model, hardware, deploy)
    ledger = evaluate.ledgers(model, hardware, deploy, batch=at.batch, context_tokens=at.memory_tokens)
    max_batch = int(evaluate.max_batch(model, hardware, deploy, context_tokens=at.memory_tokens))
    max_context, in_memory = evaluate.max_context(model, hardware, deploy, batch=at.batch)
    tpot = evaluate.tpot(model, hardware, deploy, batch=at.batch, context_tokens=at.tpot_context_tokens)
    ttft = evaluate.ttft(model, hardware, deploy, batch=1, prompt_tokens=at.prompt_tokens)
    fits = ledger[0].margin_bytes >= 0 and at.batch <= max_batch
    count = memory.parameter_count(model)
    return Sizing(
        model=model.name,
        part=hardware.name,
        deployment=deploy.model_dump(),
        workload=workload.model_dump(),
        assumed=_assumed(model, hardware, deploy, workload, workload_given),
        devices=deploy.devices,
        batch=at.batch,
        memory_tokens=at.memory_tokens,
        tpot_context_tokens=at.tpot_context_tokens,
        prompt_tokens=at.prompt_tokens,
        fits=fits,
        verdict=_verdict(deploy, at, ledger[0], fits),
        binding=_binding(model, deploy, at, ledger[0], fits, max_batch),
        margin_bytes=ledger[0].margin_bytes,
        ledger=ledger,
        max_batch=max_batch,
        max_context_tokens=int(max_context),
        max_context_bound_by=_context_bound(model, deploy, at, int(in_memory)),
        ridge_flop_per_byte=ridge_point(hardware, deploy.activations),
        intensity_flop_per_byte=float(
            evaluate.intensity(model, deploy, batch=at.batch, context_tokens=at.tpot_context_tokens)
        ),
        tpot=tpot,
        ttft=ttft,
        request_bound_s=float(serving.request_latency_s(ttft.bound, tpot.bound, workload.output_tokens)),
        tokens_per_s_bound=float(serving.tokens_per_s(at.batch, tpot.bound)),
        parameters=count.total,
        active_parameters=count.active,
        objectives=_objectives(workload, ttft, tpot),
        evidence=_evidence(model, hardware, deploy, tpot, ttft),
        notes=(*_notes(model, deploy, at), *unused(workload)),
        not_modelled=NOT_MODELLED,
    )


def _verdict(deploy: Deployment, at: At, ledger: Ledger, fits: bool) -> str:
    margin = format_bytes(abs(ledger.margin_bytes))
    if fits:
        return f"fits, {margin} to spare on each device"
    if ledger.margin_bytes >= 0:
        return f"does not fit: max_sequences {deploy.max_sequences} is below the {at.batch:,} sequences asked for"
    return f"does not fit: {margin} missing on each device"


def _binding(model: ModelSpec, deploy: Deployment, at: At, ledger: Ledger, fits: bool, max_batch: int) -> str:
    if not fits and ledger.margin_bytes >= 0:
        return f"max_sequences {deploy.max_sequences} limits the batch"
    if not fits:
        weights = sum(line.held_bytes for line in ledger.lines if line.name.startswith("weights"))
        if weights > ledger.usable_bytes:
            return f"weights alone need {format_bytes(weights)} of {format_bytes(ledger.usable_bytes)} usable"
        return f"memory holds {max_batch:,} of the {at.batch:,} sequences"
    if deploy.max_sequences is not None and max_batch == deploy.max_sequences:
        return f"max_sequences {deploy.max_sequences:,} limits the batch"
    if model.positions is not None and at.memory_tokens > model.positions:
        return f"context is beyond the {model.positions:,} positions of the model"
    return f"memory limits the batch to {max_batch:,}"


def _context_bound(model: ModelSpec, deploy: Deployment, at: At, in_memory: int) -> str:
    """What ends the context: the sequences allowed, memory, the model's positions, or nothing."""
    if deploy.max_sequences is not None and at.batch > deploy.max_sequences:
        return "max_sequences"
    if model.positions is not None and in_memory >= model.positions:
        return "positions"
    return "nothing" if in_memory >= 2**31 else "memory"


def _objectives(workload: Workload, ttft: Estimate, tpot: Estimate) -> tuple[Objective, ...]:
    pairs = [("TTFT", workload.max_ttft_s, ttft.bound), ("TPOT", workload.max_tpot_s, tpot.bound)]
    return tuple(Objective(name, limit, bound, bound > limit) for name, limit, bound in pairs if limit is not None)


def _evidence(
    model: ModelSpec, hardware: HardwareSpec, deploy: Deployment, tpot: Estimate, ttft: Estimate
) -> dict[str, str]:
    """What kind of knowledge each figure is: no better than the weakest figure of the part that it rests on."""
    found = dict.fromkeys(("weights", "kv cache", "state"), "computed")
    # Limits leave room for activations, which are a schedule of the reference decoder.
    found |= dict.fromkeys(("activations", "max_batch", "max_context"), "assumed")
    bound = _weakest("computed", *_unprinted_among(hardware, datasheet(model, hardware, deploy).figures))
    found["ridge point"] = bound
    measured, fixed_times = _attainable_figures(model, hardware, deploy)
    for name, estimate in (("tpot", tpot), ("ttft", ttft)):
        found[f"{name}.bound"] = bound
        if estimate.attainable is not None:
            found[f"{name}.attainable"] = _weakest(*map(hardware.evidence, measured), *fixed_times)
        if estimate.value is not None:
            found[f"{name}.value"] = estimate.evidence
    return found


def _weakest(*kinds: str) -> str:
    return min(kinds, key=WEAKEST_FIRST.index)


def _unprinted_among(hardware: HardwareSpec, figures: Iterable[str]) -> list[str]:
    """The kinds of those figures that no datasheet states: assumed, or measured."""
    return [kind for figure in figures if (kind := hardware.evidence(figure)) != "published"]


def _attainable_figures(
    model: ModelSpec, hardware: HardwareSpec, deploy: Deployment
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Figures of the part that an attainable time rests on, and the evidence of the fixed times of its links."""
    ceilings = attainable(model, hardware, deploy)
    if ceilings is None:
        return (), ()
    if deploy.devices == 1:
        return ceilings.figures, ()
    links, fixed_times = links_rest_on(hardware)
    return (*ceilings.figures, *links), (fixed_times,)


def _assumed(
    model: ModelSpec, hardware: HardwareSpec, deploy: Deployment, workload: Workload, workload_given: bool
) -> tuple[str, ...]:
    """Choices that nobody made and figures that nobody vouches for, each as one line."""
    found = []
    if "kv_cache" not in deploy.model_fields_set and deploy.kv_cache is None:
        found.append(f"kv_cache = {sixteen_bit(deploy.activations)}")
    for name in ("activations", "memory_fraction", "block_tokens", "prefill_chunk_tokens", "engine"):
        if name not in deploy.model_fields_set:
            found.append(f"{name} = {getattr(deploy, name)}")
    found.extend(_left_wide(model, deploy))
    if deploy.weights == AS_STORED and model.checkpoint is not None and "weights" not in deploy.model_fields_set:
        parts = [f", {part} {stored}" for part, stored in model.checkpoint.parts.items()]
        found.append(f"weights = as stored ({model.checkpoint.default}{''.join(parts)})")
    names = Workload.model_fields if not workload_given else ()
    missing = [name for name in names if getattr(workload, name) is not None]
    found.extend(f"{name} = {getattr(workload, name)}" for name in missing)
    if workload_given:
        for name in ("prompt_tokens", "output_tokens", "concurrency"):
            if name not in workload.model_fields_set:
                found.append(f"{name} = {getattr(workload, name)}")
    if deploy.weights == AS_STORED and model.checkpoint is not None and model.checkpoint.evidence == "assumed":
        found.append(f"{model.name}: stored formats")
    found.extend(f"{model.name}: {field}" for field in model.assumed)
    found.extend(_weak_figures(model, hardware, deploy))
    return tuple(found)


@lru_cache(maxsize=256)
def _left_wide(model: ModelSpec, deploy: Deployment) -> tuple[str, ...]:
    """Parts that narrow ``weights`` leave in 16 bits and no override names, as engines do that quantise a model."""
    if deploy.weights == AS_STORED or number_format(deploy.weights).element_bits >= 16:
        return ()
    chosen = {*QUANTISED_PARTS, *(override.part for override in deploy.overrides)}
    left: dict[str, list[str]] = {}
    for piece in pieces(model, deploy):
        module = piece.module
        if module.stored and not module.vector and module.part not in chosen:
            left.setdefault(piece.format, []).append(module.part)
    kept = f", which weights = {deploy.weights} leaves alone"
    return tuple(f"{', '.join(dict.fromkeys(parts))} = {stored}{kept}" for stored, parts in left.items())


def _weak_figures(model: ModelSpec, hardware: HardwareSpec, deploy: Deployment) -> list[str]:
    """Unverified and replaced figures of the part that a sizing rests on."""
    rests_on = {"memory.capacity_bytes", "memory.reserve_bytes", *datasheet(model, hardware, deploy).figures}
    rests_on |= set(_attainable_figures(model, hardware, deploy)[0])
    kinds = {"replaced or inherited": hardware.assumed, "unverified": hardware.unverified}
    return [
        f"{hardware.name}: {pattern} ({kind})"
        for kind, patterns in kinds.items()
        for pattern in patterns
        if any(named(figure, (pattern,)) for figure in rests_on)
    ]


def unused(workload: Workload) -> tuple[str, ...]:
    """Notes on what was asked and has no part in sizing one replica."""
    given = [name for name in UNUSED if getattr(workload, name) is not None]
    return tuple(f"{name} is not used: one replica is sized at the given concurrency" for name in given)


def _notes(model: ModelSpec, deploy: Deployment, at: At) -> tuple[str, ...]:
    notes = list(model.notes)
    if model.positions is not None and at.memory_tokens > model.positions:
        notes.append(f"context {at.memory_tokens:,} is beyond the {model.positions:,} positions of {model.name}")
    if _has_experts(model) and at.batch > 1:
        notes.append("experts: the bound charges the expected distinct experts under uniform routing")
    return (*notes, *_dequantised(model, deploy))


@lru_cache(maxsize=256)
def _dequantised(model: ModelSpec, deploy: Deployment) -> tuple[str, ...]:
    """A note for each format of weights that is narrower than what it is computed in."""
    notes = []
    parts: dict[str, dict[str, None]] = {}
    for piece in pieces(model, deploy):
        if not piece.module.vector:
            parts.setdefault(piece.format, {})[piece.module.part] = None
    for stored, names in parts.items():
        computes = compute_format(number_format(stored), deploy.activations)
        if number_format(stored).element_bits < number_format(computes).element_bits:
            notes.append(f"weights in {stored} ({', '.join(names)}) are dequantised and computed in {computes}")
    return tuple(notes)


def _has_experts(model: ModelSpec) -> bool:
    return any(group.feed_forward.kind == "experts" for stage in model.stages for group in stage.layers)
