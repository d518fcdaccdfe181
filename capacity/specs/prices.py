"""Prices of one device per hour: volatile, so they are dated, sourced and kept apart from the facts of a part."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from capacity.specs.base import Spec

Printed = Annotated[float, Field(gt=0, allow_inf_nan=False)]  # not strict: a cell of a CSV file is text


class Price(Spec):
    """One offer, or a seller's range, per device and hour; ``date`` is as exact as it is known."""

    part: str
    seller: str = ""
    offer: str = ""
    usd_per_hour_low: Printed
    usd_per_hour_high: Printed
    date: Annotated[str, Field(pattern=r"^20[0-9]{2}(-[0-9]{2}(-[0-9]{2})?)?$")]
    source: Annotated[str, Field(min_length=4)]

    @model_validator(mode="after")
    def low_is_not_above_high(self) -> Self:
        """The low end of a range is not above its high end."""
        if self.usd_per_hour_low > self.usd_per_hour_high:
            raise ValueError(f"usd_per_hour_low {self.usd_per_hour_low:g} is above high {self.usd_per_hour_high:g}")
        return self
