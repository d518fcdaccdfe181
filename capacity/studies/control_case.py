"""A world model on a part for some robots: what `control` and its changes evaluate, each as a case of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from numbers import Real

import numpy as np

from capacity.arrays import ArrayLike, BoolArray, FloatArray
from capacity.demand.decisions import decision_phases
from capacity.demand.stage_phase import Phase
from capacity.engines.budget import Budget
from capacity.engines.runtime import runtime_bytes
from capacity.errors import CapacityError
from capacity.estimate import memory
from capacity.estimate.attainable import attainable_by_phase
from capacity.estimate.calibrated import uncovered
from capacity.estimate.case import Case, prepare
from capacity.estimate.decision import decide, decision_s
from capacity.estimate.time import arithmetic_of
from capacity.inputs import shown
from capacity.results import Decision, MemoryVerdict
from capacity.specs.base import FrozenMapping
from capacity.specs.deployment import Deployment, LaunchMode
from capacity.specs.hardware import HardwareSpec
from capacity.specs.world import WorldModelSpec

ASSUMED_LAUNCH_MODE: LaunchMode = "graph"


@dataclass(frozen=True)
class ControlCase:
    """What a decision and its memory depend on. [B], [robot]"""

    world: WorldModelSpec
    hardware: HardwareSpec
    deploy: Deployment
    taken_bytes: int
    robots: int

    @cached_property
    def case(self) -> Case:
        """The prepared case."""
        return prepare(self.world, self.hardware, self.deploy)

    @property
    def decision(self) -> Decision:
        """One decision for all robots in one batch."""
        return decide(self.case, self.phases(self.robots))

    def phases(self, robots: int | range) -> tuple[Phase, ...]:
        """The phases of one decision for a number of robots, or for each of several numbers."""
        return _phases(self.world, self.deploy, robots)

    def decisions_s(self, robots: int | range) -> tuple[FloatArray, bool]:
        """Time of one decision for each number of robots, and whether it is an estimate or the bound. [s]"""
        return decision_s(self.case, self.phases(robots))

    def needed_bytes(self, robots: int) -> int:
        """Memory of one device with this many robots. [B]"""
        return int(memory.heaviest_bytes(self.case.memory, self.deploy, batch=robots, context_tokens=self.context))

    @cached_property
    def context(self) -> int:
        """Context at which memory is judged: prompt and answer. [token]"""
        return self.world.prompt_tokens + self.world.answer_tokens

    @cached_property
    def budget(self) -> Budget:
        """What the engine may plan with, less what other programs hold."""
        return self.case.budget.less(self.taken_bytes)

    @property
    def usable_bytes(self) -> int:
        """Memory of one device for decisions, less what other programs hold. [B]"""
        return self.budget.planned_bytes()

    @property
    def left_bytes(self) -> int:
        """What neither the robots nor other programs take of the device. [B]"""
        return self.budget.capacity_bytes - self.budget.reserved_bytes - self.needed_bytes(self.robots)

    @property
    def runtime_bytes(self) -> int:
        """What a process takes that is in none of the counted uses. [B]"""
        return runtime_bytes(self.hardware, self.deploy, taken_bytes=self.taken_bytes)

    @property
    def memory_verdict(self) -> MemoryVerdict:
        """Tight where all that is counted fits, and the rest is less than the runtime needs."""
        if not self.fits(self.robots):
            return "does not fit"
        return "tight" if self.left_bytes < self.runtime_bytes else "fits"

    def fits(self, robots: ArrayLike) -> BoolArray:
        """Whether each number of robots fits in memory."""
        case = self.case
        return memory.fits(case.memory, self.budget, self.deploy, batch=robots, context_tokens=self.context)


@lru_cache(maxsize=1024)
def _phases(world: WorldModelSpec, deploy: Deployment, robots: int | range) -> tuple[Phase, ...]:
    """The phases of decisions, cached: they depend on no part, period or jitter."""
    batch = np.asarray(robots) if isinstance(robots, range) else robots
    return decision_phases(world, deploy, batch=batch)


def whole_bytes(taken_bytes: float) -> int:
    """Memory that other programs hold. [B]

    Raises
    ------
    CapacityError
        If it is no whole number from 0 to 2^62.
    """
    a_number = isinstance(taken_bytes, Real) and not isinstance(taken_bytes, bool)
    if not a_number or not 0 <= taken_bytes <= 2**62 or taken_bytes != int(taken_bytes):
        raise CapacityError(f"taken_bytes must be a whole number of bytes from 0 to 2^62, got {shown(taken_bytes)}")
    return int(taken_bytes)


def with_launch_mode(deploy: Deployment, *, bound_only: bool) -> tuple[Deployment, list[str]]:
    """The deployment with a launch mode, and the assumption that this makes; without one where the bound is asked for.

    Raises
    ------
    CapacityError
        If a launch mode is given and only the bound is to be judged.
    """
    if bound_only and deploy.launch_mode is not None:
        raise CapacityError("bound_only judges no launch mode; leave launch_mode out of the deployment")
    if bound_only or deploy.launch_mode is not None:
        return deploy, []
    return _graphed(deploy, frozenset(deploy.model_fields_set)), [f"launch_mode = {ASSUMED_LAUNCH_MODE}"]


@lru_cache(maxsize=256)
def _graphed(deploy: Deployment, fields_set: frozenset[str]) -> Deployment:
    """The deployment in the assumed launch mode; one object for equal deployments, which caches then find at once."""
    return deploy.replace(launch_mode=ASSUMED_LAUNCH_MODE)


def check_launch_mode(deploy: Deployment, phases: Sequence[Phase]) -> None:
    """Refuse a launch mode of a phase that the decision does not have.

    Raises
    ------
    CapacityError
        Naming the phase, and those that there are.
    """
    modes = deploy.launch_mode
    phase_names = [phase.name for phase in phases]
    for name in modes if isinstance(modes, FrozenMapping) else ():
        if name not in (*phase_names, "default", "verify"):
            raise CapacityError(f"launch_mode names phase {name!r}; this model has {', '.join(phase_names)}")


def with_attainable(case: Case, phases: Sequence[Phase], decision: Decision) -> Decision:
    """The decision with its time on measured ceilings, and what to know of those."""
    phase_times, notes = attainable_by_phase(case, phases, arithmetic_of(phases))
    remarks = tuple(dict.fromkeys((*decision.notes, *notes)))
    if not phase_times:
        return replace(decision, notes=remarks)
    times = [float(time_s) for time_s in phase_times]
    reached = [replace(phase, attainable_s=time_s) for phase, time_s in zip(decision.phases, times, strict=True)]
    return replace(decision, phases=tuple(reached), attainable_s=sum(times), notes=remarks)


def world_notes(case: Case, decision: Decision, *, bound_only: bool) -> tuple[str, ...]:
    """What to know of the world model, and why there is no estimate where one was asked for."""
    subject = case.subject
    notes = [*subject.notes]
    if decision.value_s is None and not bound_only:
        notes.append(f"{uncovered(case, [phase.name for phase in decision.phases])}; the bound alone is judged")
    return tuple(notes)
