"""The reference decoder and its measured runs: what the estimates are checked against."""

from __future__ import annotations

from typing import Any

__all__ = ["observe"]


def __getattr__(name: str) -> Any:
    """Load ``observe`` on first use: the rest of the package is imported by its modules."""
    if name != "observe":
        raise AttributeError(f"module 'capacity.measure' has no attribute {name!r}")
    from capacity.validation.observation import observe

    globals()["observe"] = observe
    return observe
