"""Phases of one decision of a world model on a part: bound on datasheet ceilings, estimate by launch mode.

A decision is encode, prefill, then decode or denoise passes, then detokenise. Each pass follows the one latency
law; the constants come from a calibration of its launch mode, whose efficiencies are shares of the ceilings that
somebody measured on the part (`world_ceilings`), so that they carry over between parts.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from importlib.resources import files
from math import ceil
from numbers import Real

from capacity.catalog.calibrations import calibrations, told
from capacity.demand import memory
from capacity.demand.phases import Phase
from capacity.demand.placement import pieces
from capacity.errors import CapacityError, unknown_name
from capacity.estimate import time as evaluate
from capacity.formulas import latency
from capacity.inputs import check_kind, shown
from capacity.results import Decision, PhaseTime
from capacity.specs.base import LARGEST_COUNT
from capacity.specs.calibration import Calibration
from capacity.specs.deployment import Deployment
from capacity.specs.hardware import HardwareSpec
from capacity.specs.model import ModelSpec
from capacity.specs.world import WorldModelSpec
from capacity.supply.ceilings import Ceilings, achieved_flop_per_s, bound_ceilings

ENGINE = "world"


def decide(
    phases: Sequence[Phase],
    hardware: HardwareSpec,
    deploy: Deployment,
    *,
    launch_mode: str | Mapping[str, str] | None = None,
) -> Decision:
    """Bound and, with a launch mode, estimate of one decision.

    Parameters
    ----------
    phases : sequence of Phase
        In the order in which they run.
    hardware : HardwareSpec
        The part.
    deploy : Deployment
        Number formats; one device.
    launch_mode : str, mapping or None
        ``eager``, ``compiled``, ``graph`` or ``tuned`` for all phases, or by phase name with ``default``.

    Raises
    ------
    CapacityError
        If there is no phase, a phase has no pass, or the launch mode is unknown.
    """
    if not phases:
        raise CapacityError("a decision needs at least one phase")
    for phase in phases:
        if phase.passes < 1:
            raise CapacityError(f"phase {phase.name!r} has {phase.passes} passes; at least 1 is allowed")
    modes = launch_mode if isinstance(launch_mode, Mapping) else {"default": launch_mode}
    sheet = bound_ceilings(hardware, deploy, {item.term.compute_format for phase in phases for item in phase.done})
    times = tuple(_time(phase, hardware, sheet, modes.get(phase.name, modes.get("default"))) for phase in phases)
    return _summed(times, hardware, sheet)


def _summed(times: tuple[PhaseTime, ...], hardware: HardwareSpec, sheet: Ceilings) -> Decision:
    bound = sum(time.bound_s for time in times)
    estimated = [
        (time.value_s, world_calibration(time.launch_mode)) for time in times if time.value_s and time.launch_mode
    ]
    if len(estimated) < len(times):
        return Decision(times, bound, None, None, None, "computed", sheet.notes)
    value = sum(value for value, _ in estimated)
    low = max(bound, sum(value * found.band_low for value, found in estimated))
    high = sum(value * found.band_high for value, found in estimated)
    notes = (*sheet.notes, *dict.fromkeys(told(found) for _, found in estimated), *ceiling_notes(hardware))
    return Decision(times, bound, value, low, high, "calibrated", notes)


def _time(phase: Phase, hardware: HardwareSpec, sheet: Ceilings, mode: str | None) -> PhaseTime:
    done = list(phase.done)
    moved = evaluate.charged_bytes(done, sheet.cache_bytes)
    rows = evaluate.operator_times(done, moved, sheet)
    name, row = max(rows.items(), key=lambda item: float(item[1].bound_s))
    resource = "compute" if row.compute_s > row.memory_s else "memory"
    bound_s = float(phase.passes * sum(item.bound_s for item in rows.values()))
    law_s = None if mode is None else phase.passes * pass_s(phase, world_ceilings(hardware, sheet), mode)
    return PhaseTime(
        name=phase.name,
        passes=phase.passes,
        flop=phase.flop,
        moved_bytes=phase.moved_bytes,
        launches=phase.launches,
        bound_s=bound_s,
        bound_by=f"{name}, {resource}",
        memory_s=float(phase.passes * sum(item.memory_s for item in rows.values())),
        compute_s=float(phase.passes * sum(item.compute_s for item in rows.values())),
        launch_mode=mode,
        value_s=None if law_s is None else max(bound_s, law_s),
    )


def pass_s(phase: Phase, ceilings: Ceilings, mode: str | Calibration) -> float:
    """Estimate of one pass: the latency law with the constants of a launch mode. [s]"""
    found = world_calibration(mode) if isinstance(mode, str) else mode
    operators = sum(
        latency.operator_s(
            item.moved_bytes,
            item.flop,
            bytes_per_s=ceilings.bytes_per_s,
            flop_per_s=ceilings.flop_per_s[item.term.compute_format],
            memory_efficiency=found.memory_efficiency["default"],
            flop_efficiency=found.flop_efficiency["default"],
        )
        for item in phase.done
    )
    return float(
        latency.step_s(
            operators,
            layers=phase.layers,
            layer_s=found.layer_s,
            launches=sum(item.term.launches for item in phase.done),
            launch_s=found.launch_s,
            sequences=0,
            sequence_s=0.0,
            comm_s=0.0,
            host_floor_s=found.host_floor_s,
            prefill_share=0.0,
        )
    )


def world_ceilings(hardware: HardwareSpec, sheet: Ceilings) -> Ceilings:
    """Measured ceilings of a part; what nobody measured is the datasheet figure times a typical share.

    A format without a measured rate takes the measured share of bf16 on the same part, if there is one.
    """
    typical, measured = typical_shares(), hardware.measured
    read = measured.read_bytes_per_s or measured.gemv_bytes_per_s or measured.read_bytes_per_s_typical
    sixteen, sixteen_peak = achieved_flop_per_s(hardware, "bf16"), hardware.peak_flop_per_s.get("bf16")
    share = min(1.0, sixteen / sixteen_peak) if sixteen and sixteen_peak else typical["flop"]
    rates = {}
    for name in sheet.flop_per_s:
        known = hardware.peak_flop_per_s.get(name, sheet.flop_per_s[name])
        rates[name] = achieved_flop_per_s(hardware, name) or share * known
    return Ceilings(read or typical["memory"] * hardware.memory.bytes_per_s, rates, 0.0, 0)


def ceiling_notes(hardware: HardwareSpec) -> tuple[str, ...]:
    """Which ceilings of a part are typical shares because nobody measured them."""
    measured, notes = hardware.measured, []
    if not (measured.read_bytes_per_s or measured.gemv_bytes_per_s or measured.read_bytes_per_s_typical):
        notes.append(f"nobody measured how fast {hardware.name} reads: a typical share of its datasheet stands in")
    if achieved_flop_per_s(hardware, "bf16") is None:
        notes.append(f"no measured bf16 rate for {hardware.name}: a typical share of its datasheet stands in")
    return tuple(notes)


@cache
def typical_shares() -> dict[str, float]:
    """Median share of datasheet bandwidth and bf16 peak that the catalogue's measured parts reach. [1]"""
    text = files("capacity").joinpath("data/calibrations/world.toml").read_text(encoding="utf-8")
    found = tomllib.loads(text)["typical_share"]
    return {"memory": found["memory"], "flop": found["flop"]}


def launch_modes() -> tuple[str, ...]:
    """Launch modes that have a world calibration."""
    return tuple(item.scope.launch_mode or "" for item in calibrations() if item.scope.engine == ENGINE)


def world_calibration(mode: str) -> Calibration:
    """The calibration of a launch mode.

    Raises
    ------
    CapacityError
        If there is none.
    """
    for item in calibrations():
        if item.scope.engine == ENGINE and item.scope.launch_mode == mode:
            return item
    raise CapacityError(unknown_name("launch mode", str(mode), launch_modes()))


def check_case(world: WorldModelSpec, hardware: HardwareSpec, deploy: Deployment, launch_mode: str | None) -> None:
    """Refuse arguments of a wrong kind before anything looks into them."""
    check_kind("world", world, WorldModelSpec)
    check_kind("hardware", hardware, HardwareSpec)
    check_kind("deploy", deploy, Deployment)
    check_kind("launch_mode", launch_mode, str, none=True)


def usable_bytes(hardware: HardwareSpec, deploy: Deployment, taken_bytes: float) -> int:
    """Memory of one device for a model's decisions, less what other programs hold. [B]

    Raises
    ------
    CapacityError
        If ``taken_bytes`` is no number, negative or above 2^62.
    """
    if not isinstance(taken_bytes, Real) or isinstance(taken_bytes, bool) or not 0 <= taken_bytes <= 2**62:
        raise CapacityError(f"taken_bytes must be a number of bytes from 0 to 2^62, got {shown(taken_bytes)}")
    return evaluate.usable_bytes(hardware, deploy) - ceil(taken_bytes)


def held_bytes(world: WorldModelSpec, deploy: Deployment, *, batch: int) -> dict[str, int]:
    """Memory of one device by what holds it: weights by stage, cache, state, activations, resident parts. [B]

    What is offloaded is left out. Activations are those of the largest pass.
    """
    held: dict[str, int] = {}
    for piece in pieces(world.model, deploy):
        if piece.module.stored and world.on_device(piece.module.stage, piece.module.name):
            name = f"weights: {piece.module.stage}"
            held[name] = held.get(name, 0) + piece.total_bytes
    context = world.prompt_tokens + world.answer_tokens
    held["kv cache"] = batch * cache_bytes(world, deploy, context)
    held["state"] = batch * memory.sequence_state_bytes(world.model, deploy, 0)
    held["activations"] = activation_bytes(world, deploy, batch=batch)
    held |= {part.name: part.held_bytes for part in world.residents if not part.offloaded}
    return {name: size for name, size in held.items() if size}


def cache_bytes(world: WorldModelSpec, deploy: Deployment, context_tokens: int) -> int:
    """Key-value cache of one robot or session; a model without a core keeps none. [B]"""
    if world.core is None:
        return 0
    return int(memory.sequence_cache_bytes(world.model, deploy, context_tokens=context_tokens, rank=0))


def activation_bytes(world: WorldModelSpec, deploy: Deployment, *, batch: int) -> int:
    """Activation peak of the largest pass of a decision; a prompt or a batch of images goes through in one. [B]"""
    whole = deploy.replace(prefill_chunk_tokens=LARGEST_COUNT)
    return max(
        int(memory.activation_bytes(_alone(world, stage), whole, rank_batch=batch * sequences, tokens=tokens))
        for stage, sequences, tokens in _passes(world)
    )


def _passes(world: WorldModelSpec) -> Iterator[tuple[str, int, int]]:
    """Stage, sequences and tokens of each of one robot's or session's largest passes. [sequence], [token]"""
    head, slots = world.head, world.answer_tokens if world.head.kind == "parallel" else 0
    for encoder in world.encoders:
        yield encoder.stage, world.views * encoder.tokens.sequences(world.frames), encoder.tokens.encoder_tokens
    if world.core is not None:
        yield world.core, 1, world.prompt_tokens + slots
    if head.stage is not None and head.kind == "planner":
        yield head.stage, head.samples, world.image_tokens + head.extra_tokens
    elif head.stage is not None:
        yield head.stage, 1, head.chunk_actions + head.extra_tokens
    if world.detokenizer is not None:
        yield world.detokenizer.stage, 1, world.detokenizer.tokens.encoder_tokens


@lru_cache(maxsize=512)
def _alone(world: WorldModelSpec, stage: str) -> ModelSpec:
    """One stage as a model of its own; only the core has an output vocabulary to sample from."""
    vocabulary = world.model.vocabulary if stage == world.core else 0
    return world.model.model_copy(update={"stages": (world.stage(stage),), "vocabulary": vocabulary})
