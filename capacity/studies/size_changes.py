"""What would make a model fit, or its tokens come faster: changes of a sizing, each sized as a case of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from capacity.estimate.case import Subject, check_specs
from capacity.inputs import check_each
from capacity.results import Result, Sizing
from capacity.specs.deployment import DEFAULT_DEPLOYMENT, Deployment
from capacity.specs.hardware import HardwareSpec
from capacity.specs.workload import Workload
from capacity.studies import what_if as shared
from capacity.studies.size import OperatingPoint, size_at, sized, workload_of
from capacity.studies.what_if import CACHE_FORMATS, FORMATS, Alternative, Change, Effect, NotEvaluated, Setup, attempts


@dataclass(frozen=True, repr=False, eq=False)
class WhatIf(Result):
    """A sizing, and what each change of it would give.

    ``cheapest`` is the cheapest change that fits and of which no bound misses an objective, None where the case itself
    does or no change does.
    """

    sizing: Sizing
    changes: tuple[Change, ...]
    not_evaluated: tuple[NotEvaluated, ...]
    cheapest: Change | None

    @property
    def holds(self) -> bool:
        """Whether the case as given fits and no bound misses an objective."""
        return self.sizing.fits and not self.sizing.missed


def what_if(
    model: Subject,
    hardware: HardwareSpec,
    workload: Workload | None = None,
    deploy: Deployment | None = None,
    *,
    formats: Sequence[str] = FORMATS,
    cache_formats: Sequence[str] = CACHE_FORMATS,
    parts: Sequence[HardwareSpec] = (),
) -> WhatIf:
    """Size one replica, and each change of it: narrower weights and cache, the fewest devices that do, other parts.

    Parameters
    ----------
    model : ModelSpec or WorldModelSpec
        The network.
    hardware : HardwareSpec
        The part.
    workload : Workload or None
        Requests, concurrency and objectives; the defaults of `Workload` without it.
    deploy : Deployment or None
        Number formats, parallelism and limits; the defaults of `Deployment` without it.
    formats : sequence of str
        Weight formats to try; those that are no narrower than the present one are left out.
    cache_formats : sequence of str
        Formats of the key-value cache to try, likewise.
    parts : sequence of HardwareSpec
        Other parts to try. A change that has no answer is listed as not evaluated.

    Returns
    -------
    WhatIf
        ``.sizing``, ``.changes`` (time saved per output token, verdict, memory, largest batch), ``.not_evaluated`` and
        ``.cheapest``. [s], [B], [sequence]

    Raises
    ------
    CapacityError
        If model, part, deployment and workload do not go together, or a format is unknown.

    Examples
    --------
    >>> import capacity as cap
    >>> model, part = cap.load_model("llama-3.3-70b"), cap.load_hardware("nvidia-h100-sxm5-80gb")
    >>> answer = cap.what_if(model, part, cap.Workload(concurrency=16), cap.Deployment(weights="bf16"))
    >>> [change.what for change in answer.changes if change.fits]
    ['weights in int4_g128', '4 devices']
    """
    deployment = DEFAULT_DEPLOYMENT if deploy is None else deploy
    check_specs(model, hardware, deployment)
    work = workload_of(model, workload)
    return what_if_at(
        Setup(model, hardware, deployment),
        OperatingPoint.of(work),
        work,
        workload_given=workload is not None,
        formats=formats,
        cache_formats=cache_formats,
        parts=parts,
    )


def what_if_at(
    now: Setup,
    at: OperatingPoint,
    workload: Workload,
    *,
    workload_given: bool = True,
    formats: Sequence[str] = FORMATS,
    cache_formats: Sequence[str] = CACHE_FORMATS,
    parts: Sequence[HardwareSpec] = (),
) -> WhatIf:
    """`what_if` at a given batch and contexts.

    Raises
    ------
    CapacityError
        As by `what_if`.
    """
    check_each("formats", formats, str)
    check_each("cache_formats", cache_formats, str)
    check_each("parts", parts, HardwareSpec)
    sizing = sized(now.subject, now.hardware, now.deploy, at, workload=workload, workload_given=workload_given)
    alternatives = _alternatives(now, sizing, formats, cache_formats, parts)
    changes, not_evaluated = shared.split_attempts(
        attempts(alternatives, lambda changed: _effect(sizing, changed, at, workload))
    )
    answer = WhatIf(sizing, changes, not_evaluated, None)
    return answer if answer.holds else replace(answer, cheapest=shared.cheapest(changes, ("met", "not excluded")))


def _alternatives(
    now: Setup,
    sizing: Sizing,
    formats: Sequence[str],
    cache_formats: Sequence[str],
    parts: Sequence[HardwareSpec],
) -> Iterator[Alternative]:
    yield from shared.in_formats(now, formats)
    yield from shared.in_cache_formats(now, cache_formats)
    if sizing.margin_bytes < 0:
        yield from shared.on_more_devices(now, sizing.enough)
    yield from shared.on_parts(now, parts)


def _effect(sizing: Sizing, changed: Setup, at: OperatingPoint, workload: Workload) -> Effect:
    """Another sizing in full, compared with the present one: bound with bound where one of them has no estimate."""
    other = size_at(changed.subject, changed.hardware, changed.deploy, at, workload=workload)
    now, then, limit_s = sizing.tpot, other.tpot, workload.max_tpot_s
    time_s = then.bound if then.value is None else then.value
    same_kind = now.value is not None and then.value is not None
    return Effect(
        time_s=time_s,
        saved_s=now.value - then.value if same_kind else now.bound - then.bound,
        margin_s=None if limit_s is None else limit_s - time_s,
        needed_bytes=other.heaviest.total_bytes,
        max_batch=other.max_batch,
        fits=other.fits,
        within=not other.missed,
        judged=not other.objectives,
    )
