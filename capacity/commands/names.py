"""Models by the name that a user gave, for commands that take no world model."""

from __future__ import annotations

from capacity.catalog.parts import load_model, model_ids
from capacity.errors import CapacityError
from capacity.specs.model import ModelSpec


def model_named(name: str) -> ModelSpec:
    """The model of a name, file or folder.

    Raises
    ------
    CapacityError
        If there is none, or the name is that of a world model, which another command takes.
    """
    from capacity.catalog.worlds import world_model_ids

    if name in world_model_ids() and name not in model_ids():
        raise CapacityError(f"{name} is a world model: use capacity control {name} PART")
    return load_model(name)
