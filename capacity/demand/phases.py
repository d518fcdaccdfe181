"""The phases of one decision of a world model: encode, prefill, then decode, denoise or plan, then detokenise.

A head that cross-attends to what the core made has a phase "project" before it denoises: its keys and values of that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from capacity.demand.encoders import encoder_pass
from capacity.demand.passes import source_pass, stage_pass
from capacity.demand.work import Work
from capacity.errors import CapacityError
from capacity.specs.deployment import Deployment
from capacity.specs.world import Encoder, WorldModelSpec


@dataclass(frozen=True)
class Phase:
    """``passes`` alike passes of one kind: the work of one pass, term by term, and the layers it goes through."""

    name: str
    passes: int
    done: tuple[Work, ...]
    layers: int

    @property
    def flop(self) -> float:
        """Of all passes. [FLOP]"""
        return float(self.passes * sum(item.flop for item in self.done))

    @property
    def moved_bytes(self) -> float:
        """Of all passes. [B]"""
        return float(self.passes * sum(item.moved_bytes for item in self.done))

    @property
    def launches(self) -> int:
        """Of all passes."""
        return self.passes * sum(item.term.launches for item in self.done)


def phases(
    world: WorldModelSpec, deploy: Deployment, *, batch: int, context_tokens: int | None = None
) -> tuple[Phase, ...]:
    """The phases of one decision for ``batch`` robots or sessions together.

    Parameters
    ----------
    world : WorldModelSpec
        The model, with its views, tokens and head.
    deploy : Deployment
        Number formats; one device.
    batch : int
        Robots or sessions. [sequence]
    context_tokens : int or None
        Tokens in the cache of each before its answer, all of whose tokens then take a decode pass; None for those of
        the prompt, whose own pass makes the first token. [token]

    Raises
    ------
    CapacityError
        If the deployment is spread over several devices.
    """
    if deploy.devices > 1:
        raise CapacityError(f"{world.name}: phases of a decision are modelled on one device, got {deploy.devices}")
    found = [_encode(world, deploy, encoder, batch) for encoder in world.encoders]
    found = [_joined("encode", found)] if found else []
    if world.core is not None and world.prompt_tokens:
        found.append(_prefill(world, deploy, batch))
    found.extend(_answer(world, deploy, batch, context_tokens))
    if world.detokenizer is not None:
        found.append(_detokenise(world, deploy, world.detokenizer, batch))
    return tuple(found)


def _joined(name: str, parts: list[Phase]) -> Phase:
    done = tuple(item for part in parts for item in part.done)
    return Phase(name, 1, done, sum(part.layers for part in parts))


def _encode(world: WorldModelSpec, deploy: Deployment, encoder: Encoder, batch: int) -> Phase:
    """All images of the decision in one pass."""
    images = batch * world.views * encoder.tokens.sequences(world.frames)
    done = encoder_pass(world, deploy, encoder, images=images)
    return Phase("encode", 1, done, world.stage(encoder.stage).layer_count)


def _detokenise(world: WorldModelSpec, deploy: Deployment, made: Encoder, batch: int) -> Phase:
    """One image a session, of what the decision made."""
    return Phase("detokenise", 1, encoder_pass(world, deploy, made, images=batch), world.stage(made.stage).layer_count)


def _core(world: WorldModelSpec, deploy: Deployment, **numbers: Any) -> tuple[Work, ...]:
    return stage_pass(world.model, deploy, world.core or "", **numbers)


def _prefill(world: WorldModelSpec, deploy: Deployment, batch: int) -> Phase:
    """The whole prompt; a parallel head adds its slots to it, and only heads that make tokens use the output head."""
    slots = world.answer_tokens if world.head.kind == "parallel" else 0
    head_tokens = {"parallel": slots, "autoregressive": 1}.get(world.head.kind, 0)
    done = _core(
        world,
        deploy,
        sequences=batch,
        queries=world.prompt_tokens + slots,
        cached_keys=0,
        head_tokens=head_tokens,
        causal=world.causal_prompt,
    )
    return Phase("prefill", 1, done, world.stage(world.core or "").layer_count)


def mean_cached_tokens(context_tokens: int, passes: int) -> float:
    """Cached tokens that a decode pass finds: those before the first pass and one more after each. [token]

    >>> mean_cached_tokens(100, 3)  # the mean of 100, 101, 102
    101.0
    """
    return context_tokens + (passes - 1) / 2


def _answer(world: WorldModelSpec, deploy: Deployment, batch: int, context_tokens: int | None) -> Iterator[Phase]:
    head = world.head
    context = world.prompt_tokens if context_tokens is None else context_tokens
    if head.kind == "autoregressive":
        passes = world.answer_tokens - (context_tokens is None)
        if passes:
            cached = mean_cached_tokens(context, passes)
            done = _core(world, deploy, sequences=batch, queries=1, cached_keys=cached, head_tokens=1, causal=True)
            yield Phase("decode", passes, done, world.stage(world.core or "").layer_count)
    elif head.stage is not None and head.kind in ("flow", "diffusion", "maskgit"):
        if head.memory == "cross":
            yield from _project(world, deploy, head.stage, batch)
        yield _denoise(world, deploy, head.stage, batch, context)
    elif head.stage is not None and head.kind == "planner":
        yield _plan(world, deploy, head.stage, batch)


def _project(world: WorldModelSpec, deploy: Deployment, stage: str, batch: int) -> Iterator[Phase]:
    """Keys and values of the core's output for every layer of the head, which all steps share; layers count there."""
    done = source_pass(world.model, deploy, stage, sequences=batch, source_tokens=world.prompt_tokens)
    if done:
        yield Phase("project", 1, done, 0)


def _denoise(world: WorldModelSpec, deploy: Deployment, stage: str, batch: int, context_tokens: int) -> Phase:
    head = world.head
    tokens = head.chunk_actions + head.extra_tokens
    done = stage_pass(
        world.model,
        deploy,
        stage,
        sequences=batch,
        queries=tokens,
        cached_keys=context_tokens if head.memory == "cache" else 0,
        head_tokens=tokens,
        causal=False,
        source_tokens=world.prompt_tokens if head.memory == "cross" else None,
    )
    return Phase("denoise", head.steps, done, world.stage(stage).layer_count)


def _plan(world: WorldModelSpec, deploy: Deployment, stage: str, batch: int) -> Phase:
    """Every iteration rolls all samples ``horizon`` steps ahead; the tokens of a frame are predicted together."""
    head = world.head
    tokens = world.image_tokens + head.extra_tokens
    done = stage_pass(
        world.model,
        deploy,
        stage,
        sequences=batch * head.samples,
        queries=tokens,
        cached_keys=0,
        head_tokens=tokens,
        causal=False,
    )
    return Phase("plan", head.steps * head.horizon, done, world.stage(stage).layer_count)
