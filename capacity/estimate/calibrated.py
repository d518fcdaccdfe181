"""Which calibration covers a case, where it does not apply and why, and how far it can be trusted."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from capacity.arrays import ArrayLike, BoolArray
from capacity.catalog.calibrations import calibrations
from capacity.demand import feed_forwards, mixers
from capacity.demand.formats import sixteen_bit
from capacity.estimate.case import Case
from capacity.specs.calibration import Calibration, Scope
from capacity.specs.deployment import AS_STORED, Deployment
from capacity.specs.hardware import HardwareSpec


@lru_cache(maxsize=1024)
def calibration_for(case: Case, phase: str) -> Calibration | None:
    """The narrowest calibration whose scope holds this case and phase; None when there is none.

    One that names the part beats one for a class of parts; one that names the weights format beats one for any.
    Whether it holds for the case is for `reason_out_of_scope` and `within_calibrated_range` to say.
    """
    kind = "language" if case.world is None else "world"
    fitting = [item for item in calibrations() if item.scope.model_kind == kind and _covers(item.scope, case, phase)]
    return max(fitting, key=_narrowness, default=None)


def _covers(scope: Scope, case: Case, phase: str) -> bool:
    deploy = case.deploy
    if deploy.devices > 1 or scope.phase not in (None, phase) or scope.engine not in (None, deploy.engine):
        return False
    if not case.hardware.id.startswith(scope.device_class or ""):
        return False
    if scope.weights is not None and (deploy.weights == AS_STORED or scope.weights != deploy.weights):
        return False
    return scope.launch_mode in (None, deploy.launch_mode_of(phase))


def _narrowness(item: Calibration) -> tuple[int, bool]:
    return len(item.scope.device_class or ""), item.scope.weights is not None


def reason_out_of_scope(case: Case) -> str | None:
    """Why a calibration of the reference decoder does not apply, or None if it does.

    That decoder has gated dense feed-forwards and attention over all or the last keys; its cache is in the compute
    format, at 16 bit or more. A calibration of world models names launch modes and holds wherever those are.

    Parameters
    ----------
    case : Case
        Model, part and deployment.
    """
    if case.world is not None:
        return None
    return _part_reason(case.hardware) or _format_reason(case.deploy) or _model_reason(case)


def _part_reason(hardware: HardwareSpec) -> str | None:
    if hardware.assumed:
        return f"was fitted to the part as it stands, without replaced {', '.join(hardware.assumed)}"
    return None


def _format_reason(deploy: Deployment) -> str | None:
    if deploy.overrides:
        return "was fitted to one weights and one cache format, without overrides"
    cache = sixteen_bit(deploy.activations)
    if deploy.kv_cache not in (None, cache):
        return f"was fitted to a {cache} cache, not {deploy.kv_cache}"
    return None


def _model_reason(case: Case) -> str | None:
    stages = [stage for stage in case.model.stages if stage.role in ("decoder", "head")]
    layers = case.model.decoder.layers
    ordinary = all(
        mixers.of(group.mixer).is_ordinary(group.mixer)
        and feed_forwards.of(group.feed_forward).is_ordinary(group.feed_forward)
        for group in layers
    )
    if len(stages) > 1 or not ordinary:
        return "was fitted to dense gated decoders with ordinary attention"
    return None


def uncovered(case: Case, phases: Sequence[str]) -> str:
    """Why no calibration covers some phases of a case, as a note.

    Parameters
    ----------
    case : Case
        Model, part and deployment.
    phases : sequence of str
        Names of the phases.
    """
    deploy = case.deploy
    modes = {phase: deploy.launch_mode_of(phase) for phase in phases}
    without = [phase for phase, mode in modes.items() if mode is None]
    if deploy.devices > 1:
        reason = f"{deploy.devices} devices"
    elif without:
        reason = f"phases without a launch mode ({', '.join(without)})"
    else:
        reason = f"launch mode {', '.join(dict.fromkeys(map(str, modes.values())))}"
    return f"no estimate: no calibration covers {reason}"


def within_calibrated_range(scope: Scope, batch: ArrayLike, context_tokens: ArrayLike) -> BoolArray:
    """Whether each case is in the measured range, in the broadcast shape of batch and context.

    Parameters
    ----------
    scope : Scope
        Where the calibration holds, with the ends of its range.
    batch : array_like
        Sequences of the replica. [sequence]
    context_tokens : array_like
        Tokens of each. [token]
    """
    inside = np.logical_and(
        np.less_equal(batch, scope.largest_batch or np.inf),
        np.less_equal(context_tokens, scope.largest_context_tokens or np.inf),
    )
    return np.asarray(inside)


def describe(calibration: Calibration) -> str:
    """A calibration in words: its name, number of points and hold-out error.

    Parameters
    ----------
    calibration : Calibration
        Constants with their scope and hold-out error.
    """
    error = calibration.hold_out
    if error is None:
        return f"calibration {calibration.name}: {len(calibration.points)} points, no hold-out"
    missed = f"mean absolute {error.mean_absolute:.1%}, p90 {error.p90:.1%}, worst {error.worst:.1%}"
    return f"calibration {calibration.name}: {error.points} points held out by {error.held_out_by}: {missed}"
