"""Which part for my case: one model, deployment and workload on every part, those that fit first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from capacity.errors import CapacityError
from capacity.estimate import time as evaluate
from capacity.results import Result, Sizing
from capacity.specs.deployment import Deployment
from capacity.specs.hardware import HardwareSpec
from capacity.specs.model import ModelSpec
from capacity.specs.workload import Workload
from capacity.studies.size import At, size_at, unused
from capacity.units import format_bytes, format_seconds

LARGEST_TENSOR_PARALLEL = 64
ASSUMED_DOMAIN = 8  # where nobody says how many devices a link joins


@dataclass(frozen=True)
class PartRow:
    """One part: the fewest devices on which the case fits, and limits and bounds there; or why there is no answer.

    ``fits`` is the verdict on the devices that were asked for; ``devices`` is None where no tensor parallelism
    of at most 64 devices in one link domain fits. Bounds, and the objectives ``missed`` even at them, are those on
    ``devices``. ``assumed`` is what nobody says of the part and the answer rests on.
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
    reason: str

    @property
    def holds(self) -> bool:
        """Whether the part has an answer that misses no objective."""
        return self.devices is not None and not self.missed


@dataclass(frozen=True, repr=False)
class PartTable(Result):
    """A model on many parts: parts that fit first, those that miss no objective before others, then by the bound on
    TPOT."""

    model: str
    rows: tuple[PartRow, ...]
    notes: tuple[str, ...] = ()

    def table(self) -> list[tuple[str, str]]:
        return [(row.part, _line(row)) for row in self.rows] + [("note", note) for note in self.notes]


def size_on_all_parts(
    model: ModelSpec, parts: Iterable[HardwareSpec], deploy: Deployment, at: At, *, workload: Workload
) -> PartTable:
    """Size ``model`` on each of ``parts``; where it does not fit, on the fewest devices of that part.

    A part that cannot answer (no path for the format, no memory size) keeps its reason. Numbers are judged as in
    `capacity.studies.size.size_at`.

    Raises
    ------
    CapacityError
        If the question itself is at fault, so that no part can answer it.
    """
    evaluate.check(model, deploy)
    evaluate.refuse_overflow(deploy, model, at.batch, max(at.memory_tokens, at.prompt_tokens, at.tpot_context_tokens))
    rows = [size_on_part(model, part, deploy, at, workload=workload) for part in parts]
    return PartTable(model.name, tuple(sorted(rows, key=_order)), unused(workload))


def _order(row: PartRow) -> tuple[Any, ...]:
    unanswered = row.devices is None
    return (unanswered, not row.fits, bool(row.missed), row.devices or 0, row.tpot_bound_s or 0.0, row.part)


def size_on_part(model: ModelSpec, part: HardwareSpec, deploy: Deployment, at: At, *, workload: Workload) -> PartRow:
    """The fewest devices of one part on which the case fits, or why there is no answer."""
    reason, asked_fits = "no tensor parallelism within one link domain fits", None
    for degree in _degrees(part, deploy):
        try:
            sizing = size_at(model, part, deploy.replace(tensor_parallel=degree), at, workload=workload)
        except CapacityError as error:
            if asked_fits is None:
                return _unanswered(part, str(error))
            continue
        asked_fits = sizing.fits if asked_fits is None else asked_fits
        if sizing.fits:
            return _answered(part, sizing, asked_fits)
        reason = sizing.binding
    assumed = _assumed_domain(part)
    return _unanswered(part, "; assuming ".join((reason, *assumed)), assumed)


def _answered(part: HardwareSpec, sizing: Sizing, asked_fits: bool) -> PartRow:
    return PartRow(
        part=part.id or part.name,
        fits=asked_fits,
        devices=sizing.devices,
        margin_bytes=sizing.margin_bytes,
        max_batch=sizing.max_batch,
        max_context_tokens=sizing.max_context_tokens,
        ttft_bound_s=sizing.ttft.bound,
        tpot_bound_s=sizing.tpot.bound,
        bound_by=sizing.tpot.bound_by,
        tokens_per_s_bound=sizing.tokens_per_s_bound,
        missed=tuple(objective.name for objective in sizing.objectives if objective.missed),
        assumed=() if asked_fits else _assumed_domain(part),
        reason="",
    )


def _degrees(part: HardwareSpec, deploy: Deployment) -> list[int]:
    """The degree asked for, then its doubles as far as the link of the part reaches."""
    others = deploy.pipeline_parallel * deploy.data_parallel
    domain = _known_domain(part) or ASSUMED_DOMAIN
    degrees, degree = [deploy.tensor_parallel], deploy.tensor_parallel * 2
    while degree <= LARGEST_TENSOR_PARALLEL and degree * others <= domain:
        degrees.append(degree)
        degree *= 2
    return degrees


def _known_domain(part: HardwareSpec) -> int | None:
    return part.links.domain_devices if part.links else None


def _assumed_domain(part: HardwareSpec) -> tuple[str, ...]:
    return () if _known_domain(part) else (f"{ASSUMED_DOMAIN} devices in one link domain",)


def _unanswered(part: HardwareSpec, reason: str, assumed: tuple[str, ...] = ()) -> PartRow:
    return PartRow(part.id or part.name, False, None, None, None, None, None, None, "", None, (), assumed, reason)


def _line(row: PartRow) -> str:
    if row.devices is None or row.tpot_bound_s is None or row.margin_bytes is None:
        return f"no: {row.reason}"
    verdict = "fits" if row.fits else f"needs {row.devices} devices"
    missed = "".join(f", misses {name} even at the bound" for name in row.missed)
    spare = f"{format_bytes(row.margin_bytes)} to spare, TPOT bound {format_seconds(row.tpot_bound_s)}"
    assumed = "".join(f"; assuming {line}" for line in row.assumed)
    return f"{verdict}{missed}, {spare}, max batch {row.max_batch:,}{assumed}"
