"""What one device holds, and in which number format: deployment and checkpoint applied to the weight table.

Tensor parallelism divides heads, intermediate widths and the padded vocabulary. An expert layer divides over all
tensor x data parallel devices, ``expert_parallel`` ways by expert and the rest by column. Pipeline stages hold
consecutive layers; the first also the table and the encoders, the last the head.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from capacity.demand.formats import stored_format
from capacity.demand.modules import modules
from capacity.demand.parallelism import MAX_TRIED, check_overrides, check_parallelism
from capacity.demand.pipeline import rank_of_layer
from capacity.demand.weights import Module
from capacity.errors import CapacityError, Unsupported
from capacity.specs.deployment import AS_STORED, Deployment
from capacity.specs.model import ModelSpec
from capacity.units import number_format

STORED_ALLOWANCE = 0.02  # scales, index tables and buffers of the many writers of quantised files


@dataclass(frozen=True, slots=True)
class WeightShard:
    """The share of a module that one device of pipeline ``rank`` holds, in one format."""

    module: Module
    format: str
    rank: int
    rows: int
    columns: int
    copies: int
    layers: int

    @property
    def total_bytes(self) -> int:
        """Bytes of all layers and copies on the device. [B]"""
        return number_format(self.format).matrix_bytes(self.rows, self.columns) * self.copies * self.layers


@lru_cache(maxsize=512)
def weight_shards(model: ModelSpec, deploy: Deployment) -> tuple[WeightShard, ...]:
    """The weights of one device of each pipeline rank.

    Raises
    ------
    CapacityError
        If a degree does not divide what it must or cuts a group of a format, an override matches nothing, or the
        stored formats contradict the bytes of the checkpoint.
    """
    if deploy.draft is not None:
        raise Unsupported(
            "draft: sizes and step times do not count speculation; leave it out, or ask control, which counts it for "
            "the decisions of a world model"
        )
    check_parallelism(model, deploy)
    check_overrides(model, deploy)
    if deploy.weights == AS_STORED:
        check_stored_bytes(model)
    shards = shards_where(model, deploy, everywhere)
    check_group_alignment(model, deploy, shards)
    return shards


# Selects by stage, layer (None: outside the layers) and pipeline rank.
LayerTest = Callable[[str, "int | None", int], bool]


def everywhere(stage: str, layer: int | None, rank: int) -> bool:
    """All layers of all ranks.

    Parameters
    ----------
    stage : str
        Name of a stage.
    layer : int or None
        One of its layers. [1]
    rank : int
        The pipeline rank of that layer. [1]
    """
    return True


def shards_where(model: ModelSpec, deploy: Deployment, selects: LayerTest) -> tuple[WeightShard, ...]:
    """The shards of `weight_shards` in selected layers, each with the number of such layers.

    Parameters
    ----------
    model : ModelSpec
        The network.
    deploy : Deployment
        Number formats, parallelism and limits.
    selects : callable
        Predicate of stage, layer (None: outside the layers) and pipeline rank.
    """
    shards = []
    for module in modules(model):
        rows, columns, copies = _local_shape(module, deploy)
        for (rank, stored), layers in _runs(module, model, deploy, selects).items():
            shards.append(WeightShard(module, stored, rank, rows, columns, copies, layers))
    return tuple(shards)


def _runs(module: Module, model: ModelSpec, deploy: Deployment, selects: LayerTest) -> Counter[tuple[int, str]]:
    """Selected layers of ``module`` by pipeline rank and format."""
    counted: Counter[tuple[int, str]] = Counter()
    for layer in module.layers if module.place == "layer" else (None,):
        rank = _rank_of(module, layer, model, deploy)
        if selects(module.stage, layer, rank):
            counted[rank, stored_format(module, layer, model, deploy)] += 1
    return counted


def _rank_of(module: Module, layer: int | None, model: ModelSpec, deploy: Deployment) -> int:
    if layer is None:
        return deploy.pipeline_parallel - 1 if module.place == "after" else 0
    return rank_of_layer(layer, module.stage, model, deploy)


def _local_shape(module: Module, deploy: Deployment) -> tuple[int, int, int]:
    """Rows, columns and copies of ``module`` on one device; shares that do not come out even are rounded up."""
    tp = deploy.tensor_parallel
    rows, columns, copies = module.rows, module.columns, module.copies
    if module.shard == "rows":
        heads = -(-rows // module.unit)
        rows = -(-heads // tp) * module.unit
    elif module.shard == "columns":
        columns = -(-columns // tp)
    elif module.shard == "vocabulary":
        rows = -(-rows // tp)
    elif module.shard.startswith("expert"):
        by_expert = deploy.expert_parallel or 1
        by_column = tp * deploy.data_parallel // by_expert
        copies = copies // by_expert
        if module.shard == "expert_columns":
            columns = -(-columns // by_column)
        elif module.shard == "expert_rows":
            rows = -(-(rows // module.unit) // by_column) * module.unit
    return rows, columns, copies


def check_group_alignment(model: ModelSpec, deploy: Deployment, shards: tuple[WeightShard, ...]) -> None:
    """Refuse a shard that splits a quantisation group or block, as engines do.

    Parameters
    ----------
    model : ModelSpec
        The network.
    deploy : Deployment
        Number formats, parallelism and limits.
    shards : tuple of WeightShard
        What each pipeline rank holds.

    Raises
    ------
    CapacityError
        Naming the matrix, its share and the group, and the degrees that work.
    """
    broken = next((text for shard in shards if (text := _broken_group(shard))), None)
    if broken is None:
        return
    degrees = [degree for degree in range(1, MAX_TRIED + 1) if _cuts_evenly(model, deploy, degree)]
    other = f"tensor_parallel {', '.join(map(str, degrees))}" if degrees else "no tensor_parallel"
    verb = "works" if len(degrees) < 2 else "work"
    experts = ", or spread the experts whole with expert_parallel" if "expert" in broken else ""
    raise CapacityError(f"{model.name}: {broken}; {other} {verb}{experts}")


def _broken_group(shard: WeightShard) -> str | None:
    """Which dimension of a shard is not a multiple of the quantisation group, as text."""
    module, stored = shard.module, number_format(shard.format)
    if not stored.whole_groups or module.vector:
        return None
    down = stored.group_rows if stored.group == "block" else 1
    across = stored.group_columns if stored.group == "block" else int(stored.group)
    axes = [(shard.rows, module.rows, down, "rows"), (shard.columns, module.columns, across, "columns")]
    for local, total, step, axis in axes:
        if local < total and local % step:
            return (
                f"a device's share of {module.name} has {local:,} {axis}, not a multiple of the {step} of {stored.name}"
            )
    return None


def _cuts_evenly(model: ModelSpec, deploy: Deployment, degree: int) -> bool:
    try:
        candidate = deploy.replace(tensor_parallel=degree)
        check_parallelism(model, candidate)
        return not any(map(_broken_group, shards_where(model, candidate, everywhere)))
    except CapacityError:
        return False


def check_stored_bytes(model: ModelSpec) -> None:
    """Refuse formats in which the shapes of ``model`` take other bytes than the files of its checkpoint hold.

    Parameters
    ----------
    model : ModelSpec
        The network.

    Raises
    ------
    CapacityError
        If the two differ by more than `STORED_ALLOWANCE`.
    """
    stored = model.checkpoint.total_bytes if model.checkpoint else None
    if stored is None:
        return
    implied = sum(shard.total_bytes for shard in shards_where(model, Deployment(), everywhere) if shard.module.stored)
    if abs(implied - stored) > STORED_ALLOWANCE * stored:
        raise CapacityError(
            f"{model.name}: the files of the checkpoint hold {stored:,} bytes of tensors, but its shapes take "
            f"{implied:,} in the formats that its configuration states; correct either, or give weights, for example "
            '"bf16"'
        )


def stored_bytes(
    model: ModelSpec, deploy: Deployment, offloaded: frozenset[tuple[str, str]] = frozenset()
) -> tuple[dict[str, int], ...]:
    """Weight bytes on a device of each pipeline rank by part, without ``offloaded`` pairs of stage and module. [B]

    A tied head on another pipeline rank than the table is a second copy.

    Parameters
    ----------
    model : ModelSpec
        The network.
    deploy : Deployment
        Number formats, parallelism and limits.
    offloaded : frozenset
        Pairs of stage and module that lie in host memory.

    Returns
    -------
    tuple of dict
        Bytes by part, one table per pipeline rank. [B]
    """
    by_rank: list[dict[str, int]] = [{} for _ in range(deploy.pipeline_parallel)]
    for shard in weight_shards(model, deploy):
        module = shard.module
        if module.stored and (module.stage, module.name) not in offloaded:
            _add(by_rank[shard.rank], module.part, shard.total_bytes)
        elif not module.stored and module.part == "lm_head" and deploy.pipeline_parallel > 1:
            _add(by_rank[-1], module.part, shard.total_bytes)
    return tuple(by_rank)


def _add(sizes: dict[str, int], part: str, size: int) -> None:
    sizes[part] = sizes.get(part, 0) + size
