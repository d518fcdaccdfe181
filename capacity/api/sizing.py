"""One replica sized."""

from __future__ import annotations

from capacity.estimate.case import check_specs
from capacity.inputs import check_kind
from capacity.results import Sizing
from capacity.specs.deployment import DEFAULT_DEPLOYMENT, Deployment
from capacity.specs.hardware import HardwareSpec
from capacity.specs.workload import Workload
from capacity.specs.world import Subject
from capacity.studies import size as study


def size(
    model: Subject,
    hardware: HardwareSpec,
    workload: Workload | None = None,
    deploy: Deployment | None = None,
) -> Sizing:
    """Size one replica: does it fit, what limits it, and how fast can it be [1]_.

    Memory is judged at prompt + output tokens, TPOT at prompt + output / 2, TTFT for one prompt at batch 1.

    Parameters
    ----------
    model : ModelSpec or WorldModelSpec
        The network; the prompt of a world model is its own, and so is its answer unless the workload gives another.
    hardware : HardwareSpec
        The part.
    workload : Workload or None
        Tokens per request, concurrency and objectives; without one those of ``Workload()``, listed as assumptions.
    deploy : Deployment or None
        Number formats, parallelism and memory limit; without one those of ``Deployment()``.

    Returns
    -------
    Sizing
        ``.fits``, ``.verdict`` and ``.binding``; ``.ledger`` (every distinct device), ``.margin_bytes`` and
        ``.weight_bytes`` [B per device]; ``.max_batch`` [sequence], ``.max_context_tokens`` [token] and what bounds it;
        ``.tpot``, ``.ttft`` and ``.request_bound_s`` [s]; ``.tokens_per_s_bound`` [token/s per replica, in decode];
        ``.ridge_flop_per_byte`` and ``.intensity_flop_per_byte`` [FLOP/B];
        ``.objectives``, ``.evidence``, ``.assumed``,
        ``.notes`` and ``.not_modelled``.

    Raises
    ------
    CapacityError
        If model, part, deployment and workload do not go together.

    Examples
    --------
    >>> import capacity as cap
    >>> sizing = cap.size(cap.load_model("llama-3-8b"), cap.load_hardware("nvidia-h100-sxm5-80gb"))
    >>> sizing.fits, sizing.max_batch
    (True, 197)

    References
    ----------
    .. [1] Figures and their sources are those of `max_batch`, `max_context`, `tpot`, `ttft` and `request_latency`.
    """
    check_kind("workload", workload, Workload, none=True)
    deployment = DEFAULT_DEPLOYMENT if deploy is None else deploy
    check_specs(model, hardware, deployment)
    return study.size(model, hardware, workload, deployment)
