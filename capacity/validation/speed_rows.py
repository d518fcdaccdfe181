"""Rows of published speeds as cases: model, parts, deployments, what was timed. Read from the inputs of a row alone."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from capacity.catalog.models import load_model
from capacity.demand.feed_forwards import routes
from capacity.specs.deployment import Deployment
from capacity.specs.model import ModelSpec
from capacity.validation.published_names import LeftOut, model_of_label, parts_of_label, rules
from capacity.validation.published_table import count, positive
from capacity.validation.speed_deployments import Row, deployments_of, devices_of

COLUMNS = (
    "id",
    "kind",
    "model",
    "weights_dtype_quant",
    "kv_dtype",
    "gpu",
    "n_gpus",
    "tp",
    "batch_or_concurrency",
    "prompt_len",
    "gen_len",
    "context_len",
    "framework",
    "observed_value",
    "observed_unit",
    "layer_split",
    "physics_flag",
    "source",
    "note",
)
Timed = Literal["decode", "prefill", "requests", "sustained"]
KINDS: dict[str, Timed] = {
    "decode_tps_per_seq": "decode",
    "decode_tps_total": "decode",
    "tpot_ms": "decode",
    "itl_ms": "decode",
    "ttft_ms": "prefill",
    "prefill_tps": "prefill",
}


@dataclass(frozen=True)
class SpeedCase:
    """One row: a decode step, a prefill, whole requests that start together, or a sustained rate.

    ``measured_s`` is the time of a step of ``batch`` sequences, of the prefill of ``batch`` prompts, of ``batch``
    whole requests, or per token at any batch. Several ``parts`` and ``deployments`` are what a source leaves open.
    Where a source does not say how many sequences ran (``batch_stated``), a step has at least one, and no attainable
    time is compared. [s], [sequence], [token]
    """

    row_id: str
    timed: Timed
    model: str
    parts: tuple[str, ...]
    deployments: tuple[Deployment, ...]
    batch: int
    context_tokens: int
    prompt_tokens: int
    output_tokens: int
    measured_s: float
    group: str
    engine: str
    source: str
    batch_stated: bool = True


@dataclass(frozen=True)
class Lengths:
    """Tokens of a request and sequences in flight, as a row states them; None where it does not. [token], [sequence]"""

    batch: int | None
    prompt: int | None
    output: int | None
    context: int | None


@dataclass(frozen=True)
class Reading:
    """Rows that can be compared, and the ids of the others by the reason why not."""

    cases: tuple[SpeedCase, ...]
    apart: Mapping[str, tuple[str, ...]]
    left_out: Mapping[str, tuple[str, ...]]


def read_cases(rows: Sequence[Row], *, flagged_too: Sequence[Row] = ()) -> Reading:
    """The cases among ``rows``; what a flag says of rows like it holds for flags of ``flagged_too`` as well."""
    cases: list[SpeedCase] = []
    apart: dict[str, list[str]] = {}
    left_out: dict[str, list[str]] = {}
    flags = _flagged([*rows, *flagged_too])
    for row in rows:
        if reason := _reason_apart(row) or next((why for why, matches_flag in flags if matches_flag(row)), None):
            apart.setdefault(reason, []).append(row["id"])
            continue
        try:
            cases.append(_case(row))
        except LeftOut as error:
            left_out.setdefault(str(error), []).append(row["id"])
    return Reading(tuple(cases), _frozen(apart), _frozen(left_out))


def _frozen(ids: Mapping[str, list[str]]) -> dict[str, tuple[str, ...]]:
    return {reason: tuple(members) for reason, members in ids.items()}


def _reason_apart(row: Row) -> str | None:
    for rule in rules()["apart"]:
        if row["kind"] in rule.get("kinds", KINDS) and re.search(rule["pattern"], row[rule["column"]].lower()):
            return str(rule["reason"])
    return None


def _flagged(rows: Sequence[Row]) -> list[tuple[str, Callable[[Row], bool]]]:
    """Reasons that a flag of one row gives for all rows like it, each with the test for such rows."""
    flags: list[tuple[str, Callable[[Row], bool]]] = []
    for rule in rules()["flagged"]:
        columns, kinds = rule["alike"], rule.get("kinds", KINDS)
        flagged = {tuple(row[name] for name in columns) for row in rows if rule["pattern"] in row["physics_flag"]}

        def like(row: Row, flagged: Any = flagged, columns: Any = columns, kinds: Any = kinds) -> bool:
            return row["kind"] in kinds and tuple(row[name] for name in columns) in flagged

        flags.append((str(rule["reason"]), like))
    return flags


def _case(row: Row) -> SpeedCase:
    if row["kind"] not in KINDS:
        raise LeftOut("not the time of a step or a prompt")
    model, parts = model_of_label(row["model"]), parts_of_label(row["gpu"])
    deployments = deployments_of(row, load_model(model))
    lengths = _lengths(row)
    timed, seconds = _timed(row, lengths)
    batch = 1 if row["kind"] == "ttft_ms" else lengths.batch or 1  # a first token may come from the first prompt alone
    _check_lengths(timed, lengths)
    return SpeedCase(
        row_id=row["id"],
        timed=timed,
        model=model,
        parts=parts,
        deployments=deployments,
        batch=batch,
        context_tokens=lengths.context or 1,
        prompt_tokens=lengths.prompt or 1,
        output_tokens=lengths.output or 1,
        measured_s=seconds,
        group=_group(row, timed, load_model(model), lengths.batch),
        engine=row["framework"],
        source=row["source"],
        batch_stated=timed == "prefill" or bool(lengths.batch) or _saturated(row),
    )


def _saturated(row: Row) -> bool:
    return bool(re.search(rules()["batch"]["saturated"], row["batch_or_concurrency"].strip().lower()))


def _batch(row: Row) -> int | None:
    """Sequences in flight; None for words that stand for a number that is not known."""
    text = row["batch_or_concurrency"].strip().lower()
    if batch := count(text):
        return batch
    if _saturated(row) or re.search(rules()["batch"]["unknown"], text):
        return None
    raise LeftOut("no batch")


def _lengths(row: Row) -> Lengths:
    prompt, output = _tokens(row["prompt_len"]), _tokens(row["gen_len"])
    context = _tokens(row["context_len"]) or (prompt + (output or 0) // 2 if prompt else None)
    return Lengths(_batch(row), prompt, output, context)


def _tokens(text: str) -> int | None:
    """Tokens of "512", "~100" or "495.9"; None for words."""
    number = positive(text.strip().lstrip("~"))
    return max(1, int(number)) if number else (1 if text.strip() == "0" else None)


def _check_lengths(timed: Timed, lengths: Lengths) -> None:
    if timed == "decode" and not lengths.context:
        raise LeftOut("no context")
    if timed != "decode" and not lengths.prompt:
        raise LeftOut("no prompt length")
    if timed in ("requests", "sustained") and not lengths.output:
        raise LeftOut("no output length")


def _timed(row: Row, lengths: Lengths) -> tuple[Timed, float]:
    """What a row timed, and the time that its value and unit state. [s]"""
    value, unit, timed = positive(row["observed_value"]), _unit(row["observed_unit"]), KINDS[row["kind"]]
    if value is None:
        raise LeftOut("value not readable")
    total, tokens = row["kind"] == "decode_tps_total", lengths.batch or 1
    if timed == "decode" and lengths.batch is None and total:
        timed, tokens = "sustained", 1
    elif row["kind"] == "prefill_tps" and lengths.batch is None:
        raise LeftOut("no batch")
    elif timed == "prefill":
        tokens = tokens * (lengths.prompt or 0)
    elif unit["per"] == "request" or _holds_prefill(row, lengths):
        timed, tokens = "requests", (tokens if total else 1) * _tokens_of_requests(unit, lengths)
    elif not total:
        tokens = 1
    if unit["value"] == "s_of_ms":
        return timed, value * 1e-3 * (tokens if timed == "requests" else 1)
    devices = devices_of(row) if unit["value"] == "per_s_and_device" else 1
    return timed, tokens / (value * devices)


def _holds_prefill(row: Row, lengths: Lengths) -> bool:
    """Whether a rate per output token is that of whole requests, by a note that says so, of known lengths."""
    return bool(lengths.prompt and lengths.output) and _matches("with_prefill", row)


def _matches(name: str, row: Row) -> bool:
    """Whether any rule of this name fits a row."""
    return any(
        row["kind"] in rule.get("kinds", KINDS) and re.search(rule["pattern"], row[rule["column"]].lower())
        for rule in rules()[name]
    )


def _tokens_of_requests(unit: Mapping[str, str], lengths: Lengths) -> int:
    counted = (lengths.output or 0) + (lengths.prompt or 0) * (unit.get("tokens") == "input and output")
    if not counted:
        raise LeftOut("no output length")
    return counted


def _unit(text: str) -> Mapping[str, str]:
    for rule in rules()["units"]:
        if re.search(rule["pattern"], text.strip().lower()):
            if "unread" in rule:
                break
            return dict(rule)
    raise LeftOut("unit that is no time of a step")


def _group(row: Row, timed: Timed, model: ModelSpec, batch: int | None) -> str:
    """Kinds of rows that are judged together."""
    if row["kind"] == "prefill_tps":
        return "prefill rate"
    experts = ", experts" if routes(model) else ""
    if timed != "decode":
        return {"prefill": "first token", "requests": "whole requests"}.get(timed, "sustained rate") + experts
    if row["layer_split"]:
        return "decode, layers split"
    if batch != 1 and _matches("served", row):
        return f"decode, served{experts}"
    if devices_of(row) > 1:
        return f"decode, several devices{experts}"
    return f"decode, batch {1 if batch == 1 else 'above 1'}{experts}"
