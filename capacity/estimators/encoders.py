"""What one pass of an encoder costs: its layers as any stage's, its other tensors at the positions they meet.

A patch embedding meets every patch, a projector every merged token, a convolution kernel every output position. A
network that is only tabulated brings its arithmetic as one number.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from math import prod

from capacity.errors import CapacityError, unknown_name
from capacity.estimators.passes import stage_pass
from capacity.estimators.terms import stage_terms
from capacity.estimators.work import Work
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
    return (*own, *_source_projections(world, deploy, encoder, images))


def _source_projections(world: WorldModelSpec, deploy: Deployment, encoder: Encoder, images: int) -> Iterator[Work]:
    """Keys and values that a resampler makes of what it looks at: every image brings a source of its own."""
    for term in stage_terms(world.model, deploy, encoder.stage):
        if term.source_tokens and term.weight_bytes:
            flop = images * term.source_tokens * term.token_flop
            yield Work(term, term.weight_bytes, term.weight_bytes, flop)


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


def vision_activation_bytes(world: WorldModelSpec, encoder: Encoder, *, images: int, element_bytes: int = 2) -> int:
    r"""Activation peak of an encoder with fused attention: the widest moment of one layer. [B]

    .. math:: T \, (2 D + \max(3 D, F)) \, b

    for every image in the pass: residual and normed input, and either query, key and value or the feed-forward.

    >>> from capacity.catalog_world import load_world_model
    >>> pi0 = load_world_model("pi0")
    >>> vision_activation_bytes(pi0, pi0.encoders[0], images=3)
    10149888
    """
    stage = world.stage(encoder.stage)
    inner = 0
    for group in stage.layers:
        width = getattr(group.feed_forward, "intermediate_size", 0)
        inner = max(inner, 3 * stage.hidden_size, width * (2 if getattr(group.feed_forward, "gated", False) else 1))
    return images * encoder.tokens.encoder_tokens * (2 * stage.hidden_size + inner) * element_bytes


@dataclass(frozen=True)
class TabulatedNetwork:
    """A convolutional network as measured once: arithmetic of one square image, and parameters. [FLOP], [parameter]"""

    name: str
    px: int
    flop: float
    parameters: int
    source: str


@cache
def tabulated_networks() -> dict[str, TabulatedNetwork]:
    """Convolutional networks by name, from ``data/cnn_encoders.toml``."""
    text = files("capacity").joinpath("data/cnn_encoders.toml").read_text(encoding="utf-8")
    table = tomllib.loads(text)
    source = str(table.pop("source"))
    return {
        name: TabulatedNetwork(name, row["px"], row["flop"], row["parameters"], source) for name, row in table.items()
    }


def tabulated_flop(name: str, *, height_px: int, width_px: int) -> float:
    """Arithmetic of one image through a tabulated network: convolutions grow with the number of pixels. [FLOP]

    Parameters
    ----------
    name : str
        Network, as in the table.
    height_px, width_px : int
        Image. [px]

    Raises
    ------
    CapacityError
        If the network is not in the table, or a side is below 1.

    Examples
    --------
    >>> tabulated_flop("resnet-50", height_px=448, width_px=448) / 1e9
    32.72
    """
    known = tabulated_networks()
    if name not in known:
        raise CapacityError(unknown_name("tabulated network", str(name), known))
    if min(height_px, width_px) < 1:
        raise CapacityError(f"an image has at least 1 px a side, got {height_px}x{width_px}")
    return known[name].flop * height_px * width_px / known[name].px ** 2
