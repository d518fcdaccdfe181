"""The sheet of each kind of result, one file per subject; a file is imported when a result of it is shown."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from capacity.presentation.sheet import Sheet

_BUILDERS = {  # by the class of the result: its file, and the function there
    "Sizing": ("sizing", "sizing_sheet"),
    "WhatIf": ("sizing", "what_if_sheet"),
    "Ledger": ("sizing", "ledger_sheet"),
    "ActivationMoments": ("moments", "moments_sheet"),
    "Estimate": ("estimate", "estimate_sheet"),
    "Sustained": ("sustained", "sustained_sheet"),
    "PartTable": ("parts", "part_table_sheet"),
    "Decision": ("decision", "decision_sheet"),
    "ControlPlan": ("control", "control_sheet"),
    "FramePlan": ("frames", "frames_sheet"),
    "ReferenceCheck": ("reference", "reference_sheet"),
    "WorldValidation": ("published_world", "world_sheet"),
    "PublishedSpeed": ("published_speed", "speed_sheet"),
    "PublishedMemory": ("published_memory", "memory_sheet"),
    "Start": ("engine", "start_sheet"),
    "Observation": ("observation", "observation_sheet"),
}


def sheet_of(result: Any) -> Sheet:
    """The sheet of a result.

    Raises
    ------
    TypeError
        If no sheet is made for results of this class.
    """
    name = type(result).__name__
    if name not in _BUILDERS:
        raise TypeError(f"no sheet is made for {name}; there is one for {', '.join(_BUILDERS)}")
    file, function = _BUILDERS[name]
    sheet: Sheet = getattr(import_module(f"capacity.presentation.sheets.{file}"), function)(result)
    return sheet
