"""The phases of one decision of a world model: encode, prefill, then decode, denoise or plan, then detokenise.

A head that cross-attends to the core's output first has a phase "project", which makes its keys and values.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from capacity.arrays import ArrayLike, FloatArray
from capacity.demand.encoders import encoder_work
from capacity.demand.operators import stage_operators
from capacity.demand.passes import Pass, local_sequences, work
from capacity.demand.phases import decode_phase, prefill_phase
from capacity.demand.stage_phase import Phase, RankWork, stage_phase
from capacity.demand.work import joined
from capacity.errors import CapacityError
from capacity.specs.deployment import Deployment
from capacity.specs.model import ModelSpec
from capacity.specs.world import Encoder, Subject, WorldModelSpec

DENOISING = ("flow", "diffusion", "maskgit")


def decision_phases(
    world: WorldModelSpec, deploy: Deployment, *, batch: ArrayLike, context_tokens: ArrayLike | None = None
) -> tuple[Phase, ...]:
    """The phases of one decision for ``batch`` robots or sessions together.

    Parameters
    ----------
    world : WorldModelSpec
        The model, with its views, tokens and head.
    deploy : Deployment
        Number formats and parallelism.
    batch : array_like
        Robots or sessions of the replica. [sequence]
    context_tokens : array_like or None
        Tokens in the cache of each before its answer, all of whose tokens then take a decode pass; None for those of
        the prompt, whose own pass makes the first token. [token]

    Returns
    -------
    tuple of Phase
        In the order in which they run, each in the shape of ``batch``.

    Raises
    ------
    CapacityError
        If the deployment has pipeline stages.
    """
    check_world(world, deploy)
    encode = encode_phase(world, deploy, batch=batch)
    phases = [encode] if encode else []
    if world.core is not None and world.prompt_tokens:
        phases.append(prefill_phase(world, deploy, batch=batch))
    phases.extend(_answer(world, deploy, batch, context_tokens))
    if world.detokenizer is not None:
        phases.append(_encoders("detokenise", world, deploy, [(world.detokenizer, 1)], batch))
    return tuple(phases)


def check_world(world: WorldModelSpec, deploy: Deployment) -> None:
    """Refuse options that a world model does not have: pipeline stages and cache blocks.

    Parameters
    ----------
    world : WorldModelSpec
        The model, with its views, tokens and head.
    deploy : Deployment
        Number formats, parallelism and limits.

    Raises
    ------
    CapacityError
        Naming the field.
    """
    if deploy.block_tokens != Deployment.model_fields["block_tokens"].default:
        raise CapacityError(
            f"{world.name}: block_tokens {deploy.block_tokens} has no part in a world model, whose sessions keep one "
            "growing buffer each"
        )
    if deploy.pipeline_parallel > 1:
        raise CapacityError(
            f"{world.name}: pipeline_parallel {deploy.pipeline_parallel} is not modelled for world models; "
            "use tensor_parallel or data_parallel"
        )


def first_token_phases(
    subject: Subject, deploy: Deployment, *, batch: ArrayLike, prompt_tokens: ArrayLike
) -> tuple[Phase, ...]:
    """The phases before the first token: encode, where a world model has images, and prefill. Shape: broadcast.

    Parameters
    ----------
    subject : ModelSpec or WorldModelSpec
        What is served.
    deploy : Deployment
        Number formats and parallelism.
    batch : array_like
        Prompts of the replica. [sequence]
    prompt_tokens : array_like
        Tokens of each; those of a world model's spec are the only ones it has. [token]
    """
    prefill = prefill_phase(subject, deploy, batch=batch, prompt_tokens=prompt_tokens)
    encode = None if isinstance(subject, ModelSpec) else encode_phase(subject, deploy, batch=batch)
    return (encode, prefill) if encode else (prefill,)


def encode_phase(world: WorldModelSpec, deploy: Deployment, *, batch: ArrayLike) -> Phase | None:
    """All images of the decisions in one pass, or None where nothing encodes. Shape: of ``batch``. [sequence]

    Parameters
    ----------
    world : WorldModelSpec
        The model, with its views, tokens and head.
    deploy : Deployment
        Number formats, parallelism and limits.
    batch : array_like
        Sequences of the replica. [sequence]
    """
    return _encode_once(world, deploy, batch) if isinstance(batch, int) else _encode(world, deploy, batch)


def _encode(world: WorldModelSpec, deploy: Deployment, batch: ArrayLike) -> Phase | None:
    images = [(encoder, world.views * encoder.tokens.sequences(world.frames)) for encoder in world.encoders]
    return _encoders("encode", world, deploy, images, batch) if images else None


@lru_cache(maxsize=512)
def _encode_once(world: WorldModelSpec, deploy: Deployment, batch: int) -> Phase | None:
    """The pass of one batch, cached: it depends on neither part nor context."""
    return _encode(world, deploy, batch)


def _encoders(
    name: str, world: WorldModelSpec, deploy: Deployment, images: list[tuple[Encoder, int]], batch: ArrayLike
) -> Phase:
    local = local_sequences(batch, deploy)
    works = [encoder_work(world, deploy, encoder, images=np.multiply(local, each)) for encoder, each in images]
    layers = sum([world.stage(encoder.stage).layer_count for encoder, _ in images])
    tokens = sum([each * encoder.tokens.encoder_tokens for encoder, each in images])
    return Phase(name, 1, (RankWork(joined(works)),), layers, local, np.multiply(local, tokens))


def mean_cached_tokens(context_tokens: ArrayLike, passes: int) -> FloatArray:
    """Cached tokens that a decode pass finds: those before the first pass and one more after each. [token]

    Parameters
    ----------
    context_tokens : array_like
        Tokens of each before the first pass. [token]
    passes : int
        Decode passes. [pass]

    Returns
    -------
    ndarray
        In the shape of ``context_tokens``. [token]

    Examples
    --------
    >>> float(mean_cached_tokens(100, 3))  # the mean of 100, 101, 102
    101.0
    """
    return np.asarray(np.add(context_tokens, (passes - 1) / 2))


def _answer(
    world: WorldModelSpec, deploy: Deployment, batch: ArrayLike, context_tokens: ArrayLike | None
) -> Iterator[Phase]:
    head = world.head
    context: ArrayLike = world.prompt_tokens if context_tokens is None else context_tokens
    if head.kind == "autoregressive":
        passes = world.answer_tokens - (context_tokens is None)
        if passes:
            met = mean_cached_tokens(context, passes) + 1
            yield decode_phase(world, deploy, batch=batch, context_tokens=met, passes=passes)
    elif head.stage is not None and head.kind in DENOISING:
        if head.memory == "cross":
            yield from _project(world, deploy, head.stage, batch)
        yield _denoise(world, deploy, head.stage, batch, context)
    elif head.stage is not None and head.kind == "planner":
        yield _plan(world, deploy, head.stage, batch)


def _project(world: WorldModelSpec, deploy: Deployment, stage: str, batch: ArrayLike) -> Iterator[Phase]:
    """Keys and values of the core's output for every layer of the head, which all steps share; layers count there."""
    table, local = stage_operators(world.model, deploy, stage).sources, local_sequences(batch, deploy)
    if table.costs:
        this = Pass(local, batch, 0, 0, source_tokens=world.prompt_tokens)
        source = np.multiply(local, world.prompt_tokens)
        yield Phase("project", 1, (RankWork(work(table, this)),), 0, local, source)


def _denoise(
    world: WorldModelSpec, deploy: Deployment, stage: str, batch: ArrayLike, context_tokens: ArrayLike
) -> Phase:
    head = world.head
    tokens = head.chunk_actions + head.extra_tokens
    return stage_phase(
        "denoise",
        world,
        deploy,
        stage,
        batch=batch,
        new_tokens=tokens,
        cached_tokens=context_tokens if head.memory == "cache" else 0,
        head_tokens=tokens,
        causal=False,
        source_tokens=world.prompt_tokens if head.memory == "cross" else None,
        passes=head.steps,
    )


def _plan(world: WorldModelSpec, deploy: Deployment, stage: str, batch: ArrayLike) -> Phase:
    """Every iteration rolls all samples ``horizon`` steps ahead; the tokens of a frame are predicted together."""
    head = world.head
    tokens = world.image_tokens + head.extra_tokens
    return stage_phase(
        "plan",
        world,
        deploy,
        stage,
        batch=batch,
        each=head.samples,
        new_tokens=tokens,
        head_tokens=tokens,
        causal=False,
        passes=head.steps * head.horizon,
    )
