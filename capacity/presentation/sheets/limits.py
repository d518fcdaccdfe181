"""What limits a case, in words, from its code and the numbers behind it."""

from __future__ import annotations

from capacity.presentation.figures import counted
from capacity.presentation.sheet import Cell, Parts
from capacity.results import Enough, RelaxedLimit, SharedMemory, Sizing
from capacity.studies.parts import Shortage


def verdict_words(sizing: Sizing) -> Parts:
    """Whether a sizing fits, by what margin, and on how many devices it would."""
    margin = Cell(abs(sizing.margin_bytes), "B")
    if sizing.verdict == "tight":
        return ("tight, ", margin, " to spare per device: ", *runtime_words(*_smallest_margin(sizing)))
    if sizing.fits:
        return ("fits, ", margin, " to spare per device")
    if sizing.binding == "max_sequences":
        allowed, requested = Cell(_max_sequences(sizing), "sequence"), Cell(sizing.batch, "sequence")
        return ("does not fit: max_sequences ", allowed, " is below the ", requested, " sequences requested")
    enough = _enough(sizing.enough) if sizing.enough else ()
    return ("does not fit: ", margin, " missing per device", *_turned(sizing.turned_by), *enough)


def _turned(limits: tuple[RelaxedLimit, ...]) -> Parts:
    """A note that the verdict depends on assumed limits."""
    if not limits:
        return ()
    assumed = " and ".join(f"{one.name} {one.assumed:g}" for one in limits)
    turning = " and ".join(f"{one.turning:g}" for one in limits)
    return (f" at the assumed {assumed}; it fits at {turning}",)


def _smallest_margin(sizing: Sizing) -> tuple[int, int]:
    tightest = min(sizing.ledger, key=lambda ledger: ledger.left_bytes)
    return tightest.left_bytes, tightest.runtime_bytes


def runtime_words(left_bytes: int, runtime_bytes: int) -> Parts:
    """What is left for a runtime that no line holds, and what it needs. [B]"""
    return (Cell(left_bytes, "B"), " are left for the runtime, which needs about ", Cell(runtime_bytes, "B"))


def shared_words(shared: SharedMemory) -> Parts:
    """That the system shares the memory, and what is set aside for it."""
    set_aside = Cell(shared.set_aside_bytes, "B")
    aside: Parts = (set_aside, " set aside for them") if shared.set_aside_bytes else ("nothing is set aside for them",)
    more: Parts = (", which keep about ", Cell(shared.expected_bytes, "B")) if shared.expected_bytes else ()
    return ("memory shared with the system and other programs", *more, ": ", *aside, "; --taken sets more aside")


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
    max_batch, requested = Cell(shortage.max_batch, "sequence"), Cell(shortage.batch, "sequence")
    return ("memory holds ", max_batch, " of the ", requested, " sequences")


def _max_sequences(sizing: Sizing) -> int | None:
    allowed: int | None = sizing.deployment["max_sequences"]
    return allowed
