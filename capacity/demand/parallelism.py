"""Which degrees of parallelism and which overrides a model can have."""

from __future__ import annotations

from capacity.demand import feed_forwards, mixers
from capacity.demand.modules import modules
from capacity.errors import CapacityError
from capacity.specs.deployment import Deployment
from capacity.specs.model import ModelSpec, Stage

MAX_TRIED = 64  # degrees tried and named where one is refused


def cut_stages(model: ModelSpec) -> tuple[Stage, ...]:
    """The stages whose layers tensor parallelism cuts; encoders are held whole on every rank.

    Parameters
    ----------
    model : ModelSpec
        The network.
    """
    return tuple(stage for stage in model.stages if stage.role != "encoder" and stage.layers)


def check_parallelism(model: ModelSpec, deploy: Deployment) -> None:
    """Refuse degrees that do not divide heads, experts or layers of each stage that is cut.

    Parameters
    ----------
    model : ModelSpec
        The network.
    deploy : Deployment
        Number formats, parallelism and limits.

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
    try:
        _check_degrees(model, deploy.tensor_parallel, deploy.expert_parallel or 1)
    except CapacityError as error:
        raise CapacityError(f"{error}; {_working_degrees(model, deploy)}") from None


def _check_degrees(model: ModelSpec, tensor_parallel: int, expert_parallel: int) -> None:
    """Refuse degrees that do not divide the heads or experts of a layer."""
    for stage in cut_stages(model):
        name = model.name if stage.role == "decoder" else f"{model.name}, stage {stage.name}"
        for group in stage.layers:
            mixer, forward = group.mixer, group.feed_forward
            mixers.of(mixer).check_sharding(mixer, name, tensor_parallel=tensor_parallel)
            feed_forwards.of(forward).check_sharding(forward, name, expert_parallel=expert_parallel)


def _working_degrees(model: ModelSpec, deploy: Deployment) -> str:
    """The degrees that work, and the pipeline where the model can be one."""
    tensor = [one for one in range(1, MAX_TRIED + 1) if _divides(model, one, 1)]
    if not _divides(model, deploy.tensor_parallel, 1):
        pipeline = any(stage.role == "decoder" and stage.layer_count > 1 for stage in model.stages)
        other = ", or pipeline_parallel, which gives each device whole layers" if pipeline else ""
        return f"tensor_parallel can be {_listed(tensor)}{other}"
    experts = [one for one in range(1, MAX_TRIED + 1) if _divides(model, 1, one)]
    return f"expert_parallel can be {_listed(experts)}, where it divides tensor_parallel x data_parallel"


def _divides(model: ModelSpec, tensor_parallel: int, expert_parallel: int) -> bool:
    try:
        _check_degrees(model, tensor_parallel, expert_parallel)
    except CapacityError:
        return False
    return True


def _listed(degrees: list[int]) -> str:
    """Degrees as people list alternatives.

    >>> _listed([1, 2, 4]), _listed([1])
    ('1, 2 or 4', '1')
    """
    *others, last = map(str, degrees)
    return f"{', '.join(others)} or {last}" if others else last


def check_overrides(model: ModelSpec, deploy: Deployment) -> None:
    """Refuse an override that matches nothing.

    Parameters
    ----------
    model : ModelSpec
        The network.
    deploy : Deployment
        Number formats, parallelism and limits.

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
    layers: set[int] = set()
    for module in modules(model):
        if module.part == part and not module.vector and module.stored:
            layers |= set(module.layers) if module.place == "layer" else {0}
    return layers
