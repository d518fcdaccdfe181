"""Which degrees of parallelism and which overrides a model can have."""

from __future__ import annotations

from capacity.demand import feed_forwards, mixers
from capacity.demand.modules import modules
from capacity.errors import CapacityError
from capacity.specs.deployment import Deployment
from capacity.specs.model import ModelSpec, Stage


def cut_stages(model: ModelSpec) -> tuple[Stage, ...]:
    """The stages whose layers tensor parallelism cuts; encoders are held whole on every rank."""
    return tuple(stage for stage in model.stages if stage.role != "encoder" and stage.layers)


def check_parallelism(model: ModelSpec, deploy: Deployment) -> None:
    """Refuse degrees that do not divide heads, experts or layers of each stage that is cut.

    Raises
    ------
    CapacityError
        Naming the degree, what it must divide, and the model.
    """
    cut = cut_stages(model)
    has_decoder = any(stage.role == "decoder" for stage in model.stages)
    if deploy.devices > 1 and not (cut and (has_decoder or deploy.pipeline_parallel == 1)):
        raise CapacityError(f"{model.name} has no decoder: parallelism over {deploy.devices} devices is not modelled")
    if has_decoder and deploy.pipeline_parallel > model.decoder.layer_count:
        raise CapacityError(
            f"pipeline_parallel {deploy.pipeline_parallel} is more than the {model.decoder.layer_count} layers of "
            f"{model.name}"
        )
    split = deploy.pipeline_split
    if has_decoder and split is not None and sum(split) != model.decoder.layer_count:
        raise CapacityError(
            f"pipeline_split {', '.join(map(str, split))} adds up to {sum(split)}, not to the "
            f"{model.decoder.layer_count} layers of {model.name}"
        )
    for stage in cut:
        name = model.name if stage.role == "decoder" else f"{model.name}, stage {stage.name}"
        for group in stage.layers:
            mixer, forward = group.mixer, group.feed_forward
            mixers.of(mixer).check_sharding(mixer, name, tensor_parallel=deploy.tensor_parallel)
            feed_forwards.of(forward).check_sharding(forward, name, expert_parallel=deploy.expert_parallel or 1)


def check_overrides(model: ModelSpec, deploy: Deployment) -> None:
    """Refuse an override that matches nothing.

    Raises
    ------
    CapacityError
        Naming the override.
    """
    for override in deploy.overrides:
        where = f" in layers {override.layers}" if override.layers else ""
        if not any(override.covers(layer) for layer in _layers_with(override.part, model)):
            if override.part == "lm_head" and _has_tied_head(model):
                raise CapacityError(
                    f"override lm_head = {override.format}: the head of {model.name} is tied, it is read as its table "
                    "is stored; override embedding"
                )
            raise CapacityError(f"override {override.part} = {override.format}{where} matches nothing in {model.name}")


def _has_tied_head(model: ModelSpec) -> bool:
    return any(module.part == "lm_head" and not module.stored for module in modules(model))


def _layers_with(part: str, model: ModelSpec) -> set[int]:
    """Layers that have a part; a part outside the layers counts as in layer 0."""
    if part in ("kv_cache", "state"):
        groups = [group for stage in model.stages for group in stage.layers]
        keeping = [group for group in groups if part == mixers.of(group.mixer).OVERRIDE_PART]
        return {layer for group in keeping for layer in group.indices}
    found: set[int] = set()
    for module in modules(model):
        if module.part == part and not module.vector and module.stored:
            found |= set(module.layers) if module.place == "layer" else {0}
    return found
