"""Models by the name that a user gave: of language models alone, or of world models too."""

from __future__ import annotations

from capacity.catalog.hub import is_hub_id, shipped_under
from capacity.catalog.models import load_model, model_ids
from capacity.specs.world import Subject


def load_subject(name: str) -> Subject:
    """The model of a name, file or folder, or the shipped world model of a name.

    Raises
    ------
    CapacityError
        If there is none.
    """
    from capacity.catalog.worlds import load_world_model

    return load_world_model(name) if _is_world_model(name) else load_model(name)


def _is_world_model(name: str) -> bool:
    from capacity.catalog.worlds import world_model_ids

    if is_hub_id(name):
        return shipped_under(name, world_model_ids()) is not None
    return name in world_model_ids() and name not in model_ids()
