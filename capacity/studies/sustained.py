"""What a replica keeps up when prefill and decode of its requests share it, within objectives and at arrivals."""

from __future__ import annotations

from capacity.estimate.assumptions import assumptions
from capacity.estimate.case import check_specs, prepare
from capacity.inputs import check_kind
from capacity.specs.deployment import DEFAULT_DEPLOYMENT, Deployment
from capacity.specs.hardware import HardwareSpec
from capacity.specs.workload import Workload
from capacity.specs.world import Subject
from capacity.studies.provenance import workload_assumptions
from capacity.studies.size import workload_of
from capacity.studies.steady import Steady
from capacity.studies.sustained_result import Sustained


def sustained(
    model: Subject, hardware: HardwareSpec, workload: Workload | None = None, deploy: Deployment | None = None
) -> Sustained:
    """Rates that one replica keeps up, the largest concurrency within objectives, and whether an arrival rate is held.

    Parameters
    ----------
    model : ModelSpec or WorldModelSpec
        The network.
    hardware : HardwareSpec
        The part.
    workload : Workload or None
        Tokens per request, concurrency, objectives (``max_ttft_s``, ``max_tpot_s``) and ``requests_per_s`` with its
        ``percentile``; without one those of ``Workload()``, listed as assumptions.
    deploy : Deployment or None
        Number formats, parallelism and memory limit; without one those of ``Deployment()``.

    Returns
    -------
    Sustained
        ``.at_concurrency`` and ``.largest`` with ``.requests_per_s``, ``.tokens_per_s`` (output tokens), ``.tpot_s``
        that a user sees, prefill of others included, and ``.ttft_s``, each with ``.bound``, ``.roofline``,
        ``.attainable`` and ``.value``; ``.ended_by``; ``.arrivals``. [1/s], [token/s], [s]

    Raises
    ------
    CapacityError
        If model, part, deployment and workload do not go together.

    Examples
    --------
    >>> import capacity as cap
    >>> work = cap.Workload(prompt_tokens=8192, output_tokens=128, concurrency=32)
    >>> model, part = cap.load_model("llama-3.1-8b"), cap.load_hardware("nvidia-h100-sxm5-80gb")
    >>> found = cap.sustained(model, part, work, cap.Deployment(weights="bf16", activations="bf16"))
    >>> round(found.at_concurrency.tokens_per_s.roofline)
    665
    """
    deployment = DEFAULT_DEPLOYMENT if deploy is None else deploy
    check_kind("workload", workload, Workload, none=True)
    check_specs(model, hardware, deployment)
    load = workload_of(model, workload)
    steady = Steady(prepare(model, hardware, deployment), load)
    at_concurrency = steady.rates(load.concurrency)
    largest, ended_by = steady.largest()
    return Sustained(
        model=model.name,
        part=hardware.name,
        devices=deployment.devices,
        prompt_tokens=load.prompt_tokens,
        output_tokens=load.output_tokens,
        fits=load.concurrency <= steady.max_batch,
        at_concurrency=at_concurrency,
        largest=steady.rates(largest) if largest else None,
        ended_by=ended_by,
        rests_on=steady.rests_on,
        max_ttft_s=load.max_ttft_s,
        max_tpot_s=load.max_tpot_s,
        arrivals=steady.arrivals(),
        evidence=steady.evidence(),
        assumed=(*assumptions(model, deployment), *workload_assumptions(load, workload_given=bool(workload))),
        notes=tuple(steady.notes()),
    )
