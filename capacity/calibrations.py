"""The shipped calibrations, and which of them covers a case."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files

from capacity.specs.calibration import Calibration
from capacity.specs.deployment import AS_STORED, Deployment
from capacity.specs.hardware import HardwareSpec


@cache
def calibrations() -> tuple[Calibration, ...]:
    """Every calibration under ``data/calibrations``, by file name."""
    folder = files("capacity").joinpath("data/calibrations")
    found = sorted((item for item in folder.iterdir() if item.name.endswith(".toml")), key=lambda item: item.name)
    return tuple(
        Calibration.parse(row, where=item.name)
        for item in found
        for row in tomllib.loads(item.read_text(encoding="utf-8")).get("calibration", ())
    )


def calibration_for(deploy: Deployment, hardware: HardwareSpec, phase: str) -> Calibration | None:
    """The narrowest calibration of the engine, part, format and phase of this case; None when there is none.

    One that names the part beats one for a class of parts; one that names the weights format beats one for any.
    """
    fitting = [item for item in calibrations() if _covers(item, deploy, hardware, phase)]
    return max(fitting, key=lambda item: _narrowness(item), default=None)


def _covers(item: Calibration, deploy: Deployment, hardware: HardwareSpec, phase: str) -> bool:
    scope = item.scope
    if scope.engine != deploy.engine or scope.phase != phase or scope.launch_mode is not None:
        return False
    if deploy.devices > 1 or scope.device_class is None or not hardware.id.startswith(scope.device_class):
        return False
    return scope.weights in (None, deploy.weights) and deploy.weights != AS_STORED


def _narrowness(item: Calibration) -> tuple[int, bool]:
    return len(item.scope.device_class or ""), item.scope.weights is not None
