"""A routed feed-forward: router, experts and shared expert, and how they divide.

Experts divide over all tensor x data parallel devices, ``expert_parallel`` ways by expert and the rest by column; the
router is whole on every rank; the shared expert divides as a dense feed-forward.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from capacity.demand.weights import Module, matrix, vector
from capacity.errors import CapacityError
from capacity.specs.model import Experts

SUMS = 1


def weights(e: Experts, width: int) -> Iterator[Module]:
    """Router, experts side by side, and the shared expert."""
    yield matrix("router", "router", "router", e.experts, width, "whole")
    if e.router_bias:
        yield vector("router_bias", "router", e.experts, part="router")
    for module in _routed(e, width):
        yield replace(module, copies=e.experts, used=e.experts_per_token)
    yield from _shared(e, width)


def _routed(e: Experts, width: int) -> Iterator[Module]:
    """The matrices and biases of one expert."""
    up = 2 * e.intermediate_size if e.gated else e.intermediate_size
    unit = up // e.intermediate_size
    yield matrix("expert_up", "experts", "experts", up, width, "expert_rows", unit=unit)
    yield matrix("expert_down", "experts", "experts", width, e.intermediate_size, "expert_columns")
    if e.bias:
        yield vector("expert_up_bias", "experts", up, part="experts", shard="expert_rows", unit=unit)
        yield vector("expert_down_bias", "experts", width, part="experts", shard="expert_whole")


def _shared(e: Experts, width: int) -> Iterator[Module]:
    if size := e.shared_intermediate_size:
        rows = 2 * size if e.gated else size
        yield matrix("shared_up", "shared_expert", "experts", rows, width, "rows", unit=rows // size)
        yield matrix("shared_down", "shared_expert", "experts", width, size, "columns")
    if e.shared_gate:
        yield vector("shared_gate", "shared_expert", width, part="experts")


def activation_tensors(e: Experts, *, tensor_parallel: int) -> dict[str, int]:
    """What is alive per token, by name, in the experts that it visits and the shared one. [element]"""
    visited = e.experts_per_token * e.intermediate_size
    width = -(-(visited + e.shared_intermediate_size) // tensor_parallel)
    return {"gate": width, "up": width, "activation": width, "product": width}


def check_sharding(e: Experts, model: str, *, expert_parallel: int) -> None:
    """Refuse a degree that does not divide the experts.

    Raises
    ------
    CapacityError
        If it does not.
    """
    if e.experts % expert_parallel:
        raise CapacityError(f"expert_parallel {expert_parallel} must divide the {e.experts} experts of {model}")


def routed_per_token(e: Experts) -> int:
    """Experts that a token is sent to. [expert]"""
    return e.experts_per_token


def is_ordinary(e: Experts) -> bool:
    """Whether the reference decoder has this feed-forward."""
    return False


def summary(e: Experts) -> str:
    """The feed-forward in a few words."""
    shared = f", shared width {e.shared_intermediate_size:,}" if e.shared_intermediate_size else ""
    return f"{e.experts} experts of width {e.intermediate_size:,}, {e.experts_per_token} per token{shared}"
