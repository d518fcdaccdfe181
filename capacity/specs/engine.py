"""How one serving engine allocates the memory of a device: names of policies, with sources."""

from __future__ import annotations

from capacity.specs.base import Source, Spec


class Policies(Spec):
    """Names of allocation policies; each is a function of ``capacity/engines``."""

    budget: str
    cache: str
    activations: str


class EngineSpec(Spec):
    """One engine, as ``data/engines`` describes it."""

    name: str
    description: str
    policies: Policies
    sources: tuple[Source, ...]
