"""Passes of a world model through one stage: prefill, decode, verification, and the general one that they call."""

from __future__ import annotations

import numpy as np

from capacity.arrays import ArrayLike
from capacity.demand.collectives import collectives
from capacity.demand.operators import stage_operators
from capacity.demand.passes import Pass, local_sequences, work
from capacity.demand.phases import Phase
from capacity.specs.deployment import Deployment
from capacity.specs.world import WorldModelSpec


def world_prefill_phase(world: WorldModelSpec, deploy: Deployment, *, batch: ArrayLike) -> Phase:
    """The whole prompt. Shape: of ``batch``. [sequence]

    A parallel head adds its slots to it, and only heads that make tokens use the output head.
    """
    slots = world.answer_tokens if world.head.kind == "parallel" else 0
    heads = {"parallel": slots, "autoregressive": 1}.get(world.head.kind, 0)
    return stage_phase(
        "prefill",
        world,
        deploy,
        world.core or "",
        batch=batch,
        new_tokens=world.prompt_tokens + slots,
        head_tokens=heads,
        causal=world.causal_prompt,
        expanded=True,
    )


def world_decode_phase(
    world: WorldModelSpec, deploy: Deployment, *, batch: ArrayLike, context_tokens: ArrayLike, passes: int = 1
) -> Phase:
    """``passes`` decode passes of the core, each over ``context_tokens`` of which it computes the last. [token]

    Parameters
    ----------
    world : WorldModelSpec
        The model.
    deploy : Deployment
        Number formats, parallelism and limits.
    batch : array_like
        Sequences of the replica. [sequence]
    context_tokens : array_like
        Tokens of each. [token]
    passes : int
        Decode passes. [pass]
    """
    cached = np.subtract(context_tokens, 1)
    return stage_phase(
        "decode", world, deploy, world.core or "", batch=batch, new_tokens=1, cached_tokens=cached, passes=passes
    )


def verify_phase(
    world: WorldModelSpec, deploy: Deployment, *, batch: ArrayLike, drafted: int, cached_tokens: ArrayLike
) -> Phase:
    """One verification of ``drafted`` tokens and one more, after ``cached_tokens``. [token]

    Parameters
    ----------
    world : WorldModelSpec
        The model.
    deploy : Deployment
        Number formats, parallelism and limits.
    batch : array_like
        Sequences of the replica. [sequence]
    drafted : int
        Tokens drafted. [token]
    cached_tokens : array_like
        Tokens of each whose keys and values lie in memory. [token]
    """
    return stage_phase(
        "verify",
        world,
        deploy,
        world.core or "",
        batch=batch,
        new_tokens=drafted + 1,
        cached_tokens=cached_tokens,
        head_tokens=drafted + 1,
    )


def stage_phase(
    name: str,
    world: WorldModelSpec,
    deploy: Deployment,
    stage: str,
    *,
    batch: ArrayLike,
    new_tokens: int,
    cached_tokens: ArrayLike = 0,
    head_tokens: int = 1,
    causal: bool = True,
    expanded: bool = False,
    source_tokens: int | None = None,
    passes: int = 1,
    each: int = 1,
) -> Phase:
    """``passes`` passes of ``batch`` robots or sessions through one stage; see `capacity.demand.passes.Pass`.

    Parameters
    ----------
    name : str
        Name of the phase.
    world : WorldModelSpec
        The model.
    deploy : Deployment
        Number formats, parallelism and limits.
    stage : str
        Name of the stage.
    batch : array_like
        Sequences of the replica. [sequence]
    new_tokens : int
        Tokens of each that are computed. [token]
    cached_tokens : array_like
        Tokens of each whose keys and values lie in memory. [token]
    head_tokens : int
        Tokens of each to which the output head is applied. [token]
    causal : bool
        Whether a query attends to new keys up to its own position only.
    expanded : bool
        Whether latents are expanded, as in prefill.
    source_tokens : int or None
        Tokens that cross attention attends to, where not those of the spec. [token]
    passes : int
        Passes alike. [pass]
    each : int
        Sequences of each robot or session, which stay on its rank. [sequence]
    """
    local = local_sequences(batch, deploy) * each
    asked = Pass(
        local, np.multiply(batch, each), new_tokens, cached_tokens, head_tokens, causal, expanded, source_tokens
    )
    exchanged = collectives(world.model, deploy, stage)
    return Phase(
        name=name,
        passes=passes,
        work=work(stage_operators(world.model, deploy, stage).without_sources, asked),
        layers=world.stage(stage).layer_count,
        sequences=local,
        tokens=np.multiply(local, new_tokens),
        head_tokens=head_tokens,
        collectives=exchanged if head_tokens else tuple([item for item in exchanged if not item.last_token_only]),
    )
