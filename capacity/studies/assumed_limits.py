"""Whether a "does not fit" depends on assumed limits: the fraction of the memory, the chunk of a prefill."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

from capacity.results import RelaxedLimit
from capacity.specs.deployment import Deployment

LOOSE_LIMITS = {
    "memory_fraction": 1.0,
    "prefill_chunk_tokens": 512,
}  # 512: the pass of llama.cpp, smallest of the engines


def turned_by(deploy: Deployment, fits: Callable[[Deployment], bool]) -> tuple[RelaxedLimit, ...]:
    """The fewest assumed limits that, set differently, make the case fit; none where no such change does.

    Parameters
    ----------
    deploy : Deployment
        The deployment under which the case does not fit.
    fits : callable
        Whether the case fits under a deployment.
    """
    assumed = [name for name in LOOSE_LIMITS if name not in deploy.model_fields_set]
    for count in range(1, len(assumed) + 1):
        for names in combinations(assumed, count):
            if fits(deploy.replace(**{name: LOOSE_LIMITS[name] for name in names})):
                return tuple([RelaxedLimit(name, getattr(deploy, name), LOOSE_LIMITS[name]) for name in names])
    return ()
