"""Published decode rates under tensor parallelism, compared with the bound and the attainable time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from capacity.catalog.models import load_model
from capacity.catalog.parts import load_hardware
from capacity.errors import CapacityError
from capacity.estimate import request
from capacity.estimate.case import prepare
from capacity.results import OUTSIDE_TIME, Result
from capacity.specs.deployment import Deployment
from capacity.validation.compare import Errors, Pair, summarise
from capacity.validation.published_table import count, positive, read_table

COLUMNS = (
    "id",
    "model",
    "part",
    "weights",
    "tensor_parallel",
    "batch",
    "prompt_tokens",
    "output_tokens",
    "tokens_per_s",
)


ASSUMED = (
    "fields of the deployment that a row does not state have their defaults",
    "context of a decode step = prompt + output / 2",
)


@dataclass(frozen=True, repr=False)
class PublishedSpeed(Result):
    """Attainable times compared with published ones, with bounds; ``left_out`` are rows of unknown models or parts.

    ``attainable`` summarises the error of attainable times; it is no promise, and may lie above what was measured.
    """

    pairs: tuple[Pair, ...]
    left_out: tuple[str, ...]
    attainable: Errors
    bounds_hold: bool
    assumed: tuple[str, ...] = ASSUMED
    notes: tuple[str, ...] = ()
    not_modelled: tuple[str, ...] = OUTSIDE_TIME


def validate(file: str | Path | None = None) -> PublishedSpeed:
    """Compare the shipped table, or another with the same columns.

    Raises
    ------
    CapacityError
        If the file cannot be read, lacks a column, or no row can be compared.
    """
    pairs, left_out = [], []
    for row in _rows(file):
        try:
            pairs.append(_pair(row))
        except CapacityError as error:
            left_out.append(f"{row['id']}: {error}")
    if not pairs:
        raise CapacityError(f"{file or 'the shipped table'}: no row can be compared ({'; '.join(left_out[:3])})")
    return PublishedSpeed(
        pairs=tuple(pairs),
        left_out=tuple(left_out),
        attainable=summarise(pairs),
        bounds_hold=all(pair.bound_holds for pair in pairs),
    )


def published_rows() -> int:
    """How many rows the shipped table has."""
    return len(_rows(None))


def _pair(row: dict[str, str]) -> Pair:
    deploy = Deployment.parse(
        {"weights": row["weights"], "tensor_parallel": _count(row, "tensor_parallel")}, where=row["id"]
    )
    prompt, output, batch = (_count(row, name) for name in ("prompt_tokens", "output_tokens", "batch"))
    model, part = load_model(row["model"]), load_hardware(row["part"])
    estimate = request.tpot(prepare(model, part, deploy), batch=batch, context_tokens=prompt + output // 2)
    if estimate.attainable is None:
        raise CapacityError(f"no attainable time on {part.name}")
    return Pair(
        name=f"{row['model']} {row['weights']} on {row['tensor_parallel']} x {part.name}",
        unit="s",
        predicted=float(estimate.attainable),
        measured=batch / _rate(row),
        bound=float(estimate.bound),
        group=row["weights"],
        note=row.get("source", ""),
    )


def _count(row: dict[str, str], name: str) -> int:
    found = count(row[name])
    if not found:
        raise CapacityError(f"{name} must be a whole number from 1, got {row[name][:40]!r}")
    return found


def _rate(row: dict[str, str]) -> float:
    rate = positive(row["tokens_per_s"])
    if rate is None or rate > 1e9:
        raise CapacityError(f"tokens_per_s must be a positive number, got {row['tokens_per_s'][:40]!r}")
    return rate


def _rows(file: str | Path | None) -> list[dict[str, str]]:
    return read_table(file, shipped="tensor_parallel.csv", columns=COLUMNS)
