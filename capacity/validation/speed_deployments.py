"""Deployments that a row of published speeds leaves open: number formats and degrees of parallelism."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from capacity.demand.feed_forwards import routes
from capacity.errors import CapacityError
from capacity.estimate.case import check
from capacity.specs.deployment import Deployment
from capacity.specs.model import ModelSpec
from capacity.validation.published_names import LeftOut, cache_format_of_label, formats_of_label
from capacity.validation.published_table import count

Row = Mapping[str, str]


def deployments_of(row: Row, model: ModelSpec) -> tuple[Deployment, ...]:
    """The deployments that a row leaves open, of which the fastest counts; those that cannot exist are passed over.

    Raises
    ------
    LeftOut
        If a format is not expressed, or the model cannot have the first of them.
    """
    cache, formats = cache_format_of_label(row["kv_dtype"]), _formats(row["weights_dtype_quant"], model)
    deployments = []
    for number, degrees in enumerate(_degrees(row, model)):
        deploy = Deployment(kv_cache=cache, **formats, **degrees)
        try:
            _check(model, deploy)
        except CapacityError:
            if number == 0:
                raise LeftOut("a deployment that the model cannot have") from None
            continue
        deployments.append(deploy)
    return tuple(deployments)


def devices_of(row: Row) -> int:
    """Devices that a row states.

    Raises
    ------
    LeftOut
        If it states none.
    """
    devices = count(row["n_gpus"])
    if not devices:
        raise LeftOut("number of devices not stated")
    return devices


def _degrees(row: Row, model: ModelSpec) -> Iterator[dict[str, int]]:
    """Layers split over devices are a pipeline; devices beyond the tensor-parallel ones hold sequences of their own."""
    devices = devices_of(row)
    degree = count(row["tp"]) if row["tp"].strip() else devices
    if not degree:
        raise LeftOut("degree of tensor parallelism not readable")
    if row["layer_split"]:
        yield {"pipeline_parallel": devices}
        return
    yield {"tensor_parallel": degree, "data_parallel": max(1, devices // degree)}
    if degree > 1 and routes(model):
        yield {"data_parallel": devices}  # attention may be shared out by sequence, which few rows say


@lru_cache(maxsize=512)
def _check(model: ModelSpec, deploy: Deployment) -> None:
    check(model, deploy)


def _formats(label: str, model: ModelSpec) -> dict[str, Any]:
    """Formats of a deployment: of all weights, and of head (or table, where they are tied) and attention apart."""
    formats = formats_of_label(label)
    stored = model.checkpoint
    if stored is not None and "stored_so" in formats and formats["weights"] in {stored.default, *stored.parts.values()}:
        return {"weights": formats["stored_so"]}
    tied = any(tensor.tied for stage in model.stages for tensor in stage.after)
    parts = {"head": "embedding" if tied else "lm_head", "attention": "attention"}
    overrides = [{"part": part, "format": formats[key]} for key, part in parts.items() if key in formats]
    return {"weights": formats["weights"], "overrides": tuple(overrides)}
