"""The phases of a request: prefill, decode per further token, and a verification of drafted tokens.

`capacity.demand.decisions` has the phases of a decision; `capacity.demand.stage_phase` builds one phase.
"""

from __future__ import annotations

import numpy as np

from capacity.arrays import ArrayLike
from capacity.demand.stage_phase import Phase, stage_phase
from capacity.specs.deployment import Deployment
from capacity.specs.model import ModelSpec
from capacity.specs.world import Subject, WorldModelSpec


def decode_phase(
    subject: Subject,
    deploy: Deployment,
    *,
    batch: ArrayLike,
    context_tokens: ArrayLike,
    passes: int = 1,
) -> Phase:
    """``passes`` decode steps of a model, or of the core of a world model, each of which makes the last token.

    Parameters
    ----------
    subject : ModelSpec or WorldModelSpec
        What is served.
    deploy : Deployment
        Number formats and parallelism.
    batch : array_like
        Sequences of the replica. [sequence]
    context_tokens : array_like
        Tokens of each sequence, including the one that the step computes. [token]
    passes : int
        Decode steps. [pass]

    Returns
    -------
    Phase
        In the broadcast shape of both.
    """
    cached = np.subtract(context_tokens, 1)
    return stage_phase("decode", subject, deploy, batch=batch, new_tokens=1, cached_tokens=cached, passes=passes)


def prefill_phase(
    subject: Subject, deploy: Deployment, *, batch: ArrayLike, prompt_tokens: ArrayLike | None = None
) -> Phase:
    """Prefill of ``batch`` prompts in one pass: each weight is read once, the head is applied to last tokens only.

    A parallel head adds its slots to the prompt of a world model; only heads that make tokens use the output head.

    Parameters
    ----------
    subject : ModelSpec or WorldModelSpec
        What is served.
    deploy : Deployment
        Number formats and parallelism.
    batch : array_like
        Prompts of the replica. [sequence]
    prompt_tokens : array_like or None
        Tokens of each; None for the prompt of a world model, the only one that it has. [token]

    Returns
    -------
    Phase
        In the broadcast shape of both.
    """
    if isinstance(subject, ModelSpec):
        tokens: ArrayLike = 1 if prompt_tokens is None else prompt_tokens
        return stage_phase("prefill", subject, deploy, batch=batch, new_tokens=tokens, expanded=True, needed_tokens=1)
    slots = subject.answer_tokens if subject.head.kind == "parallel" else 0
    return stage_phase(
        "prefill",
        subject,
        deploy,
        batch=batch,
        new_tokens=subject.prompt_tokens + slots,
        head_tokens={"parallel": slots, "autoregressive": 1}.get(subject.head.kind, 0),
        causal=subject.causal_prompt,
        expanded=True,
        needed_tokens=_read_outputs(subject, slots),
    )


def _read_outputs(world: WorldModelSpec, slots: int) -> int | None:
    """Prompt tokens whose output of the core is read afterwards; None for all. [token]"""
    head = world.head
    if head.kind == "parallel":
        return slots
    if head.kind == "autoregressive":
        return 1
    return 0 if head.stage is not None and head.memory == "cache" else None


def verify_phase(
    subject: Subject, deploy: Deployment, *, batch: ArrayLike, drafted: int, cached_tokens: ArrayLike
) -> Phase:
    """One verification of ``drafted`` tokens and one more, after ``cached_tokens``. [token]

    Parameters
    ----------
    subject : ModelSpec or WorldModelSpec
        What is served.
    deploy : Deployment
        Number formats, parallelism and limits.
    batch : array_like
        Sequences of the replica. [sequence]
    drafted : int
        Tokens drafted. [token]
    cached_tokens : array_like
        Cached tokens of each sequence. [token]
    """
    new = drafted + 1
    return stage_phase(
        "verify", subject, deploy, batch=batch, new_tokens=new, cached_tokens=cached_tokens, head_tokens=new
    )
