"""One model, deployment and workload on every part, those that fit first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from capacity.engines.builder import memory_table
from capacity.engines.settings import with_settings
from capacity.errors import CapacityError
from capacity.estimate import memory, request
from capacity.estimate.assumptions import assumptions
from capacity.estimate.case import check
from capacity.results import Binding, Result, Sizing
from capacity.specs.deployment import Deployment
from capacity.specs.hardware import HardwareSpec
from capacity.specs.workload import Workload
from capacity.specs.world import Subject
from capacity.studies.devices import assumed_domain, fewest_devices
from capacity.studies.provenance import unused, workload_assumptions
from capacity.studies.size import NOT_MODELLED, OperatingPoint, size_at


@dataclass(frozen=True)
class Shortage:
    """What the most devices tried lack: the code of what binds, and the numbers behind it. [B], [sequence]"""

    devices: int
    binding: Binding
    weight_bytes: int
    usable_bytes: int
    max_batch: int
    batch: int
    max_sequences: int | None


@dataclass(frozen=True)
class PartRow:
    """One part: the fewest devices on which the case fits, and limits and bounds there; or why there is no answer.

    ``fits`` is the verdict on the devices as given; ``devices`` is None where no tensor parallelism
    of at most 64 devices in one link domain fits, which ``shortage`` explains, or where the part cannot answer, for
    which ``reason`` says why. Bounds, and the objectives ``missed`` even at them, are those on ``devices``, and
    ``evidence`` is that of the TPOT bound; ``tight`` says that the runtime may find no room on those devices.
    ``assumed`` is what the answer rests on and no source says of the part.
    """

    part: str
    fits: bool
    devices: int | None
    margin_bytes: int | None
    max_batch: int | None
    max_context_tokens: int | None
    ttft_bound_s: float | None
    tpot_bound_s: float | None
    bound_by: str
    tokens_per_s_bound: float | None
    missed: tuple[str, ...]
    assumed: tuple[str, ...]
    reason: str = ""
    shortage: Shortage | None = None
    evidence: str = ""
    tight: bool = False

    @property
    def holds(self) -> bool:
        """Whether the part has an answer that misses no objective."""
        return self.devices is not None and not self.missed


@dataclass(frozen=True, repr=False, eq=False)
class PartTable(Result):
    """A model on many parts: parts that fit first, those that miss no objective before others, then by the bound on
    TPOT.

    ``assumed`` are the defaults that all rows share; ``deployment`` and ``workload`` are the question.
    """

    model: str
    rows: tuple[PartRow, ...]
    batch: int
    memory_tokens: int
    deployment: dict[str, Any]
    workload: dict[str, Any]
    assumed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    not_modelled: tuple[str, ...] = NOT_MODELLED


def size_on_all_parts(
    model: Subject, parts: Iterable[HardwareSpec], deploy: Deployment, at: OperatingPoint, *, workload: Workload
) -> PartTable:
    """Size ``model`` on each of ``parts``; where it does not fit, on the fewest devices of that part.

    A part that cannot answer (no path for the format, no memory size) keeps its reason. Numbers are judged as in
    `capacity.studies.size.size_at`.

    Raises
    ------
    CapacityError
        If the question itself is at fault, so that no part can answer it.
    """
    check(model, deploy)
    request.check_makes_tokens(model)
    longest = max(at.memory_tokens, at.prompt_tokens, at.tpot_context_tokens)
    memory.refuse_overflow(memory_table(model, with_settings(model, deploy)), batch=at.batch, context_tokens=longest)
    rows = [size_on_part(model, part, deploy, at, workload=workload) for part in parts]
    return PartTable(
        model=model.name,
        rows=tuple(sorted(rows, key=_order)),
        batch=at.batch,
        memory_tokens=at.memory_tokens,
        deployment=deploy.model_dump(),
        workload=workload.model_dump(),
        assumed=(*assumptions(model, deploy), *workload_assumptions(workload, workload_given=True)),
        notes=unused(workload),
    )


def _order(row: PartRow) -> tuple[Any, ...]:
    unanswered = row.devices is None
    return (unanswered, not row.fits, bool(row.missed), row.devices or 0, row.tpot_bound_s or 0.0, row.part)


def size_on_part(
    model: Subject, part: HardwareSpec, deploy: Deployment, at: OperatingPoint, *, workload: Workload
) -> PartRow:
    """The fewest devices of one part on which the case fits, or why there is no answer."""
    sizings = []

    def fits(candidate: Deployment) -> bool:
        sizings.append(size_at(model, part, candidate, at, workload=workload))
        return sizings[-1].fits

    try:
        enough = fewest_devices(part, deploy, fits)
    except CapacityError as error:
        return _unanswered(part, str(error))
    if enough is not None:
        return _answered(part, sizings[-1], sizings[0].fits)
    return replace(_unanswered(part, ""), assumed=assumed_domain(part), shortage=_shortage(sizings[-1], deploy))


def _answered(part: HardwareSpec, sizing: Sizing, fits_as_given: bool) -> PartRow:
    return PartRow(
        part=part.id or part.name,
        fits=fits_as_given,
        devices=sizing.devices,
        margin_bytes=sizing.margin_bytes,
        max_batch=sizing.max_batch,
        max_context_tokens=sizing.max_context_tokens,
        ttft_bound_s=sizing.ttft.bound,
        tpot_bound_s=sizing.tpot.bound,
        bound_by=sizing.tpot.bound_by,
        tokens_per_s_bound=sizing.tokens_per_s_bound,
        missed=tuple(objective.name for objective in sizing.objectives if objective.missed),
        assumed=() if fits_as_given else assumed_domain(part),
        evidence=sizing.evidence["tpot.bound"],
        tight=sizing.verdict == "tight",
    )


def _shortage(sizing: Sizing, deploy: Deployment) -> Shortage:
    return Shortage(
        devices=sizing.devices,
        binding=sizing.binding,
        weight_bytes=sizing.weight_bytes,
        usable_bytes=sizing.ledger[0].usable_bytes,
        max_batch=sizing.max_batch,
        batch=sizing.batch,
        max_sequences=deploy.max_sequences,
    )


def _unanswered(part: HardwareSpec, reason: str) -> PartRow:
    return PartRow(part.id or part.name, False, None, None, None, None, None, None, "", None, (), (), reason)
