"""The shipped calibrations, and which of them covers a case."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from capacity.demand.placement import sixteen_bit
from capacity.specs.calibration import Calibration, Scope
from capacity.specs.deployment import AS_STORED, Deployment
from capacity.specs.hardware import HardwareSpec
from capacity.specs.model import Attention, Dense, LayerGroup, ModelSpec


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
    Whether it holds for the case is for `unlike_the_fit` and `measured` to say.
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


def unlike_the_fit(model: ModelSpec, hardware: HardwareSpec, deploy: Deployment) -> str | None:
    """How a case differs from what the reference decoder can run on the part as it stands; None where it does not.

    That decoder has gated dense feed-forwards and attention over all or the last keys; its cache is in the compute
    format, at 16 bit or more.
    """
    if hardware.assumed:
        return f"was fitted to the part as it stands, without replaced {', '.join(hardware.assumed)}"
    if deploy.overrides:
        return "was fitted to one weights and one cache format, without overrides"
    cache = sixteen_bit(deploy.activations)
    if deploy.kv_cache not in (None, cache):
        return f"was fitted to a {cache} cache, not {deploy.kv_cache}"
    stages = [stage for stage in model.stages if stage.role in ("decoder", "head")]
    if len(stages) > 1 or not all(_is_plain(group) for group in model.decoder.layers):
        return "was fitted to dense gated decoders with ordinary attention"
    return None


def _is_plain(group: LayerGroup) -> bool:
    mixer, forward = group.mixer, group.feed_forward
    attends = isinstance(mixer, Attention) and mixer.span in ("full", "sliding")
    return attends and isinstance(forward, Dense) and forward.gated


def measured(scope: Scope, batch: Any, context_tokens: Any) -> Any:
    """Whether each case lies in the range that was measured, in the broadcast shape of batch and context."""
    inside = np.logical_and(
        np.less_equal(batch, scope.largest_batch or np.inf),
        np.less_equal(context_tokens, scope.largest_context_tokens or np.inf),
    )
    return np.asarray(inside)


def told(found: Calibration) -> str:
    """What a reader must know of a calibration: its name and how far it missed what it was not fitted to."""
    error = found.hold_out
    if error is None:
        return f"calibration {found.name}: {len(found.points)} points, no hold-out"
    missed = f"mean absolute {error.mean_absolute:.1%}, p90 {error.p90:.1%}, worst {error.worst:.1%}"
    return f"calibration {found.name}: {error.points} points held out by {error.held_out_by}: {missed}"
