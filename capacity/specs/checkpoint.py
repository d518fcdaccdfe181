"""How a model is stored: a number format for each part, and exact bytes where file headers were read."""

from __future__ import annotations

from typing import Literal

from capacity.specs.base import Bytes, Count, CountOrZero, FrozenMapping, Source, Spec
from capacity.units import FormatName

WeightPart = Literal["attention", "mlp", "experts", "router", "embedding", "lm_head", "vision", "norm"]


class StoredOverride(Spec):
    """Layers of one part, from ``first`` up to but without ``stop``, that are stored in another format."""

    part: WeightPart
    first: CountOrZero
    stop: Count
    format: FormatName


class Checkpoint(Spec):
    """Formats by part; what ``parts`` does not name is in ``default``.

    ``activations`` is the compute format that its activation scheme states, ``kv_cache`` the format of its cache
    scheme; a storage type states neither.
    ``total_bytes`` are those of the model's tensors, from the headers of its files. ``evidence`` is ``published``
    where a file of this model states the formats.
    """

    default: FormatName
    parts: FrozenMapping[WeightPart, FormatName] = FrozenMapping()
    overrides: tuple[StoredOverride, ...] = ()
    total_bytes: Bytes | None = None
    activations: FormatName | None = None
    kv_cache: FormatName | None = None
    evidence: Literal["published", "assumed"] = "assumed"
    sources: tuple[Source, ...] = ()

    def format_of(self, part: str, layer: int | None = None) -> str:
        """The format in which ``part`` is stored, of one layer when given."""
        for override in reversed(self.overrides):
            if override.part == part and layer is not None and override.first <= layer < override.stop:
                return override.format
        return self.parts.get(part, self.default)  # type: ignore[call-overload]
