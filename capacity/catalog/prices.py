"""Dated prices of an hour of one device."""

from __future__ import annotations

import csv
import io
from functools import cache

from capacity.files import package_data
from capacity.specs.prices import Price


def load_prices(part: str | None = None) -> tuple[Price, ...]:
    """Dated offers for an hour of one device, newest first; of one part, or of all.

    Examples
    --------
    >>> [(price.seller, price.usd_per_hour_low) for price in load_prices("nvidia-gh200-96gb")]
    [('Lambda', 2.29)]
    """
    return tuple(price for price in _all_prices() if part in (None, price.part))


@cache
def _all_prices() -> tuple[Price, ...]:
    prices = []
    for name in package_data.names("data/prices", ".csv"):
        rows = csv.DictReader(io.StringIO(package_data.text(f"data/prices/{name}.csv")))
        prices += [Price.parse(row, f"{name}.csv line {line}") for line, row in enumerate(rows, start=2)]
    return tuple(sorted(prices, key=lambda price: price.date, reverse=True))
