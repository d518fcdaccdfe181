"""One replica of a model on a part under a workload: does it fit, what limits it, how fast can it be."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from capacity.demand.parameters import parameter_count
from capacity.engines.runtime import runtime_bytes
from capacity.errors import CapacityError
from capacity.estimate import memory, request
from capacity.estimate.case import Case, prepare
from capacity.estimate.ledger import ledgers
from capacity.estimate.pool import cache_pool
from capacity.formulas import serving
from capacity.results import OUTSIDE_MEMORY, OUTSIDE_TIME, Binding, Estimate, Ledger, MemoryVerdict, Objective, Sizing
from capacity.specs.deployment import DEFAULT_DEPLOYMENT, Deployment
from capacity.specs.hardware import HardwareSpec
from capacity.specs.workload import DEFAULT_WORKLOAD, Workload
from capacity.specs.world import Subject, WorldModelSpec
from capacity.studies.assumed_limits import turned_by
from capacity.studies.devices import fewest_devices
from capacity.studies.provenance import evidence, notes, shared_memory, unused, weak_figures, workload_assumptions
from capacity.supply.memory_side import without_peaks

NOT_MODELLED = (*OUTSIDE_MEMORY, *OUTSIDE_TIME)


@dataclass(frozen=True)
class OperatingPoint:
    """Where the figures are judged. [sequence], [token]"""

    batch: int
    memory_tokens: int
    tpot_context_tokens: int
    prompt_tokens: int

    @classmethod
    def of(cls, workload: Workload) -> OperatingPoint:
        """Memory at prompt + output, TPOT at prompt + output / 2, TTFT of one prompt."""
        return cls(workload.concurrency, workload.memory_tokens, workload.mean_context_tokens, workload.prompt_tokens)


def size(
    model: Subject,
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
    load = workload_of(model, workload)
    return sized(
        model,
        hardware,
        deploy or DEFAULT_DEPLOYMENT,
        OperatingPoint.of(load),
        workload=load,
        workload_given=bool(workload),
    )


def sized(
    model: Subject,
    hardware: HardwareSpec,
    deploy: Deployment,
    at: OperatingPoint,
    *,
    workload: Workload,
    workload_given: bool = True,
) -> Sizing:
    """`size_at`, and where memory does not suffice the fewest devices on which the case fits."""
    sizing = size_at(model, hardware, deploy, at, workload=workload, workload_given=workload_given)
    if sizing.margin_bytes >= 0:
        return sizing

    def fits(candidate: Deployment) -> bool:
        case = prepare(model, hardware, candidate)
        table, budget = case.memory, case.budget
        return bool(memory.fits(table, budget, case.deploy, batch=at.batch, context_tokens=at.memory_tokens))

    turned = turned_by(deploy, fits) if sizing.binding == "memory" else ()
    return replace(sizing, enough=fewest_devices(hardware, deploy, fits), turned_by=turned)


def workload_of(model: Subject, workload: Workload | None) -> Workload:
    """The workload; of a world model the prompt and the answer that its decisions have.

    Raises
    ------
    CapacityError
        If a world model is asked about another prompt than its own.
    """
    load = DEFAULT_WORKLOAD if workload is None else workload
    if not isinstance(model, WorldModelSpec):
        return load
    return _own_workload(model, load, frozenset(load.model_fields_set))


@lru_cache(maxsize=512)
def _own_workload(model: WorldModelSpec, workload: Workload, fields_set: frozenset[str]) -> Workload:
    """A workload, of which ``fields_set`` are the fields given, with the prompt and the answer of a world model."""
    if "prompt_tokens" in fields_set and workload.prompt_tokens != model.prompt_tokens:
        raise CapacityError(
            f"{model.name} has a prompt of {model.prompt_tokens:,} tokens (images, text and state), not "
            f"{workload.prompt_tokens:,}; change its views or text_tokens with replace to ask for another"
        )
    own = {"prompt_tokens": model.prompt_tokens, "output_tokens": model.answer_tokens}
    missing = {name: tokens for name, tokens in own.items() if name not in fields_set and tokens}
    return Workload(**{name: getattr(workload, name) for name in fields_set}, **missing)


def size_at(
    model: Subject,
    hardware: HardwareSpec,
    deploy: Deployment,
    at: OperatingPoint,
    *,
    workload: Workload,
    workload_given: bool = True,
) -> Sizing:
    """Size one replica at given batch and contexts."""
    case = prepare(model, hardware, deploy)
    request.check_makes_tokens(model)
    deploy = case.deploy  # with the settings of its engine
    ledger, max_batch, max_context, in_memory = _memory_at(case, at)
    has_peaks = not without_peaks(hardware)
    tpot, ttft = _times_at(case, at, has_peaks=has_peaks)
    margin_bytes = ledger[0].margin_bytes
    fits = margin_bytes >= 0 and at.batch <= max_batch
    weight_bytes = sum([line.held_bytes for line in ledger[0].lines if line.name.startswith("weights")])
    count = parameter_count(case.model)
    return Sizing(
        model=model.name,
        part=hardware.name,
        deployment=deploy.model_dump(),
        workload=workload.model_dump(),
        assumed=(*case.assumed, *workload_assumptions(workload, workload_given=workload_given), *weak_figures(case)),
        devices=deploy.devices,
        batch=at.batch,
        memory_tokens=at.memory_tokens,
        tpot_context_tokens=at.tpot_context_tokens,
        prompt_tokens=at.prompt_tokens,
        fits=fits,
        verdict=_verdict(ledger, fits=fits),
        binding=_binding(case, at, ledger[0], weight_bytes, max_batch),
        margin_bytes=margin_bytes,
        weight_bytes=weight_bytes,
        positions=case.model.positions,
        ledger=ledger,
        max_batch=max_batch,
        max_context_tokens=max_context,
        max_context_bound_by=_context_bound(case, at, in_memory),
        ridge_format=case.compute_format if has_peaks else None,
        ridge_flop_per_byte=case.ridge_flop_per_byte if has_peaks else None,
        intensity_flop_per_byte=_intensity(case, at, tpot),
        tpot=tpot,
        ttft=ttft,
        request_bound_s=_request_bound_s(ttft, tpot, workload),
        tokens_per_s_bound=_tokens_per_s_bound(case, at, tpot),
        parameters=count.total,
        active_parameters=count.active,
        objectives=_objectives(workload, ttft, tpot),
        evidence=evidence(case, tpot, ttft),
        notes=(*notes(case, at.batch, at.memory_tokens), *unused(workload)),
        not_modelled=(*NOT_MODELLED, *request.encode_note(case)),
        pool=cache_pool(case, context_tokens=at.memory_tokens),
        shared=shared_memory(hardware, deploy),
    )


def _memory_at(case: Case, at: OperatingPoint) -> tuple[tuple[Ledger, ...], int, int, int]:
    """Ledgers, largest batch, longest context, and the longest that memory alone allows. [sequence], [token]"""
    table, budget, deploy = case.memory, case.budget, case.deploy
    ledger = ledgers(
        table,
        budget,
        deploy,
        batch=at.batch,
        context_tokens=at.memory_tokens,
        runtime_bytes=runtime_bytes(case.hardware, deploy),
        assumed=case.assumed,
    )
    max_batch = memory.max_batch(table, budget, deploy, context_tokens=at.memory_tokens)
    max_context, in_memory = memory.max_context(table, budget, deploy, batch=at.batch, positions=case.model.positions)
    return ledger, int(max_batch), int(max_context), int(in_memory)


def _times_at(case: Case, at: OperatingPoint, *, has_peaks: bool) -> tuple[Estimate, Estimate]:
    """TPOT of the batch, and TTFT of one prompt."""
    tpot = request.tpot(case, batch=at.batch, context_tokens=at.tpot_context_tokens)
    if not has_peaks:
        return tpot, request.unknown_ttft(case)
    return tpot, request.ttft(case, batch=1, prompt_tokens=at.prompt_tokens)


def _intensity(case: Case, at: OperatingPoint, tpot: Estimate) -> float:
    """FLOP of a decode step over the bytes it moves. [FLOP/B]"""
    if not tpot.rows:
        return float(request.intensity(case, batch=at.batch, context_tokens=at.tpot_context_tokens))
    return sum([row.flop for row in tpot.rows]) / sum([row.moved_bytes for row in tpot.rows])


def _request_bound_s(ttft: Estimate, tpot: Estimate, workload: Workload) -> float | None:
    """TTFT + (N - 1) TPOT, None where the former is unknown. [s]"""
    if ttft.bound is None:
        return None
    return float(serving.request_latency_s(ttft.bound, tpot.bound, workload.output_tokens))


def _verdict(ledger: tuple[Ledger, ...], *, fits: bool) -> MemoryVerdict:
    """Tight where any device leaves less than its runtime needs."""
    if not fits:
        return "does not fit"
    return "tight" if any(one.tight for one in ledger) else "fits"


def _tokens_per_s_bound(case: Case, at: OperatingPoint, tpot: Estimate) -> float:
    """Tokens per second of decode: data-parallel ranks that hold fewer sequences take shorter steps. [token/s]"""
    ranks = case.deploy.data_parallel
    fewer, fuller_ranks = divmod(at.batch, ranks)
    if ranks == 1 or not fuller_ranks:
        return float(serving.tokens_per_s(at.batch, tpot.bound))
    rate = float(serving.tokens_per_s(fuller_ranks * (fewer + 1), tpot.bound))
    if not fewer:
        return rate
    even = request.tpot(case, batch=fewer * ranks, context_tokens=at.tpot_context_tokens)
    return rate + float(serving.tokens_per_s((ranks - fuller_ranks) * fewer, even.bound))


def _binding(case: Case, at: OperatingPoint, ledger: Ledger, weight_bytes: int, max_batch: int) -> Binding:
    """What limits the case, as a code: of a case that does not fit what makes it so, else what ends the batch."""
    allowed, positions = case.deploy.max_sequences, case.model.positions
    if ledger.margin_bytes < 0:
        return "weights" if weight_bytes > ledger.usable_bytes else "memory"
    if allowed is not None and (at.batch > max_batch or max_batch == allowed):
        return "max_sequences"
    return "positions" if positions is not None and at.memory_tokens > positions else "memory"


def _context_bound(case: Case, at: OperatingPoint, in_memory: int) -> str:
    """What ends the context: the sequences allowed, memory, the model's positions, or nothing."""
    allowed, positions = case.deploy.max_sequences, case.model.positions
    if allowed is not None and at.batch > allowed:
        return "max_sequences"
    if positions is not None and in_memory >= positions:
        return "positions"
    return "nothing" if in_memory >= 2**31 else "memory"


def _objectives(workload: Workload, ttft: Estimate, tpot: Estimate) -> tuple[Objective, ...]:
    pairs = [("TTFT", workload.max_ttft_s, ttft.bound), ("TPOT", workload.max_tpot_s, tpot.bound)]
    limits = [(name, limit, bound) for name, limit, bound in pairs if limit is not None]
    return tuple([Objective(name, limit, bound, bound is not None and bound > limit) for name, limit, bound in limits])
