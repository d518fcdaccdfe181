"""What lies on one device, and in which number format: deployment and checkpoint applied to the weight table.

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
from capacity.demand.parallelism import check_overrides, check_parallelism
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
        If a degree does not divide what it must, an override matches nothing, or the stored formats contradict
        the bytes of the checkpoint.
    """
    if deploy.draft is not None:
        raise Unsupported("draft: speculation is counted by control(..., draft=...), not by sizes and step times")
    check_parallelism(model, deploy)
    check_overrides(model, deploy)
    if deploy.weights == AS_STORED:
        check_stored_bytes(model)
    return chosen_shards(model, deploy, everywhere)


# Whether something is wanted that lies in a layer (None: outside the layers) of a stage, on a pipeline rank.
Chosen = Callable[[str, "int | None", int], bool]


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


def chosen_shards(model: ModelSpec, deploy: Deployment, chosen: Chosen) -> tuple[WeightShard, ...]:
    """Those of `weight_shards` that lie in chosen layers, each with the number of such layers."""
    found = []
    for module in modules(model):
        rows, columns, copies = _local_shape(module, deploy)
        for (rank, stored), layers in _runs(module, model, deploy, chosen).items():
            found.append(WeightShard(module, stored, rank, rows, columns, copies, layers))
    return tuple(found)


def _runs(module: Module, model: ModelSpec, deploy: Deployment, chosen: Chosen) -> Counter[tuple[int, str]]:
    """Chosen layers of ``module`` by pipeline rank and format."""
    counted: Counter[tuple[int, str]] = Counter()
    for layer in module.layers if module.place == "layer" else (None,):
        rank = _rank_of(module, layer, model, deploy)
        if chosen(module.stage, layer, rank):
            counted[rank, stored_format(module, layer, model, deploy)] += 1
    return counted


def _rank_of(module: Module, layer: int | None, model: ModelSpec, deploy: Deployment) -> int:
    if layer is None:
        return deploy.pipeline_parallel - 1 if module.place == "after" else 0
    return rank_of_layer(layer, module.stage, model, deploy)


def rank_of_layer(layer: int, stage: str, model: ModelSpec, deploy: Deployment) -> int:
    """Pipeline rank of a layer: the decoder is cut into even runs, longer runs first; other stages stay on rank 0.

    Parameters
    ----------
    layer : int
        Number of the layer in its stage. [1]
    stage : str
        Name of the stage.
    model : ModelSpec
        The network.
    deploy : Deployment
        Number formats, parallelism and limits.

    Returns
    -------
    int
        The pipeline rank. [1]
    """
    if deploy.pipeline_parallel == 1 or stage != model.decoder.name:
        return 0
    base, longer = divmod(model.decoder.layer_count, deploy.pipeline_parallel)
    boundary = longer * (base + 1)
    return layer // (base + 1) if layer < boundary else longer + (layer - boundary) // base


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


def check_stored_bytes(model: ModelSpec) -> None:
    """Refuse formats in which the shapes of ``model`` take other bytes than the files of its checkpoint hold.

    Raises
    ------
    CapacityError
        If the two differ by more than `STORED_ALLOWANCE`.
    """
    held = model.checkpoint.total_bytes if model.checkpoint else None
    if held is None:
        return
    implied = sum(shard.total_bytes for shard in chosen_shards(model, Deployment(), everywhere) if shard.module.stored)
    if abs(implied - held) > STORED_ALLOWANCE * held:
        raise CapacityError(
            f"{model.name}: the files of the checkpoint hold {held:,} bytes of tensors, but its shapes take "
            f"{implied:,} in the formats that its configuration states; correct either, or give weights, for example "
            '"bf16"'
        )


@lru_cache(maxsize=512)
def weight_bytes_by_rank(model: ModelSpec, deploy: Deployment) -> tuple[dict[str, int], ...]:
    """Weight bytes on a device of each pipeline rank, by part. [B]"""
    return tuple(stored_bytes(model, deploy, rank) for rank in range(deploy.pipeline_parallel))


def stored_bytes(
    model: ModelSpec, deploy: Deployment, rank: int, offloaded: frozenset[tuple[str, str]] = frozenset()
) -> dict[str, int]:
    """Weight bytes on a device of pipeline ``rank`` by part, without ``offloaded`` pairs of stage and module. [B]

    A tied head on another pipeline rank than the table is a second copy.
    """
    held: dict[str, int] = {}
    copied = deploy.pipeline_parallel > 1 and rank == deploy.pipeline_parallel - 1
    for shard in weight_shards(model, deploy):
        module = shard.module
        here = shard.rank == rank and module.stored and (module.stage, module.name) not in offloaded
        if here or (copied and module.part == "lm_head" and not module.stored):
            held[module.part] = held.get(module.part, 0) + shard.total_bytes
    return held
