"""The engines whose allocation is known, by name."""

from __future__ import annotations

from functools import cache

from capacity.errors import CapacityError, unknown_name
from capacity.files import package_data
from capacity.specs.engine import EngineSpec

FOLDER = "data/engines"


def engine_ids() -> tuple[str, ...]:
    """Names of all engines, sorted."""
    return package_data.names(FOLDER, ".toml")


@cache
def load_engine(name: str) -> EngineSpec:
    """The engine called ``name``.

    Raises
    ------
    CapacityError
        If there is none; the nearest names are given.
    """
    if name not in engine_ids():
        raise CapacityError(unknown_name("engine", name, engine_ids()))
    return EngineSpec.parse(package_data.toml(f"{FOLDER}/{name}.toml"), where=f"{name}.toml")
