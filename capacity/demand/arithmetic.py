"""In which format an operator is stored, in which it computes, and who says so.

Stated is what `Deployment.activations` or the checkpoint's activation scheme say. Where neither does, an ordinary
engine computes 16-bit and weight-only formats in 16 bits, fp8 in fp8, and 4-bit floats in 4 bits; which path of a part
that is, and which faster one a bound must allow for, is for `capacity.supply.paths`.
"""

from __future__ import annotations

from functools import lru_cache

from capacity.specs.deployment import AS_STORED, Deployment
from capacity.specs.model import ModelSpec
from capacity.units import Arithmetic, NumberFormat, number_format

SIXTEEN_BIT = "bf16"


def stated_activations(model: ModelSpec, deploy: Deployment) -> str | None:
    """The compute format that the deployment gives, or the activation scheme of the checkpoint; None where neither.

    Parameters
    ----------
    model : ModelSpec
        The network.
    deploy : Deployment
        Number formats, parallelism and limits.
    """
    if deploy.activations is not None:
        return deploy.activations
    stored = model.checkpoint if deploy.weights == AS_STORED else None
    return stored.activations if stored is not None else None


@lru_cache(maxsize=512)
def sixteen_bit_type(model: ModelSpec, deploy: Deployment) -> str:
    """The 16-bit type in which weight-only formats are computed: that of the weights or of the checkpoint's norms."""
    activations = stated_activations(model, deploy)
    if activations is not None:
        return sixteen_bit(activations)
    name = deploy.weights
    if name == AS_STORED and model.checkpoint is not None:
        name = model.checkpoint.format_of("norm")
    return name if name != AS_STORED and number_format(name).element_bits == 16 else SIXTEEN_BIT


def sixteen_bit(activations: str | None) -> str:
    """The 16-bit (or wider) format that goes with a compute format; bf16 where none is given.

    Parameters
    ----------
    activations : str or None
        The compute format that is stated.
    """
    wide = activations is not None and number_format(activations).element_bits >= 16
    return str(activations) if wide else SIXTEEN_BIT


def arithmetic(stored: NumberFormat, model: ModelSpec, deploy: Deployment) -> Arithmetic:
    """How an operator on a stored operand computes.

    Parameters
    ----------
    stored : NumberFormat
        Format of the weights, or of the cache that attention reads.
    model : ModelSpec
        The network, with its checkpoint.
    deploy : Deployment
        Number formats.
    """
    return _arithmetic(stored.name, stated_activations(model, deploy), sixteen_bit_type(model, deploy), deploy)


@lru_cache(maxsize=1024)
def _arithmetic(stored: str, activations: str | None, sixteen: str, deploy: Deployment) -> Arithmetic:
    operand = number_format(stored)
    if activations is None:
        return Arithmetic(stored, default_compute_format(operand, sixteen))
    return Arithmetic(stored, wider_format(operand, activations), "deployment" if deploy.activations else "checkpoint")


def default_compute_format(stored: NumberFormat, sixteen: str) -> str:
    """The format in which an ordinary engine computes where nothing is stated.

    Parameters
    ----------
    stored : NumberFormat
        How the operand is stored.
    sixteen : str
        The 16-bit type of weight-only formats.

    >>> [default_compute_format(number_format(name), "fp16") for name in ("bf16", "int4_g128", "fp8_block128", "mxfp4")]
    ['bf16', 'fp16', 'fp8_e4m3', 'mxfp4']
    """
    if stored.element_bits >= 16 or stored.is_narrow_float:
        return stored.name
    return "fp8_e4m3" if stored.family == "float" and stored.arithmetic_bits == 8 else sixteen


def wider_format(stored: NumberFormat, activations: str) -> str:
    """The format an operator computes in: the wider of how its operand is stored and ``activations``.

    Two formats of one width and different families (int8 weights, fp8 activations) have no common path and meet
    at 16 bit.

    Parameters
    ----------
    stored : NumberFormat
        How the operand is stored.
    activations : str
        The compute format that is stated.

    >>> wider_format(number_format("int4_g128"), "bf16"), wider_format(number_format("bf16"), "int8")
    ('bf16', 'bf16')
    """
    computes = number_format(activations)
    if stored.arithmetic_bits < computes.arithmetic_bits:
        return computes.name
    if stored.arithmetic_bits > computes.arithmetic_bits:
        return stored.name if stored.element_bits >= 16 else sixteen_bit(activations)
    same = stored.family == computes.family or computes.element_bits >= 16
    return computes.name if same else sixteen_bit(activations)
