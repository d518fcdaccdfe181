"""Fitted constants of the latency law, where they hold, what they came from and how far they miss."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from capacity.specs.base import Count, Fraction, FrozenMapping, NonNegative, Source, Spec
from capacity.specs.deployment import LaunchMode
from capacity.specs.ranges import BytesPerS, FixedSeconds


class Scope(Spec):
    """Where a calibration holds; ``None`` means any. ``device_class`` is a part id or a prefix of several.

    ``largest_batch`` and ``largest_context_tokens`` are the ends of the range that was measured: beyond them the
    constants are a guess. [sequence], [token]
    """

    model_kind: Literal["language", "world"]
    engine: str | None = None
    phase: Literal["decode", "prefill"] | None = None
    device_class: str | None = None
    launch_mode: LaunchMode | None = None
    weights: str | None = None
    largest_batch: Count | None = None
    largest_context_tokens: Count | None = None

    @model_validator(mode="after")
    def the_range_has_both_ends(self) -> Self:
        if (self.largest_batch is None) != (self.largest_context_tokens is None):
            raise ValueError("give both largest_batch and largest_context_tokens, or neither")
        return self


class TypicalShare(Spec):
    """Shares of the datasheet bandwidth and matrix peak that stand in on parts whose ceilings were not measured. [1]"""

    memory: Fraction
    flop: Fraction


class HoldOutError(Spec):
    """How far the calibrated law missed points that did not take part in the fit."""

    points: Count
    held_out_by: str
    mean_absolute: NonNegative
    p90: NonNegative
    worst: NonNegative


class Calibration(Spec):
    """Constants of the law in ``formulas/latency.py`` and the band that goes with them.

    Efficiencies are by operator, with ``default`` for the rest: shares of the datasheet and of ``read_bytes_per_s``
    where it is given, or, with a ``typical_share``, of the measured ceilings of a part. Times are in seconds. The
    estimate is ``value``, the band ``value * band_low`` to ``value * band_high``.
    """

    name: str
    scope: Scope
    memory_efficiency: FrozenMapping[str, Fraction] = FrozenMapping({"default": 1.0})
    flop_efficiency: FrozenMapping[str, Fraction] = FrozenMapping({"default": 1.0})
    layer_s: FixedSeconds = 0.0
    launch_s: FixedSeconds = 0.0
    sequence_s: FixedSeconds = 0.0
    host_floor_s: FixedSeconds = 0.0
    prefill_share: Annotated[float, Field(ge=0, lt=1)] = 0.0
    band_low: Annotated[float, Field(gt=0, le=1)]
    band_high: Annotated[float, Field(ge=1)]
    read_bytes_per_s: BytesPerS | None = None
    typical_share: TypicalShare | None = None
    points: tuple[str, ...]
    hold_out: HoldOutError | None = None
    sources: tuple[Source, ...] = ()
