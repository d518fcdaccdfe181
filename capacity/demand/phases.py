"""A phase of a request or of a decision, and the two of a language request: prefill, then decode per further token."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from capacity.arrays import ArrayLike, FloatArray
from capacity.demand.collectives import Collective, collectives
from capacity.demand.operators import decoder_operators
from capacity.demand.passes import Pass, Work, local_sequences, micro_batch, work
from capacity.specs.deployment import Deployment
from capacity.specs.model import ModelSpec


@dataclass(frozen=True, eq=False)
class Phase:
    """``passes`` alike passes of one kind: the work of one pass, the layers it goes through, what devices exchange.

    ``sequences`` and ``tokens`` are those of one device in one pass, ``head_tokens`` those of each sequence to which
    the output head is applied. [sequence], [token]
    """

    name: str
    passes: int
    work: Work
    layers: int
    sequences: ArrayLike
    tokens: ArrayLike
    head_tokens: int = 0
    collectives: tuple[Collective, ...] = ()

    @property
    def flop(self) -> FloatArray:
        """Of all passes, in the shape of the batch. [FLOP]"""
        return np.asarray(self.passes * self.work.flop)

    @property
    def moved_bytes(self) -> FloatArray:
        """Of all passes, in the shape of the batch. [B]"""
        return np.asarray(self.passes * self.work.moved_bytes)

    @property
    def launches(self) -> int:
        """Of all passes."""
        return self.passes * self.work.launches


def decode_phase(model: ModelSpec, deploy: Deployment, *, batch: ArrayLike, context_tokens: ArrayLike) -> Phase:
    """One decode step of a language model.

    Parameters
    ----------
    model : ModelSpec
        The network.
    deploy : Deployment
        Number formats and parallelism.
    batch : array_like
        Sequences of the replica. [sequence]
    context_tokens : array_like
        Tokens of each, the one that the step computes included. [token]

    Returns
    -------
    Phase
        In the broadcast shape of both.
    """
    together = micro_batch(batch, deploy)
    local = local_sequences(together, deploy)
    asked = Pass(local, together, 1, np.subtract(context_tokens, 1))
    return Phase(
        name="decode",
        passes=1,
        work=work(decoder_operators(model, deploy).without_sources, asked),
        layers=model.decoder.layer_count,
        sequences=local,
        tokens=local,
        head_tokens=1,
        collectives=collectives(model, deploy, model.decoder.name),
    )


def prefill_phase(model: ModelSpec, deploy: Deployment, *, batch: ArrayLike, prompt_tokens: ArrayLike) -> Phase:
    """Prefill of ``batch`` prompts in one pass: each weight is read once, the head is applied to last tokens only.

    Parameters
    ----------
    model : ModelSpec
        The network.
    deploy : Deployment
        Number formats and parallelism.
    batch : array_like
        Prompts of the replica. [sequence]
    prompt_tokens : array_like
        Tokens of each. [token]

    Returns
    -------
    Phase
        In the broadcast shape of both.
    """
    together = micro_batch(batch, deploy)
    local = local_sequences(together, deploy)
    return Phase(
        name="prefill",
        passes=1,
        work=work(decoder_operators(model, deploy), Pass(local, together, prompt_tokens, 0, expanded=True)),
        layers=model.decoder.layer_count,
        sequences=local,
        tokens=np.multiply(local, prompt_tokens),
        head_tokens=1,
        collectives=collectives(model, deploy, model.decoder.name),
    )
