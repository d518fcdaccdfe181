"""One weight of a layer or stage: which operator reads it, which part it belongs to, its shape, how it shards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Shard = Literal["rows", "columns", "vocabulary", "expert_rows", "expert_columns", "expert_whole", "whole"]
Place = Literal["before", "layer", "after"]


@dataclass(frozen=True, slots=True)
class Module:
    """A weight of ``rows`` outputs from ``columns`` inputs, once in each of ``layers`` (or once, outside them).

    ``copies`` experts lie side by side, of which a token visits ``used``. ``unit`` rows stay together when rows
    are divided (a head). ``vector``: a norm, bias or sink, kept at 16 bit. ``stored`` is false where another
    module's memory is read again (a tied head, a shared block). ``source_tokens``: it projects another stage's
    tokens, once per sequence.
    """

    name: str
    operator: str
    part: str
    stage: str
    rows: int
    columns: int
    shard: Shard
    layers: tuple[int, ...] = ()
    place: Place = "layer"
    copies: int = 1
    used: int = 1
    unit: int = 1
    vector: bool = False
    stored: bool = True
    read: Literal["whole", "rows", "never"] = "whole"
    source_tokens: int = 0

    @property
    def repeats(self) -> int:
        """How often the module occurs: once per layer, or once."""
        return len(self.layers) if self.place == "layer" else 1

    @property
    def parameters(self) -> int:
        """Parameters of all layers and copies."""
        return self.rows * self.columns * self.copies * self.repeats


def matrix(name: str, operator: str, part: str, rows: int, columns: int, shard: Shard, *, unit: int = 1) -> Module:
    """A matrix of one layer, before it knows its stage and layers.

    Parameters
    ----------
    name : str
        Name of the weight.
    operator : str
        The operator that reads it.
    part : str
        The part it belongs to.
    rows : int
        Outputs. [1]
    columns : int
        Inputs. [1]
    shard : Shard
        How tensor parallelism cuts it.
    unit : int
        Rows that stay together when rows are divided. [1]
    """
    return Module(name, operator, part, "", rows, columns, shard, unit=unit)


def vector(
    name: str, operator: str, size: int, *, part: str = "attention", shard: Shard = "whole", unit: int = 1
) -> Module:
    """A norm, bias or sink of one layer, before it knows its stage and layers.

    Parameters
    ----------
    name : str
        Name of the weight.
    operator : str
        The operator that reads it.
    size : int
        Elements. [1]
    part : str
        The part it belongs to.
    shard : Shard
        How tensor parallelism cuts it.
    unit : int
        Rows that stay together when rows are divided. [1]
    """
    return Module(name, operator, part, "", size, 1, shard, unit=unit, vector=True)
