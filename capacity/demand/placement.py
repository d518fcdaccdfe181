"""What lies on one device, and in which number format: deployment and checkpoint applied to the weight table.

Tensor parallelism divides heads, intermediate widths and the padded vocabulary. An expert layer divides over all
tensor x data parallel devices, ``expert_parallel`` ways by expert and the rest by column. Pipeline stages hold
consecutive layers; the first also the table and the encoders, the last the head.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from capacity.demand.modules import Module, modules
from capacity.errors import CapacityError, Unsupported
from capacity.specs.deployment import AS_STORED, Deployment
from capacity.specs.model import Attention, Experts, LatentAttention, ModelSpec, StateMixer
from capacity.units import NumberFormat, number_format

QUANTISED_PARTS = ("attention", "mlp", "experts")
SIXTEEN_BIT = "bf16"
STORED_ALLOWANCE = 0.02  # scales, index tables and buffers of the many writers of quantised files


@dataclass(frozen=True, slots=True)
class Piece:
    """The share of a module that one device of pipeline ``rank`` holds, in one format."""

    module: Module
    format: str
    rank: int
    rows: int
    columns: int
    copies: int
    layers: int

    @property
    def copy_bytes(self) -> int:
        """Bytes of one copy of one layer. [B]"""
        return number_format(self.format).matrix_bytes(self.rows, self.columns)

    @property
    def total_bytes(self) -> int:
        """Bytes of all layers and copies here. [B]"""
        return self.copy_bytes * self.copies * self.layers


@lru_cache(maxsize=512)
def pieces(model: ModelSpec, deploy: Deployment) -> tuple[Piece, ...]:
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
    return _placed(model, deploy)


def _placed(model: ModelSpec, deploy: Deployment) -> tuple[Piece, ...]:
    found = []
    for module in modules(model):
        rows, columns, copies = rank_shape(module, deploy)
        for (rank, stored), layers in _runs(module, model, deploy).items():
            found.append(Piece(module, stored, rank, rows, columns, copies, layers))
    return tuple(found)


def _runs(module: Module, model: ModelSpec, deploy: Deployment) -> dict[tuple[int, str], int]:
    """Layers of ``module`` by pipeline rank and format."""
    if module.place != "layer":
        rank = deploy.pipeline_parallel - 1 if module.place == "after" else 0
        return {(rank, stored_format(module, None, model, deploy)): 1}
    runs: dict[tuple[int, str], int] = {}
    for layer in module.layers:
        key = (rank_of_layer(layer, module.stage, model, deploy), stored_format(module, layer, model, deploy))
        runs[key] = runs.get(key, 0) + 1
    return runs


def rank_of_layer(layer: int, stage: str, model: ModelSpec, deploy: Deployment) -> int:
    """Pipeline rank of a layer: the decoder is cut into even runs, longer runs first; other stages stay on rank 0."""
    if deploy.pipeline_parallel == 1 or stage != model.decoder.name:
        return 0
    base, longer = divmod(model.decoder.layer_count, deploy.pipeline_parallel)
    boundary = longer * (base + 1)
    return layer // (base + 1) if layer < boundary else longer + (layer - boundary) // base


def rank_shape(module: Module, deploy: Deployment) -> tuple[int, int, int]:
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
        experts_ways = deploy.expert_parallel or 1
        ways = tp * deploy.data_parallel // experts_ways
        copies = copies // experts_ways
        if module.shard == "expert_columns":
            columns = -(-columns // ways)
        elif module.unit > 1 or not module.vector:
            rows = -(-(rows // module.unit) // ways) * module.unit
    return rows, columns, copies


def stored_format(module: Module, layer: int | None, model: ModelSpec, deploy: Deployment) -> str:
    """The number format in which a module is held; the last matching override wins."""
    if module.vector or module.part == "norm":
        return _vector_format(model, deploy)
    chosen = _base_format(module.part, layer, model, deploy)
    for override in deploy.overrides:
        if override.part == module.part and (layer is None or override.covers(layer)):
            chosen = override.format
    return chosen


def _base_format(part: str, layer: int | None, model: ModelSpec, deploy: Deployment) -> str:
    if deploy.weights == AS_STORED:
        return _checkpoint_format(part, layer, model)
    if part in QUANTISED_PARTS or number_format(deploy.weights).element_bits >= 16:
        return deploy.weights
    return SIXTEEN_BIT


def _checkpoint_format(part: str, layer: int | None, model: ModelSpec) -> str:
    if model.checkpoint is None:
        raise CapacityError(
            f'{model.name}: weights = "as_stored" needs a checkpoint and this model has none; '
            'give a number format, for example weights = "bf16"'
        )
    return model.checkpoint.format_of(part, layer)


def _vector_format(model: ModelSpec, deploy: Deployment) -> str:
    if deploy.weights == AS_STORED:
        stored = number_format(_checkpoint_format("norm", None, model))
        return stored.name if stored.element_bits >= 16 else SIXTEEN_BIT
    return deploy.weights if number_format(deploy.weights).element_bits >= 16 else SIXTEEN_BIT


def cache_format(layer: int, deploy: Deployment) -> NumberFormat:
    """The number format of the key-value cache of one layer; the 16-bit compute format unless said."""
    name = deploy.kv_cache or sixteen_bit(deploy.activations)
    for override in deploy.overrides:
        if override.part == "kv_cache" and override.covers(layer):
            name = override.format
    return number_format(name)


def state_format(layer: int, deploy: Deployment) -> NumberFormat:
    """The number format of the recurrent state of one layer: fp32 unless said, as the reference library keeps it."""
    name = deploy.state or "fp32"
    for override in deploy.overrides:
        if override.part == "state" and override.covers(layer):
            name = override.format
    return number_format(name)


def sixteen_bit(compute_format: str) -> str:
    """The 16-bit (or wider) format that goes with a compute format."""
    return compute_format if number_format(compute_format).element_bits >= 16 else SIXTEEN_BIT


def check_stored_bytes(model: ModelSpec) -> None:
    """Refuse formats in which the shapes of ``model`` take other bytes than the files of its checkpoint hold."""
    held = model.checkpoint.total_bytes if model.checkpoint else None
    if held is None:
        return
    implied = sum(piece.total_bytes for piece in _placed(model, Deployment()) if piece.module.stored)
    if abs(implied - held) > STORED_ALLOWANCE * held:
        raise CapacityError(
            f"{model.name}: the files of the checkpoint hold {held:,} bytes of tensors, but its shapes take "
            f"{implied:,} in the formats that its configuration states; correct either, or give weights, for example "
            '"bf16"'
        )


def check_parallelism(model: ModelSpec, deploy: Deployment) -> None:
    """Refuse degrees that do not divide heads, experts or layers of the decoder."""
    if not any(stage.role == "decoder" for stage in model.stages):
        if deploy.devices > 1:
            raise CapacityError(
                f"{model.name} has no decoder: parallelism over {deploy.devices} devices is not modelled"
            )
        return
    layers = model.decoder.layer_count
    if deploy.pipeline_parallel > layers:
        raise CapacityError(
            f"pipeline_parallel {deploy.pipeline_parallel} is more than the {layers} layers of {model.name}"
        )
    for group in model.decoder.layers:
        _check_mixer(group.mixer, model.name, deploy.tensor_parallel)
        if isinstance(group.feed_forward, Experts):
            ways = deploy.expert_parallel or 1
            if group.feed_forward.experts % ways:
                raise CapacityError(
                    f"expert_parallel {ways} must divide the {group.feed_forward.experts} experts of {model.name}"
                )


def _check_mixer(mixer: object, name: str, tp: int) -> None:
    if isinstance(mixer, Attention | LatentAttention) and mixer.query_heads % tp:
        raise CapacityError(f"tensor_parallel {tp} must divide the {mixer.query_heads} attention heads of {name}")
    if isinstance(mixer, Attention) and mixer.kv_heads % tp and tp % mixer.kv_heads:
        raise CapacityError(
            f"tensor_parallel {tp} and the {mixer.kv_heads} KV heads of {name}: one must divide the other"
        )
    if isinstance(mixer, StateMixer) and mixer.heads % tp:
        raise CapacityError(f"tensor_parallel {tp} must divide the {mixer.heads} state heads of {name}")


def check_overrides(model: ModelSpec, deploy: Deployment) -> None:
    """Refuse an override that matches nothing."""
    for override in deploy.overrides:
        where = f" in layers {override.layers}" if override.layers else ""
        if not any(override.covers(layer) for layer in _layers_with(override.part, model)):
            raise CapacityError(f"override {override.part} = {override.format}{where} matches nothing in {model.name}")


def _layers_with(part: str, model: ModelSpec) -> set[int]:
    if part in ("kv_cache", "state"):
        wanted = StateMixer if part == "state" else (Attention, LatentAttention)
        groups = [group for stage in model.stages for group in stage.layers if isinstance(group.mixer, wanted)]
        return {layer for group in groups for layer in group.indices}
    found: set[int] = set()
    for module in modules(model):
        if module.part == part and not module.vector and module.stored:
            found |= set(module.layers) if module.place == "layer" else {0}
    return found
