"""Which number format a weight, a cache or a state is held in; `capacity.demand.arithmetic` says how it is computed."""

from __future__ import annotations

from capacity.demand.arithmetic import SIXTEEN_BIT, sixteen_bit
from capacity.demand.weights import Module
from capacity.errors import CapacityError
from capacity.specs.deployment import AS_STORED, Deployment
from capacity.specs.model import ModelSpec
from capacity.units import NumberFormat, number_format

QUANTISED_PARTS = ("attention", "mlp", "experts")
TABLES = ("embedding", "lm_head")  # which the formats of GGUF files quantise as well


def stored_format(module: Module, layer: int | None, model: ModelSpec, deploy: Deployment) -> str:
    """The number format in which a module is held; the last matching override wins. A tied head is its table.

    Parameters
    ----------
    module : Module
        A weight of the table.
    layer : int or None
        Index of the layer; None outside the layers. [1]
    model : ModelSpec
        The network.
    deploy : Deployment
        Number formats, parallelism and limits.
    """
    if module.vector or module.part == "norm":
        return _vector_format(model, deploy)
    part = "embedding" if module.part == "lm_head" and not module.stored else module.part
    name = _base_format(part, layer, model, deploy)
    for override in deploy.overrides:
        if override.part == part and (layer is None or override.covers(layer)):
            name = override.format
    return name


def _base_format(part: str, layer: int | None, model: ModelSpec, deploy: Deployment) -> str:
    if deploy.weights == AS_STORED:
        return _checkpoint_format(part, layer, model)
    weights = number_format(deploy.weights)
    quantised = (*QUANTISED_PARTS, *TABLES) if weights.gguf_only else QUANTISED_PARTS
    return deploy.weights if part in quantised or weights.element_bits >= 16 else SIXTEEN_BIT


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


def cache_format(layer: int, model: ModelSpec, deploy: Deployment) -> NumberFormat:
    """The number format of the key-value cache of one layer: what the checkpoint states by default, else 16 bit.

    Parameters
    ----------
    layer : int
        Index of the layer. [1]
    model : ModelSpec
        The network.
    deploy : Deployment
        Number formats, parallelism and limits.
    """
    default = deploy.kv_cache or stated_cache(model, deploy) or sixteen_bit(deploy.activations)
    return _layer_format("kv_cache", default, layer, deploy)


def stated_cache(model: ModelSpec, deploy: Deployment) -> str | None:
    """The cache format that the checkpoint states, where weights are as it stores them.

    Parameters
    ----------
    model : ModelSpec
        The network.
    deploy : Deployment
        Number formats, parallelism and limits.
    """
    return model.checkpoint.kv_cache if deploy.weights == AS_STORED and model.checkpoint is not None else None


def state_format(layer: int, deploy: Deployment) -> NumberFormat:
    """The number format of the recurrent state of one layer: fp32 by default, as the reference library keeps it.

    Parameters
    ----------
    layer : int
        Index of the layer. [1]
    deploy : Deployment
        Number formats, parallelism and limits.
    """
    return _layer_format("state", deploy.state or "fp32", layer, deploy)


def _layer_format(part: str, name: str, layer: int, deploy: Deployment) -> NumberFormat:
    for override in deploy.overrides:
        if override.part == part and override.covers(layer):
            name = override.format
    return number_format(name)


def conv_format(deploy: Deployment) -> NumberFormat:
    """The number format of convolution states, which are kept at 16 bit.

    Parameters
    ----------
    deploy : Deployment
        Number formats, parallelism and limits.
    """
    return number_format(sixteen_bit(deploy.activations))


def activation_element_bytes(deploy: Deployment) -> int:
    """Bytes of one activation, held in the 16-bit (or wider) compute format. [B]

    Parameters
    ----------
    deploy : Deployment
        Number formats, parallelism and limits.

    Returns
    -------
    int
        Per element. [B]
    """
    return number_format(sixteen_bit(deploy.activations)).element_bits // 8
