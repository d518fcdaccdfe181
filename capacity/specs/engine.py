"""How one serving engine allocates the memory of a device: names of policies, pools, with sources."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from capacity.specs.base import Bytes, Count, Fraction, Positive, Source, Spec

Parts = Annotated[int, Field(ge=1, le=1000, strict=True)]
"""A share as a small whole number, which keeps products with bytes exact."""


class Policies(Spec):
    """Names of allocation policies; each is a function of ``capacity/engines``.

    ``session_cache`` is the cache of a world model, whose sequences are sessions of robots; ``overheads`` are what the
    engine takes apart from weights, caches and activations.
    """

    budget: str
    cache: str
    session_cache: str
    activations: str
    overheads: tuple[str, ...] = ()


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


class Settings(Spec):
    """What an engine does where the operator states nothing; None: as the reference does. [token], [sequence]

    Caches of latents are held in blocks of ``latent_block_tokens``.
    """

    memory_fraction: Fraction | None = None
    block_tokens: Count | None = None
    latent_block_tokens: Count | None = None
    prefill_chunk_tokens: Count | None = None
    max_sequences: Count | None = None


class PartSettings(Settings):
    """Settings of parts with at least so much memory, but not of those whose id has one of these words. [B]"""

    min_capacity_bytes: Bytes
    except_parts: tuple[str, ...] = ()

    def covers(self, part_id: str, capacity_bytes: int) -> bool:
        """Whether a part of this id and capacity takes these settings."""
        return capacity_bytes >= self.min_capacity_bytes and not any(word in part_id for word in self.except_parts)


class ActivationTerms(Spec):
    """Peak of a profiled pass: so many bytes for each sequence allowed and entry of the vocabulary (the sampler), and
    for each token of the largest pass and hidden column (the widest layer). [B]
    """

    sequence_entry_bytes: Positive
    token_column_bytes: Positive


class ProcessMemory(Spec):
    """What a worker takes outside its allocator, from this tensor-parallel degree on. [B]"""

    tensor_parallel: Count
    held_bytes: Bytes


class GraphMemory(Spec):
    """What captured graphs take, and whether the engine sets it apart before it sizes its cache. [B]"""

    held_bytes: Bytes
    inside: bool


class CacheRules(Spec):
    """Constants of cache policies; each policy says which it uses.

    Layers of several kinds are grouped by the count of the rarer kind, or of the commoner where that is below
    ``group_spread`` times the rarer. A sequence has ``state_pages`` of each group of state layers, and keeps all
    but ``spared_columns`` of the window of a convolution. Cells of a cache are a multiple of ``cell_tokens``.
    [page], [token]
    """

    group_spread: Positive = 1.0
    state_pages: Count = 1
    cell_tokens: Count = 1
    spared_columns: Annotated[int, Field(ge=0, le=1, strict=True)] = 0


class EngineSpec(Spec):
    """One engine, as ``data/engines`` describes it, in one version.

    Without ``pools`` all rows are added up. Rows named in ``outside_fraction`` lie in what the budget leaves.
    ``counts_runtime``: context and libraries are rows too; otherwise they need room that no row takes.
    ``driver_bytes`` of the capacity that the driver's tool reports are not seen by a process. ``tokens_line`` is how
    the engine prints its cache as a number of tokens. ``version`` is the one whose rules these are (empty: it has no
    versions), ``version_note`` what of the version asked for is assumed.
    """

    name: str
    description: str
    version: str = ""
    version_note: str = ""
    policies: Policies
    defaults: Settings = Settings()
    part_defaults: tuple[PartSettings, ...] = ()
    activation_terms: ActivationTerms | None = None
    process: tuple[ProcessMemory, ...] = ()
    graphs: GraphMemory | None = None
    driver_bytes: Annotated[int, Field(ge=0, lt=2**40, strict=True)] = 0
    cache_rules: CacheRules = CacheRules()
    tokens_line: Literal["none", "blocks", "concurrency", "tokens"] = "none"
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
