"""What one pass of an encoder costs: its layers as any stage's, its other tensors at the positions they are applied to.

A patch embedding is applied to every patch, a projector to every merged token, a convolution kernel to every output
position. For a network whose layers are not listed, FLOP per image is a tabulated constant.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from math import prod

import numpy as np

from capacity.arrays import ArrayLike
from capacity.demand.operators import stage_operators
from capacity.demand.passes import Pass, work
from capacity.demand.work import Work, joined
from capacity.specs.deployment import Deployment
from capacity.specs.model import Tensor
from capacity.specs.world import Encoder, WorldModelSpec


def encoder_work(world: WorldModelSpec, deploy: Deployment, encoder: Encoder, *, images: ArrayLike) -> Work:
    """The work of ``images`` equal images in one pass through an encoder.

    Parameters
    ----------
    world : WorldModelSpec
        Model that has the encoder's stage.
    deploy : Deployment
        Number formats.
    encoder : Encoder
        Stage, token rule and positions.
    images : array_like
        Images, or clips whose frames go together, on one device. [image]

    Returns
    -------
    Work
        One row per operator, in the shape of ``images``. [B], [FLOP]
    """
    table, tokens = stage_operators(world.model, deploy, encoder.stage), encoder.tokens.encoder_tokens
    full_pass = Pass(images, images, tokens, 0, head_tokens=tokens, causal=False)
    layers = work(table.without_sources, full_pass)
    for block in layers.blocks:
        outside = [row for row, name in enumerate(block.operators) if name == "vision"]
        for row in outside:
            block.flop[row] = np.multiply(images, outside_flop(world, encoder) / len(outside))
    # A resampler makes keys and values of what it attends to: every image brings a source of its own.
    return joined([layers, work(table.sources, full_pass)]) if table.sources.costs else layers


@lru_cache(maxsize=512)
def outside_flop(world: WorldModelSpec, encoder: Encoder) -> float:
    """Arithmetic of one image outside the layers: two FLOP per weight and position. [FLOP]"""
    if encoder.image_flop is not None:
        return encoder.image_flop
    return sum(2.0 * prod(tensor.shape) * positions for tensor, positions in _applied(world, encoder))


def _applied(world: WorldModelSpec, encoder: Encoder) -> Iterator[tuple[Tensor, int]]:
    """Matrices and kernels outside the layers, each with the positions of one image that it is applied to."""
    stage, rule = world.stage(encoder.stage), encoder.tokens
    for tensors, usual in ((stage.before, rule.patches), (stage.after, rule.merged_tokens)):
        for tensor in tensors:
            if len(tensor.shape) > 1 and tensor.read == "whole":
                yield tensor, encoder.positions.get(tensor.name, usual)
