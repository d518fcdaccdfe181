"""What each operator of a pass through some stages costs: coefficients read off the specs, stacked as columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, fields, replace
from functools import lru_cache, partial

from capacity.demand import mixers
from capacity.demand.arithmetic import arithmetic
from capacity.demand.costs import LayerCache, LayerFormats, OperatorCost
from capacity.demand.formats import cache_format, conv_format, state_format
from capacity.demand.operator_table import OperatorTable
from capacity.demand.pipeline import rank_of_layer
from capacity.demand.placement import LayerTest, WeightShard, everywhere, shards_where, weight_shards
from capacity.demand.weights import Module
from capacity.specs.deployment import Deployment
from capacity.specs.model import LayerGroup, ModelSpec, Stage
from capacity.units import Arithmetic, number_format


@dataclass(frozen=True, eq=False)
class RankOperators:
    """Operators of one pass on a device of a pipeline rank, of which ``ranks`` are equal.

    ``tail`` are those of the last layers that only the tokens need whose outputs are read: no later token depends on
    them. [rank]
    """

    table: OperatorTable
    tail: OperatorTable
    ranks: int


@lru_cache(maxsize=512)
def decoder_operators(model: ModelSpec, deploy: Deployment) -> OperatorTable:
    """The operators of one decode step on all pipeline ranks: every stage but encoders and resident parts."""
    return OperatorTable(_costs(model, deploy, _decoding(model), everywhere))


@lru_cache(maxsize=512)
def stage_operators(model: ModelSpec, deploy: Deployment, stage_name: str) -> OperatorTable:
    """The operators of one pass through one stage."""
    return OperatorTable(_costs(model, deploy, {stage_name}, everywhere))


@lru_cache(maxsize=512)
def rank_operators(model: ModelSpec, deploy: Deployment, stage_name: str | None = None) -> tuple[RankOperators, ...]:
    """The operators of one pass by pipeline rank, equal ranks together.

    Parameters
    ----------
    model : ModelSpec
        The network.
    deploy : Deployment
        Number formats and parallelism.
    stage_name : str or None
        One stage; None for all that a decode step goes through.
    """
    names = _decoding(model) if stage_name is None else {stage_name}
    if deploy.pipeline_parallel == 1:
        table = decoder_operators(model, deploy) if stage_name is None else stage_operators(model, deploy, stage_name)
        return (RankOperators(table, _tail_operators(model, deploy, names, everywhere), 1),)
    distinct: dict[tuple[object, ...], RankOperators] = {}
    for rank in range(deploy.pipeline_parallel):
        here = partial(_on_rank, rank)
        tables = OperatorTable(_costs(model, deploy, names, here)), _tail_operators(model, deploy, names, here)
        entry = distinct.setdefault((tables[0].costs, tables[1].costs), RankOperators(*tables, 0))
        distinct[tables[0].costs, tables[1].costs] = replace(entry, ranks=entry.ranks + 1)
    return tuple(distinct.values())


def _on_rank(this_rank: int, stage: str, layer: int | None, rank: int) -> bool:
    return rank == this_rank


def _decoding(model: ModelSpec) -> set[str]:
    return {stage.name for stage in model.stages if stage.role in ("decoder", "head")}


def _tail_operators(model: ModelSpec, deploy: Deployment, names: set[str], selects: LayerTest) -> OperatorTable:
    """The last layer that keeps a cache or state and all behind it, without what makes its keys, values or state."""
    stage = next((stage for stage in model.stages if stage.name in names and stage.role == "decoder"), None)
    if stage is None:
        return OperatorTable(())
    first = _last_keeping_layer(stage, model, deploy)

    def behind(name: str, layer: int | None, rank: int) -> bool:
        return layer is not None and layer >= first and selects(name, layer, rank)

    makers = {
        (stage.name, name)
        for group in stage.layers
        if first in group.indices
        for name in mixers.of(group.mixer).cache_makers(group.mixer)
    }
    costs = _costs(model, deploy, {stage.name}, behind, makers)
    return OperatorTable(tuple([cost for cost in costs if cost.token_flop or cost.key_flop]))


def _last_keeping_layer(stage: Stage, model: ModelSpec, deploy: Deployment) -> int:
    keeping = [
        layer
        for group in stage.layers
        for layer in group.indices
        if keeps_memory(group, layer_formats(layer, model, deploy), deploy)
    ]
    return max(keeping, default=stage.layer_count)


def keeps_memory(group: LayerGroup, formats: LayerFormats, deploy: Deployment) -> bool:
    """Whether a layer keeps a cache or a state for later tokens.

    Parameters
    ----------
    group : LayerGroup
        Equal layers.
    formats : LayerFormats
        Formats of what a layer keeps.
    deploy : Deployment
        Number formats, parallelism and limits.
    """
    kind, degree = mixers.of(group.mixer), deploy.tensor_parallel
    cache = kind.cache(group.mixer, formats, tensor_parallel=degree)
    return cache != LayerCache() or kind.state_bits(group.mixer, formats, tensor_parallel=degree) > 0


def _costs(
    model: ModelSpec,
    deploy: Deployment,
    names: set[str],
    selects: LayerTest,
    without: AbstractSet[tuple[str, str]] = frozenset(),
) -> tuple[OperatorCost, ...]:
    mixing = [
        cost
        for stage in model.stages
        if stage.name in names
        for group in stage.layers
        for cost in _mixing_costs(group, stage, model, deploy, selects)
        if not without or cost.key_flop
    ]
    return (*_weight_costs(model, deploy, names, selects, without), *_merged(mixing))


def _mixing_costs(
    group: LayerGroup, stage: Stage, model: ModelSpec, deploy: Deployment, selects: LayerTest
) -> Iterator[OperatorCost]:
    """The operators of a mixer beyond its matrices, for each run of layers that keep their memory in like formats."""
    kind, degree = mixers.of(group.mixer), 1 if stage.role == "encoder" else deploy.tensor_parallel
    here = [
        layer for layer in group.indices if selects(stage.name, layer, rank_of_layer(layer, stage.name, model, deploy))
    ]
    for formats, layers in Counter(layer_formats(layer, model, deploy) for layer in here).items():
        yield from kind.costs(group.mixer, formats, layers=layers, tensor_parallel=degree)


def layer_formats(layer: int, model: ModelSpec, deploy: Deployment) -> LayerFormats:
    """Formats of what one layer keeps for a sequence.

    Parameters
    ----------
    layer : int
        Index of the layer. [1]
    model : ModelSpec
        The network.
    deploy : Deployment
        Number formats, parallelism and limits.
    """
    cache = cache_format(layer, model, deploy)
    return LayerFormats(
        cache=cache,
        recurrent=state_format(layer, deploy),
        conv=conv_format(deploy),
        attention=arithmetic(cache, model, deploy),
    )


# Coefficients that grow with the layers they stand for; all other fields must be equal where costs are merged.
PER_LAYER = ("key_flop", "expanded_key_flop", "key_bytes", "token_flop", "sequence_bytes")
COUNTS = ("layers", "launches")


def _merged(costs: list[OperatorCost]) -> Iterator[OperatorCost]:
    """Costs of equal layers, as one."""
    groups: dict[tuple[object, ...], list[OperatorCost]] = {}
    fixed = [field.name for field in fields(OperatorCost) if field.name not in (*PER_LAYER, *COUNTS)]
    for cost in costs:
        rates = [getattr(cost, name) / cost.layers for name in PER_LAYER]
        groups.setdefault((*rates, *[getattr(cost, name) for name in fixed]), []).append(cost)
    for members in groups.values():
        first, layers = members[0], sum(cost.layers for cost in members)
        scaled = {name: getattr(first, name) / first.layers * layers for name in PER_LAYER}
        yield replace(first, layers=layers, launches=layers, **scaled)


def _weight_costs(
    model: ModelSpec,
    deploy: Deployment,
    names: set[str],
    selects: LayerTest,
    without: AbstractSet[tuple[str, str]],
) -> Iterator[OperatorCost]:
    """Matrices and vectors, merged where operator, arithmetic and expert count are the same."""
    merged: dict[tuple[str, Arithmetic, int, int, int], list[WeightShard]] = {}
    of_matrices = _matrix_arithmetic(model, deploy)
    shards = weight_shards(model, deploy)
    for shard in shards if selects is everywhere else shards_where(model, deploy, selects):
        module = shard.module
        if module.stage in names and module.read == "whole" and (module.stage, module.name) not in without:
            computes = arithmetic(number_format(shard.format), model, deploy)
            if module.vector:
                computes = of_matrices.get((module.stage, module.operator), computes)
            key = (module.operator, computes, module.copies, module.used, module.source_tokens)
            merged.setdefault(key, []).append(shard)
    for (operator, computes, copies, used, source_tokens), members in merged.items():
        cost = _weight_cost(operator, computes, copies, used, members, deploy)
        yield replace(cost, source_tokens=source_tokens)


@lru_cache(maxsize=512)
def _matrix_arithmetic(model: ModelSpec, deploy: Deployment) -> dict[tuple[str, str], Arithmetic]:
    """Arithmetic of the matrices of each stage and operator, in which its norms and biases are computed too."""
    formats: dict[tuple[str, str], Arithmetic] = {}
    for shard in weight_shards(model, deploy):
        module: Module = shard.module
        if not module.vector:
            computes = arithmetic(number_format(shard.format), model, deploy)
            formats.setdefault((module.stage, module.operator), computes)
    return formats


def _weight_cost(
    operator: str, computes: Arithmetic, copies: int, used: int, members: list[WeightShard], deploy: Deployment
) -> OperatorCost:
    matrices = [shard for shard in members if not shard.module.vector]
    total = sum(shard.total_bytes for shard in members)
    routed = operator == "experts"  # of which a layer may have a single one
    ranks = deploy.tensor_parallel * deploy.data_parallel
    flop = 0.0
    for shard in matrices:
        # A device of an expert layer does its share of the tokens of the whole replica.
        module = shard.module
        elements = module.rows * module.columns / ranks if routed else shard.rows * shard.columns
        flop += 2.0 * elements * used * shard.layers
    return OperatorCost(
        operator=operator,
        arithmetic=computes,
        launches=_launches(matrices),
        weight_bytes=0 if routed else total,
        expert_bytes=total if routed else 0,
        experts=copies if routed else 0,
        experts_used=used if routed else 0,
        experts_held=copies // (deploy.expert_parallel or 1) if routed else 0,
        token_flop=flop,
        last_token_only=operator == "head",
    )


def _launches(matrices: list[WeightShard]) -> int:
    """Matrices of one layer that read the same input in the same format run as one launch."""
    inputs = {(s.module.layers, s.module.columns, s.rank, s.format): s.layers for s in matrices}
    return sum(inputs.values())
