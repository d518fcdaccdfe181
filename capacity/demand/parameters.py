"""Parameters of a model, counted off the weight table."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from capacity.demand.modules import modules
from capacity.demand.weights import Module
from capacity.specs.base import FrozenMapping
from capacity.specs.model import ModelSpec


@dataclass(frozen=True, slots=True)
class ParameterCount:
    """Parameters of a model. ``active`` is the total less the experts that are not used per token; with the embedding.

    ``read_per_token`` is what one decode step at batch 1 reads: the output head but not the rows of the input
    table, unless the two are tied.
    """

    total: int
    active: int
    read_per_token: int
    embedding: int
    lm_head: int
    by_module: FrozenMapping[str, int]


@lru_cache(maxsize=512)
def parameter_count(model: ModelSpec) -> ParameterCount:
    """Count every parameter once; tied and shared tensors are not counted again. Shape: scalars. [parameter]

    Raises
    ------
    CapacityError
        If there are more than 10^15.

    References
    ----------
    Llama-3-8B: 8,030,261,248 (transformers 5.24.0, built on the meta device).
    """
    stored = [module for module in modules(model) if module.stored]
    by_module: dict[str, int] = {}
    for module in stored:
        key = module.operator if module.part != "norm" else "norm"
        key = module.part if module.part in ("embedding", "lm_head", "vision") else key
        by_module[key] = by_module.get(key, 0) + module.parameters
    total = sum(module.parameters for module in stored)
    idle = sum(m.parameters - m.parameters * m.used // m.copies for m in stored if m.copies > 1)
    return ParameterCount(
        total=total,
        active=total - idle,
        read_per_token=sum(_read_parameters(module) for module in modules(model)),
        embedding=by_module.get("embedding", 0),
        lm_head=by_module.get("lm_head", 0),
        by_module=FrozenMapping(by_module),
    )


def _read_parameters(module: Module) -> int:
    if module.read != "whole" or module.part == "vision":
        return 0
    return module.parameters * module.used // module.copies
