"""What each operator of a pass through some stages costs: coefficients read off the specs, stacked as columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache

import numpy as np

from capacity.arrays import BoolArray, FloatArray
from capacity.demand import mixers
from capacity.demand.costs import LayerFormats, OperatorCost
from capacity.demand.formats import (
    cache_format,
    compute_format,
    conv_format,
    sixteen_bit,
    state_format,
)
from capacity.demand.placement import WeightShard, weight_shards
from capacity.demand.weights import Module
from capacity.specs.deployment import Deployment
from capacity.specs.model import LayerGroup, ModelSpec, Stage
from capacity.units import number_format

NO_WINDOW = 2.0**62  # tokens; above every context, and finite, so that no product with 0 is undefined


@dataclass(frozen=True, eq=False)
class OperatorTable:
    """Operators of one pass, and the columns of their coefficients: one row per operator and compute format."""

    costs: tuple[OperatorCost, ...]

    def column(self, name: str) -> FloatArray:
        """One coefficient of every operator."""
        return np.array([getattr(cost, name) for cost in self.costs], dtype=np.float64)

    @cached_property
    def operators(self) -> tuple[str, ...]:
        """Names, one per row; several rows may share one."""
        return tuple(cost.operator for cost in self.costs)

    @cached_property
    def compute_formats(self) -> tuple[str, ...]:
        """The format each row computes in."""
        return tuple(cost.compute_format for cost in self.costs)

    @cached_property
    def launches(self) -> int:
        """Kernel launches of one pass."""
        return sum(cost.launches for cost in self.costs)

    @cached_property
    def weight_bytes(self) -> FloatArray:
        """Column of the bytes of weights read once per pass. [B]"""
        return self.column("weight_bytes")

    @cached_property
    def token_flop(self) -> FloatArray:
        """Column of the FLOP per token. [FLOP]"""
        return self.column("token_flop")

    @cached_property
    def sequence_bytes(self) -> FloatArray:
        """Column of the state of one sequence, read and written. [B]"""
        return self.column("sequence_bytes")

    @cached_property
    def heads(self) -> BoolArray:
        """Which rows are applied to the last token of a prompt only."""
        return np.array([cost.last_token_only for cost in self.costs], dtype=bool)

    @cached_property
    def routed(self) -> tuple[int, ...]:
        """Rows of routed experts."""
        return tuple(row for row, cost in enumerate(self.costs) if cost.experts)

    @cached_property
    def attention(self) -> OperatorTable:
        """The rows that meet keys."""
        return self._chosen(lambda cost: bool(cost.key_flop or cost.key_bytes))

    @cached_property
    def matrices(self) -> OperatorTable:
        """The rows that meet no keys: matrices, experts and states."""
        return self._chosen(lambda cost: not (cost.key_flop or cost.key_bytes))

    @cached_property
    def projecting(self) -> tuple[int, ...]:
        """Rows that project a cross-attention source."""
        return tuple(row for row, cost in enumerate(self.costs) if cost.source_tokens and cost.weight_bytes)

    @cached_property
    def without_sources(self) -> OperatorTable:
        """The rows that every pass runs: without the projections of a cross-attention source."""
        return self._chosen(lambda cost: not (cost.source_tokens and cost.weight_bytes))

    @cached_property
    def sources(self) -> OperatorTable:
        """The projections of a cross-attention source alone, which run once per source."""
        return self._chosen(lambda cost: bool(cost.source_tokens and cost.weight_bytes))

    def _chosen(self, wanted: Callable[[OperatorCost], bool]) -> OperatorTable:
        kept = tuple(cost for cost in self.costs if wanted(cost))
        return self if len(kept) == len(self.costs) else OperatorTable(kept)


@lru_cache(maxsize=512)
def decoder_operators(model: ModelSpec, deploy: Deployment) -> OperatorTable:
    """The operators of one decode step: every stage but encoders and resident parts."""
    return OperatorTable(_costs(model, deploy, {s.name for s in model.stages if s.role in ("decoder", "head")}))


@lru_cache(maxsize=512)
def stage_operators(model: ModelSpec, deploy: Deployment, stage_name: str) -> OperatorTable:
    """The operators of one pass through one stage."""
    return OperatorTable(_costs(model, deploy, {stage_name}))


def _costs(model: ModelSpec, deploy: Deployment, names: set[str]) -> tuple[OperatorCost, ...]:
    mixing = [
        cost
        for stage in model.stages
        if stage.name in names
        for group in stage.layers
        for cost in _mixing_costs(group, stage, deploy)
    ]
    return (*_weight_costs(model, deploy, names), *_merged(mixing))


def _mixing_costs(group: LayerGroup, stage: Stage, deploy: Deployment) -> Iterator[OperatorCost]:
    """The operators of a mixer beyond its matrices, for each run of layers that keep their memory in like formats."""
    kind, ways = mixers.of(group.mixer), 1 if stage.role == "encoder" else deploy.tensor_parallel
    for formats, layers in Counter(layer_formats(layer, deploy) for layer in group.indices).items():
        yield from kind.costs(group.mixer, formats, layers=layers, tensor_parallel=ways)


def layer_formats(layer: int, deploy: Deployment) -> LayerFormats:
    """Formats of what one layer keeps for a sequence."""
    return LayerFormats(
        cache=cache_format(layer, deploy),
        recurrent=state_format(layer, deploy),
        conv=conv_format(deploy),
        activations=deploy.activations,
    )


# Coefficients that grow with the layers they stand for; all other fields must be equal where costs are merged.
PER_LAYER = ("key_flop", "expanded_key_flop", "key_bytes", "token_flop", "sequence_bytes")
COUNTS = ("layers", "launches")


def _merged(costs: list[OperatorCost]) -> Iterator[OperatorCost]:
    """Costs whose layers are alike, as one."""
    alike: dict[tuple[object, ...], list[OperatorCost]] = {}
    fixed = [field.name for field in fields(OperatorCost) if field.name not in (*PER_LAYER, *COUNTS)]
    for cost in costs:
        rates = [getattr(cost, name) / cost.layers for name in PER_LAYER]
        alike.setdefault((*rates, *[getattr(cost, name) for name in fixed]), []).append(cost)
    for members in alike.values():
        first, layers = members[0], sum(cost.layers for cost in members)
        scaled = {name: getattr(first, name) / first.layers * layers for name in PER_LAYER}
        yield replace(first, layers=layers, launches=layers, **scaled)


def _weight_costs(model: ModelSpec, deploy: Deployment, names: set[str]) -> Iterator[OperatorCost]:
    """Matrices and vectors, merged where operator, compute format and expert count are the same."""
    merged: dict[tuple[str, str, int, int, int], list[WeightShard]] = {}
    vector_formats = _matrix_formats(model, deploy)
    for shard in weight_shards(model, deploy):
        module = shard.module
        if module.stage in names and module.read == "whole":
            computes = compute_format(number_format(shard.format), deploy.activations)
            if module.vector:
                computes = vector_formats.get((module.stage, module.operator), sixteen_bit(deploy.activations))
            key = (module.operator, computes, module.copies, module.used, module.source_tokens)
            merged.setdefault(key, []).append(shard)
    for (operator, computes, copies, used, source_tokens), members in merged.items():
        cost = _weight_cost(operator, computes, copies, used, members, deploy)
        yield replace(cost, source_tokens=source_tokens)


@lru_cache(maxsize=512)
def _matrix_formats(model: ModelSpec, deploy: Deployment) -> dict[tuple[str, str], str]:
    """Compute format of the matrices of each stage and operator, in which its norms and biases are computed too."""
    formats: dict[tuple[str, str], str] = {}
    for shard in weight_shards(model, deploy):
        module: Module = shard.module
        if not module.vector:
            computes = compute_format(number_format(shard.format), deploy.activations)
            formats.setdefault((module.stage, module.operator), computes)
    return formats


def _weight_cost(
    operator: str, computes: str, copies: int, used: int, members: list[WeightShard], deploy: Deployment
) -> OperatorCost:
    matrices = [shard for shard in members if not shard.module.vector]
    total = sum(shard.total_bytes for shard in members)
    routed = operator == "experts"  # of which a layer may have a single one
    ways = deploy.tensor_parallel * deploy.data_parallel
    flop = 0.0
    for shard in matrices:
        # A device of an expert layer does its share of the tokens of the whole replica.
        module = shard.module
        elements = module.rows * module.columns / ways if routed else shard.rows * shard.columns
        flop += 2.0 * elements * used * shard.layers
    return OperatorCost(
        operator=operator,
        compute_format=computes,
        launches=_launches(matrices),
        weight_bytes=0 if routed else total,
        expert_bytes=total if routed else 0,
        experts=copies if routed else 0,
        experts_used=used if routed else 0,
        token_flop=flop,
        last_token_only=operator == "head",
    )


def _launches(matrices: list[WeightShard]) -> int:
    """Matrices of one layer that read the same input in the same format run as one launch."""
    inputs = {(s.module.layers, s.module.columns, s.rank, s.format): s.layers for s in matrices}
    return sum(inputs.values())
