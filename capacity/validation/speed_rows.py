"""Rows of published speeds as cases: model, parts, deployments, what was timed. Read from the inputs of a row alone."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from capacity.catalog.models import load_model, model_ids
from capacity.demand import feed_forwards
from capacity.errors import CapacityError
from capacity.files import package_data
from capacity.specs.deployment import Deployment
from capacity.specs.model import ModelSpec
from capacity.validation.published_table import count, positive

Row = Mapping[str, str]
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
KINDS = {
    "decode_tps_per_seq": "decode",
    "decode_tps_total": "decode",
    "tpot_ms": "decode",
    "itl_ms": "decode",
    "ttft_ms": "prefill",
    "prefill_tps": "prefill",
}


class LeftOut(Exception):
    """A row that cannot be compared, and why."""


@dataclass(frozen=True)
class SpeedCase:
    """One row: a decode step, a prefill, whole requests that start together, or a sustained rate.

    ``measured_s`` is the time of a step of ``batch`` sequences, of the prefill of ``batch`` prompts, of ``batch``
    whole requests, or per token at any batch. Several ``parts`` and ``deployments`` are what a source leaves open.
    [s], [sequence], [token]
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


def names() -> dict[str, Any]:
    """The reading of words, from ``data/published/speed_names.toml``."""
    return package_data.toml("data/published/speed_names.toml")


def read_cases(rows: Sequence[Row]) -> tuple[list[SpeedCase], dict[str, list[str]], dict[str, list[str]]]:
    """The cases that can be compared, and the ids of the rest by the reason why not.

    Returns
    -------
    tuple
        Cases; ids of rows that are listed apart, by reason; ids of rows that are left out, by reason.
    """
    cases: list[SpeedCase] = []
    apart: dict[str, list[str]] = {}
    left_out: dict[str, list[str]] = {}
    flagged = _flagged(rows)
    for row in rows:
        if reason := _apart(row) or next((why for why, alike in flagged if alike(row)), None):
            apart.setdefault(reason, []).append(row["id"])
            continue
        try:
            cases.append(_case(row))
        except LeftOut as error:
            left_out.setdefault(str(error), []).append(row["id"])
    return cases, apart, left_out


def _apart(row: Row) -> str | None:
    for rule in names()["apart"]:
        if re.search(rule["pattern"], row[rule["column"]].lower()):
            return str(rule["reason"])
    return None


def _flagged(rows: Sequence[Row]) -> list[tuple[str, Any]]:
    """Reasons that a flag of one row gives for all rows like it, each with the test for such rows."""
    found = []
    for rule in names()["flagged"]:
        alike, kinds = rule["alike"], rule.get("kinds")
        known = {tuple(row[name] for name in alike) for row in rows if rule["pattern"] in row["physics_flag"]}

        def like(row: Row, known: Any = known, alike: Any = alike, kinds: Any = kinds) -> bool:
            return (kinds is None or row["kind"] in kinds) and tuple(row[name] for name in alike) in known

        found.append((str(rule["reason"]), like))
    return found


def _case(row: Row) -> SpeedCase:
    timed = KINDS.get(row["kind"])
    if timed is None:
        raise LeftOut("not the time of a step or a prompt")
    model = _model(row["model"])
    parts = names()["parts"].get(row["gpu"].strip().lower())
    if parts is None:
        raise LeftOut("part not shipped")
    deployments = tuple(_deployments(row, load_model(model)))
    prompt, output = _tokens(row["prompt_len"]), _tokens(row["gen_len"])
    batch = count(row["batch_or_concurrency"])
    seconds, whole = _seconds(row, timed, batch or 1, prompt, output)
    if row["batch_or_concurrency"].startswith("max") and timed == "decode":
        timed = "sustained"
    elif batch is None:
        raise LeftOut("no batch")
    elif whole:
        timed = "requests"
    if timed == "prefill" and row["kind"] == "ttft_ms":
        batch = 1  # at a concurrency above 1 a first token may come from the first prompt alone
    context = _context(row, prompt, output) if timed == "decode" else 1
    if timed != "decode" and not prompt:
        raise LeftOut("no prompt length")
    if timed in ("requests", "sustained") and not output:
        raise LeftOut("no output length")
    return SpeedCase(
        row_id=row["id"],
        timed=timed,  # type: ignore[arg-type]
        model=model,
        parts=tuple(parts),
        deployments=deployments,
        batch=batch or 1,
        context_tokens=context,
        prompt_tokens=prompt or 1,
        output_tokens=output or 1,
        measured_s=seconds,
        group=_group(row, timed, load_model(model), batch or 1),
        engine=row["framework"],
        source=row["source"],
    )


def _model(label: str) -> str:
    """The shipped model that a label means."""
    rules = names()["models"]
    bare = label.rsplit("/", 1)[-1].lower().removeprefix("meta-")
    for ending in rules["endings"]:
        bare = bare.removesuffix(ending)
    bare = rules["alias"].get(bare, bare)
    if bare not in model_ids():
        raise LeftOut("model not shipped, or of a type that is not read")
    return str(bare)


def _deployments(row: Row, model: ModelSpec) -> Iterator[Deployment]:
    """The deployments that a row leaves open, of which the fastest counts; those that cannot exist are passed over."""
    formats, cache = _formats(row["weights_dtype_quant"]), names()["kv_cache"].get(row["kv_dtype"].strip().lower())
    if cache is None:
        raise LeftOut("format of the cache not read")
    devices, ways = count(row["n_gpus"]), count(row["tp"] or row["n_gpus"])
    if not devices or not ways:
        raise LeftOut("number of devices not stated")
    degrees = [{"pipeline_parallel": devices}] if row["layer_split"] else [{"tensor_parallel": ways}]
    if ways > 1 and not row["layer_split"]:
        degrees.append({"data_parallel": ways})  # attention may be shared out by sequence, which few rows say
    for number, degree in enumerate(degrees):
        deploy = Deployment(kv_cache=cache, overrides=tuple(_overrides(formats, model)), **formats["chosen"], **degree)
        try:
            _check(model, deploy)
        except CapacityError:
            if number == 0:
                raise LeftOut("a deployment that the model cannot have") from None
            continue
        yield deploy


@lru_cache(maxsize=512)
def _check(model: ModelSpec, deploy: Deployment) -> None:
    from capacity.estimate.case import check

    check(model, deploy)


def _formats(label: str) -> dict[str, Any]:
    for rule in names()["formats"]:
        if re.search(rule["pattern"], label.strip().lower()):
            if rule.get("unread"):
                break
            return {"chosen": {"weights": rule["weights"]}, "head": rule.get("head")}
    raise LeftOut("format of the weights not expressed")


def _overrides(formats: Mapping[str, Any], model: ModelSpec) -> Iterator[dict[str, str]]:
    """Head (or the table, where they are tied) in the narrowest format that the label leaves open."""
    if formats["chosen"]["weights"] == "as_stored" and model.checkpoint is None:
        raise LeftOut("stored formats of the model not known")
    if formats["head"]:
        tied = any(tensor.tied for stage in model.stages for tensor in stage.after)
        yield {"part": "embedding" if tied else "lm_head", "format": formats["head"]}
        if formats["chosen"]["weights"] == "as_stored":
            yield {"part": "attention", "format": formats["head"]}


def _seconds(row: Row, timed: str, batch: int, prompt: int | None, output: int | None) -> tuple[float, bool]:
    """The time that a row states, and whether it is of whole requests. [s]"""
    value, unit, units = positive(row["observed_value"]), row["observed_unit"].strip().lower(), names()["units"]
    if value is None:
        raise LeftOut("value not readable")
    if unit in units["seconds_of_ms"]:
        return value * 1e-3, False
    if unit in units["per_second_and_device"]:
        value *= count(row["n_gpus"]) or 1
    elif unit not in (*units["per_second"], *units["with_prefill"]):
        raise LeftOut("unit that is no time of a step")
    if timed == "prefill":
        return batch * (prompt or 0) / value, False
    tokens = batch if row["kind"] == "decode_tps_total" else 1
    if unit in units["with_prefill"] and output:
        return tokens * output / value, True
    return tokens / value, False


def _tokens(text: str) -> int | None:
    """Tokens of "512", "~100" or "495.9"; None for words."""
    found = positive(text.strip().lstrip("~"))
    return max(1, int(found)) if found else (1 if text.strip() == "0" else None)


def _context(row: Row, prompt: int | None, output: int | None) -> int:
    if stated := _tokens(row["context_len"]):
        return stated
    if prompt:
        return prompt + (output or 0) // 2
    raise LeftOut("no context")


def _group(row: Row, timed: str, model: ModelSpec, batch: int) -> str:
    """What kinds of rows are judged together."""
    if row["kind"] == "prefill_tps":
        return "prefill rate"
    if timed != "decode":
        return {"prefill": "first token, one prompt", "requests": "whole requests"}.get(timed, timed)
    if row["layer_split"]:
        return "decode, split by layers"
    if (count(row["n_gpus"]) or 1) > 1:
        return "decode, several devices"
    kinds = [group.feed_forward for group in model.decoder.layers]
    experts = any(feed_forwards.of(kind).routed_per_token(kind) for kind in kinds)
    return f"decode, one device, {'batch 1' if batch == 1 else 'batched'}{', experts' if experts else ''}"
