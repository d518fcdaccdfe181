"""How one serving engine, in a range of versions, allocates memory: named policies and constants, with sources."""

from __future__ import annotations

from capacity.specs.base import FrozenMapping, NonNegative, Source, Spec


class EngineSpec(Spec):
    """Named allocation policies (the names of ``estimators/engine_memory.py``) and the constants they take."""

    name: str
    first_version: str | None = None
    before_version: str | None = None
    policies: FrozenMapping[str, str] = FrozenMapping()
    constants: FrozenMapping[str, NonNegative] = FrozenMapping()
    sources: tuple[Source, ...] = ()
