"""How much of the read rate is left where weights are dequantised before they are multiplied."""

from __future__ import annotations

from functools import lru_cache

from capacity.files import package_data
from capacity.units import Arithmetic, number_format


@lru_cache(maxsize=1)
def _shares() -> dict[int, float]:
    table = package_data.toml("data/dequantised.toml")
    return {int(bits): float(share) for bits, share in table.items() if bits != "sources"}


def read_shares(arithmetic: frozenset[Arithmetic]) -> dict[Arithmetic, float]:
    """The share of the read rate that each dequantised operand reaches; what is missing reaches all of it. [1]

    A width between two that were measured takes the share of the narrower.

    Parameters
    ----------
    arithmetic : frozenset of Arithmetic
        How operators are stored and computed.
    """
    return {item: share for item in arithmetic if (share := _share(item)) < 1.0}


def _share(item: Arithmetic) -> float:
    bits = number_format(item.stored).element_bits
    if bits >= number_format(item.computed).element_bits:
        return 1.0
    table = _shares()
    return table[max([width for width in table if width <= bits], default=min(table))] if bits <= max(table) else 1.0


def dequantised_note(shares: dict[Arithmetic, float]) -> str:
    """That attainable times count dequantised weights at a share of the read rate, and which share."""
    listed = ", ".join(dict.fromkeys(f"{item.stored} {share:.0%}" for item, share in sorted(shares.items())))
    return f"attainable: of the read rate dequantised weights reach, as published for gpt-fast, {listed}"
