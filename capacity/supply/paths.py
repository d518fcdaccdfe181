"""Which path of a part an operator computes on: that of an ordinary engine, and the fastest that a bound must allow.

Unstated, a bound takes the fastest path that the part has and that some engine uses for this storage: 16-bit weights
and weight-only formats the fastest 16-bit path; GGUF kinds and int8 the int8 path too, in which llama.cpp multiplies
quantised products; fp8 the fp8 path; 4-bit floats the 4-bit path, else fp8, else 16 bit.
"""

from __future__ import annotations

from capacity.errors import CapacityError
from capacity.specs.hardware import HardwareSpec
from capacity.units import Arithmetic, number_format

SIXTEEN_BIT_PATHS = ("bf16", "fp16")
WIDER = {"bf16": ("fp16", "fp32"), "fp16": ("bf16", "fp32")}


def ordinary_path(hardware: HardwareSpec, arithmetic: Arithmetic) -> str | None:
    """The format whose path an ordinary engine takes on this part: the one it wants, or the next wider.

    Parameters
    ----------
    hardware : HardwareSpec
        The part.
    arithmetic : Arithmetic
        Stored and wanted compute format, and who states the latter.

    Returns
    -------
    str or None
        None where the part has no such path, or the deployment insists on one that it does not have.
    """
    computed = arithmetic.computed
    if hardware.peak(computed) is not None:
        return computed
    if arithmetic.stated_by == "deployment":
        return None
    return next((name for name in _wider(computed) if hardware.peak(name) is not None), None)


def _wider(computed: str) -> tuple[str, ...]:
    """Formats in which an engine computes where a part lacks the path of the one wanted, the narrowest first."""
    narrow = number_format(computed)
    if narrow.element_bits >= 16:
        return WIDER.get(computed, ())
    return (*(("fp8_e4m3",) if narrow.is_narrow_float else ()), *SIXTEEN_BIT_PATHS, "fp32")


def bound_paths(arithmetic: Arithmetic) -> tuple[str, ...]:
    """Formats whose paths a bound must allow for, the fastest of which counts.

    Parameters
    ----------
    arithmetic : Arithmetic
        Stored and compute format, and who states the latter.
    """
    if arithmetic.stated_by is not None:
        return (arithmetic.computed,)
    stored = number_format(arithmetic.stored)
    if stored.element_bits > 16:
        return (arithmetic.computed,)
    if stored.is_narrow_float:
        return (stored.name, "fp8_e4m3", *SIXTEEN_BIT_PATHS)
    if stored.family == "float" and stored.arithmetic_bits == 8:
        return ("fp8_e4m3", *SIXTEEN_BIT_PATHS)
    integer = stored.gguf_only or (stored.family == "int" and stored.element_bits == 8)
    return ("int8", *SIXTEEN_BIT_PATHS) if integer else SIXTEEN_BIT_PATHS


def require_path(hardware: HardwareSpec, arithmetic: Arithmetic) -> str:
    """The path of `ordinary_path`.

    Raises
    ------
    CapacityError
        If the part has none, saying which it has.
    """
    path = ordinary_path(hardware, arithmetic)
    if path is not None:
        return path
    computed = arithmetic.computed
    if arithmetic.stated_by == "deployment":
        advice = no_path(hardware, computed, "choose activations among:")
        if hardware.paths() and number_format(computed).element_bits < 16:
            advice += "; weights stored in this format are then dequantised"
        raise CapacityError(advice)
    raise CapacityError(no_path(hardware, computed, "weights or cache of this deployment need it; it has:"))


def no_path(hardware: HardwareSpec, name: str, lead: str) -> str:
    """That a part cannot compute in a format, and the formats in which it can."""
    paths = hardware.paths()
    if not paths:
        return f"{hardware.name}: no peak is recorded for this part, so no time in {name} can be bounded"
    return f"{hardware.name} has no {name} path; {lead} {', '.join(paths)}"
