"""What all results share: plain values, comparison, and the way to their text and HTML."""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np


class Result:
    """Printing and plain values shared by the results; their text and HTML are made by ``presentation``.

    A dataclass inside a result that names properties in ``DERIVED`` has them in its dictionary too.
    """

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain Python values, arrays as lists; units are in the names."""
        return _plain(self)

    def __eq__(self, other: object) -> bool:
        """Whether both say the same, arrays element by element."""
        return type(self) is type(other) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash((type(self), repr(self.to_dict())))

    def __str__(self) -> str:
        from capacity.presentation import terminal

        return terminal.text(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from capacity.presentation import notebook

        return notebook.html(self)


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in fields(value)] + list(getattr(value, "DERIVED", ()))
        return {name: _plain(getattr(value, name)) for name in names}
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, np.ndarray):
        return [_plain(item) for item in value.tolist()]
    plain = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(plain, float) and not math.isfinite(plain) else plain
