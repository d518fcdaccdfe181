"""Arguments of the public functions, refused before anything looks into them where they are of a wrong kind."""

from __future__ import annotations

from typing import Any

from capacity.engines.builder import memory_table
from capacity.engines.settings import with_settings
from capacity.engines.table import MemoryTable
from capacity.estimate.case import Case, check, check_specs, prepare
from capacity.inputs import check_kind
from capacity.specs.deployment import Deployment
from capacity.specs.model import ModelSpec
from capacity.specs.world import Subject, WorldModelSpec


def checked_table(model: Any, deploy: Any) -> MemoryTable:
    """The memory table, after refusing arguments of a wrong kind and a deployment that the model cannot have."""
    if not isinstance(model, WorldModelSpec):
        check_kind("model", model, ModelSpec)
    check_kind("deploy", deploy, Deployment)
    check(model, deploy)
    return memory_table(model, with_settings(model, deploy))


def checked_case(model: Any, hardware: Any, deploy: Any) -> Case:
    """The case, after refusing arguments of a wrong kind and a deployment that the model cannot have."""
    check_specs(model, hardware, deploy)
    return prepare(model, hardware, deploy)


def check_keeps_context(subject: Subject) -> None:
    """Refuse a question about a context of a network that keeps none, or of the bare network of a world model.

    Raises
    ------
    CapacityError
        Naming what it lacks and what to ask instead.
    """
    _ = subject.model.decoder if isinstance(subject, WorldModelSpec) else subject.language_decoder
