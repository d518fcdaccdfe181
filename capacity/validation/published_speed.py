"""Published decode rates under tensor parallelism beside the bound and the attainable time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from capacity.catalog.parts import load_hardware, load_model
from capacity.errors import CapacityError
from capacity.estimate import time as evaluate
from capacity.results import Result
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


@dataclass(frozen=True, repr=False)
class PublishedSpeed(Result):
    """Rows of attainable beside published time, with the bound; ``left_out`` counts rows of unknown models or parts.

    ``attainable`` summarises the error of attainable times; it is no promise, and may lie above what was measured.
    """

    pairs: tuple[Pair, ...]
    left_out: tuple[str, ...]
    attainable: Errors
    bounds_hold: bool

    def table(self) -> list[tuple[str, str]]:
        rows = []
        for pair in self.pairs:
            bound = 0.0 if pair.bound is None else pair.bound / pair.measured
            shares = f"bound/measured {bound:.2f}, attainable/measured {pair.ratio:.2f}"
            rows.append((pair.name, f"measured {pair.measured * 1e3:7.3f} ms, {shares}"))
        rows.append(("bounds", "all below measured" if self.bounds_hold else "a bound is ABOVE a measurement"))
        error = self.attainable
        shown = f"mean absolute {error.mean_absolute:.1%}, p90 {error.p90:.1%}, worst {error.worst:.1%}"
        rows.append(("attainable", f"{error.rows} rows: {shown}"))
        return rows + [("left out", reason) for reason in self.left_out]


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
    estimate = evaluate.tpot(model, part, deploy, batch=batch, context_tokens=prompt + output // 2)
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
