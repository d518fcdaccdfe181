"""What limits a case, in words, from its code and the numbers behind it."""

from __future__ import annotations

from capacity.presentation.figures import counted
from capacity.presentation.sheet import Cell, Parts
from capacity.results import Enough, Sizing
from capacity.studies.parts import Shortage


def verdict_words(sizing: Sizing) -> Parts:
    """Whether a sizing fits, by what margin, and on how many devices it would."""
    margin = Cell(abs(sizing.margin_bytes), "B")
    if sizing.fits:
        return ("fits, ", margin, " to spare per device")
    if sizing.binding == "max_sequences":
        allowed, requested = Cell(_max_sequences(sizing), "sequence"), Cell(sizing.batch, "sequence")
        return ("does not fit: max_sequences ", allowed, " is below the ", requested, " sequences requested")
    return ("does not fit: ", margin, " missing per device", *(_enough(sizing.enough) if sizing.enough else ()))


def _enough(enough: Enough) -> Parts:
    assumed = "".join(f", assuming {line}" for line in enough.assumed)
    degree = Cell(enough.tensor_parallel, "device")
    return (f"; fits on {counted(enough.devices, 'device')} (--tensor-parallel ", degree, f"{assumed})")


def binding_words(sizing: Sizing) -> Parts:
    """What binds a sizing: of one that fits what ends its batch or context, else what it lacks."""
    if sizing.binding == "positions":
        return ("the context is beyond the ", Cell(sizing.positions, "token"), " positions of the model")
    if sizing.fits and sizing.binding == "memory":
        return ("memory limits the batch to ", Cell(sizing.max_batch, "sequence"))
    ledger = sizing.heaviest
    return shortage_words(
        Shortage(
            devices=sizing.devices,
            binding=sizing.binding,
            weight_bytes=sizing.weight_bytes,
            usable_bytes=ledger.usable_bytes,
            max_batch=sizing.max_batch,
            batch=sizing.batch,
            max_sequences=_max_sequences(sizing),
        )
    )


def shortage_words(shortage: Shortage) -> Parts:
    """What the devices that were tried lack."""
    if shortage.binding == "weights":
        needed, usable = Cell(shortage.weight_bytes, "B"), Cell(shortage.usable_bytes, "B")
        return ("weights alone need ", needed, " of ", usable, " usable per device")
    if shortage.binding == "max_sequences":
        return ("max_sequences ", Cell(shortage.max_sequences, "sequence"), " limits the batch")
    held, requested = Cell(shortage.max_batch, "sequence"), Cell(shortage.batch, "sequence")
    return ("memory holds ", held, " of the ", requested, " sequences")


def _max_sequences(sizing: Sizing) -> int | None:
    allowed: int | None = sizing.deployment["max_sequences"]
    return allowed
