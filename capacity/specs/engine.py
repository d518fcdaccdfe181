"""How one serving engine allocates the memory of a device: names of policies, pools, with sources."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from capacity.specs.base import Source, Spec

Parts = Annotated[int, Field(ge=1, le=1000, strict=True)]
"""A share as a small whole number, which keeps products with bytes exact."""


class Policies(Spec):
    """Names of allocation policies; each is a function of ``capacity/engines``.

    ``session_cache`` is the cache of a world model, whose sequences are sessions of robots.
    """

    budget: str
    cache: str
    session_cache: str
    activations: str


class Pool(Spec):
    """Memory set apart for the ``rows`` of these names: ``parts`` of all parts of what other rows leave of the budget.

    Its size is rounded down or up to whole blocks. Needs of its rows are added; with ``ratios``, one for each row, the
    pool holds that many blocks of one row for so many of another, and a sequence counts as its largest need divided by
    the ratio.
    """

    name: str
    rows: tuple[str, ...]
    parts: Parts = 1
    rounding: Literal["floor", "ceil"] = "floor"
    ratios: tuple[Parts, ...] = ()

    @model_validator(mode="after")
    def _one_ratio_for_each_row(self) -> Self:
        if self.ratios and len(self.ratios) != len(self.rows):
            raise ValueError(f"ratios must be one for each of {len(self.rows)} rows, got {len(self.ratios)}")
        return self


class EngineSpec(Spec):
    """One engine, as ``data/engines`` describes it.

    Without ``pools`` all rows are added up. Rows named in ``outside_fraction`` lie in what the budget leaves.
    ``counts_runtime``: context and libraries are rows too; otherwise they need room that no row takes.
    """

    name: str
    description: str
    policies: Policies
    pools: tuple[Pool, ...] = ()
    outside_fraction: tuple[str, ...] = ()
    counts_runtime: bool = True
    sources: tuple[Source, ...]

    @model_validator(mode="after")
    def _a_row_is_in_one_pool(self) -> Self:
        names = [row for pool in self.pools for row in pool.rows]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"a row can be in one pool only, got {', '.join(twice)} in several")
        if both := sorted(set(names) & set(self.outside_fraction)):
            raise ValueError(f"a row of a pool lies inside the fraction, got {', '.join(both)} in outside_fraction")
        return self
