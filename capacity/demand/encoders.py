"""What one pass of an encoder costs: its layers as any stage's, its other tensors at the positions they meet.

A patch embedding meets every patch, a projector every merged token, a convolution kernel every output position. A
network that is only tabulated brings its arithmetic as one number.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from capacity.demand.passes import source_pass, stage_pass
from capacity.demand.work import Work
from capacity.specs.deployment import Deployment
from capacity.specs.model import Tensor
from capacity.specs.world import Encoder, WorldModelSpec


def encoder_pass(world: WorldModelSpec, deploy: Deployment, encoder: Encoder, *, images: int) -> tuple[Work, ...]:
    """The work of ``images`` alike images in one pass through an encoder.

    Parameters
    ----------
    world : WorldModelSpec
        Model that has the encoder's stage.
    deploy : Deployment
        Number formats; one device.
    encoder : Encoder
        Stage, token rule and positions.
    images : int
        Images, or clips whose frames go together. [image]

    Returns
    -------
    tuple of Work
        One item a term. [B], [FLOP]
    """
    tokens = encoder.tokens.encoder_tokens
    done = stage_pass(
        world.model,
        deploy,
        encoder.stage,
        sequences=images,
        queries=tokens,
        cached_keys=0,
        head_tokens=tokens,
        causal=False,
    )
    outside = images * outside_flop(world, encoder)
    own = tuple(replace(item, flop=outside) if item.term.operator == "vision" else item for item in done)
    # A resampler makes keys and values of what it looks at: every image brings a source of its own.
    return (*own, *source_pass(world.model, deploy, encoder.stage, sequences=images))


def outside_flop(world: WorldModelSpec, encoder: Encoder) -> float:
    """Arithmetic of one image outside the layers: two for each weight and position it meets. [FLOP]"""
    if encoder.image_flop is not None:
        return encoder.image_flop
    return sum(2.0 * prod(tensor.shape) * positions for tensor, positions in _met(world, encoder))


def _met(world: WorldModelSpec, encoder: Encoder) -> Iterator[tuple[Tensor, int]]:
    """Matrices and kernels outside the layers, each with the positions of one image that it meets."""
    stage, rule = world.stage(encoder.stage), encoder.tokens
    for tensors, usual in ((stage.before, rule.patches), (stage.after, rule.merged_tokens)):
        for tensor in tensors:
            if len(tensor.shape) > 1 and tensor.read == "whole":
                yield tensor, encoder.positions.get(tensor.name, usual)
