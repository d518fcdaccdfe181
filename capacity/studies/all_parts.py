"""Which part for my case: one model, deployment and workload on every part, those that fit first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from capacity.errors import CapacityError
from capacity.results import Result
from capacity.specs.deployment import Deployment
from capacity.specs.hardware import HardwareSpec
from capacity.specs.model import ModelSpec
from capacity.specs.workload import Workload
from capacity.studies.sizing import At, size_at
from capacity.units import format_bytes, format_seconds

LARGEST_TENSOR_PARALLEL = 64


@dataclass(frozen=True)
class PartRow:
    """One part: the fewest devices on which the case fits, and limits and bounds there; or why there is no answer.

    ``fits`` is the verdict on the devices that were asked for; ``devices`` is None where no tensor parallelism
    of at most 64 devices in one link domain fits. Bounds are those on ``devices``.
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
    reason: str


@dataclass(frozen=True, repr=False)
class PartTable(Result):
    """A model on many parts, parts that fit first, then by the bound on TPOT."""

    model: str
    rows: tuple[PartRow, ...]

    def table(self) -> list[tuple[str, str]]:
        return [(row.part, _line(row)) for row in self.rows]


def size_on_all_parts(
    model: ModelSpec, parts: Iterable[HardwareSpec], deploy: Deployment, at: At, *, workload: Workload
) -> PartTable:
    """Size ``model`` on each of ``parts``; where it does not fit, on the fewest devices of that part.

    A part that cannot answer (no path for the format, no memory size) keeps its reason. Numbers are judged as in
    `capacity.studies.sizing.size_at`.
    """
    rows = [_row(model, part, deploy, at, workload) for part in parts]
    return PartTable(model.name, tuple(sorted(rows, key=_order)))


def _order(row: PartRow) -> tuple[Any, ...]:
    unanswered = row.devices is None
    return (unanswered, not row.fits, row.devices or 0, row.tpot_bound_s or 0.0, row.part)


def _row(model: ModelSpec, part: HardwareSpec, deploy: Deployment, at: At, workload: Workload) -> PartRow:
    reason, asked_fits = "no tensor parallelism within one link domain fits", None
    for degree in _degrees(part, deploy):
        try:
            case = deploy.replace(tensor_parallel=degree)
            sizing = size_at(model, part, case, at, workload=workload)
        except CapacityError as error:
            if asked_fits is None and degree == deploy.tensor_parallel:
                return _unanswered(part, str(error))
            continue
        asked_fits = sizing.fits if asked_fits is None else asked_fits
        if not sizing.fits:
            reason = sizing.binding
            continue
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
            reason="",
        )
    return _unanswered(part, reason)


def _degrees(part: HardwareSpec, deploy: Deployment) -> list[int]:
    """The degree asked for, then its doubles as far as the link of the part reaches."""
    others = deploy.pipeline_parallel * deploy.data_parallel
    domain = (part.links.domain_devices if part.links else None) or 8
    degrees, degree = [deploy.tensor_parallel], deploy.tensor_parallel * 2
    while degree <= LARGEST_TENSOR_PARALLEL and degree * others <= domain:
        degrees.append(degree)
        degree *= 2
    return degrees


def _unanswered(part: HardwareSpec, reason: str) -> PartRow:
    return PartRow(part.id or part.name, False, None, None, None, None, None, None, "", None, reason)


def _line(row: PartRow) -> str:
    if row.devices is None or row.tpot_bound_s is None or row.margin_bytes is None:
        return f"no: {row.reason}"
    verdict = "fits" if row.fits else f"needs {row.devices} devices"
    spare = format_bytes(row.margin_bytes)
    return f"{verdict}, {spare} to spare, TPOT bound {format_seconds(row.tpot_bound_s)}, max batch {row.max_batch:,}"
