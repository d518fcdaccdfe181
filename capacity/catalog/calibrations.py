"""The shipped calibrations of the latency law."""

from __future__ import annotations

from functools import cache

from capacity.files import package_data
from capacity.specs.calibration import Calibration, TypicalShare

FOLDER = "data/calibrations"


@cache
def calibrations() -> tuple[Calibration, ...]:
    """Every calibration under ``data/calibrations`` by file name; a ``typical_share`` of a file holds for all of it."""
    return tuple(
        Calibration.parse({**_shared(table), **row}, where=f"{name}.toml")
        for name in package_data.names(FOLDER, ".toml")
        for table in (package_data.toml(f"{FOLDER}/{name}.toml"),)
        for row in table.get("calibration", ())
    )


@cache
def typical_share() -> TypicalShare:
    """Shares of the datasheet that stand in on parts without measured ceilings."""
    return next(item.typical_share for item in calibrations() if item.typical_share is not None)


def _shared(table: dict[str, object]) -> dict[str, object]:
    return {"typical_share": table["typical_share"]} if "typical_share" in table else {}
