"""Assumptions of an answer: defaults of the deployment and unsourced figures of the model."""

from __future__ import annotations

from functools import lru_cache
from itertools import groupby

from capacity.demand.arithmetic import sixteen_bit, stated_activations
from capacity.demand.feed_forwards import routes
from capacity.demand.formats import QUANTISED_PARTS, stated_cache
from capacity.demand.pipeline import layers_per_rank
from capacity.demand.placement import weight_shards
from capacity.engines.settings import engine_of
from capacity.specs.deployment import AS_STORED, Deployment
from capacity.specs.model import ModelSpec
from capacity.specs.world import Subject, WorldModelSpec, network
from capacity.units import number_format

DEFAULTS = ("memory_fraction", "block_tokens", "prefill_chunk_tokens", "max_sequences", "engine")
UNSTATED_ACTIVATIONS = (
    "activations not stated: 16-bit and weight-only formats are computed in 16 bits, fp8 and 4-bit floats as they are; "
    "a bound takes the fastest path of the part for each stored format"
)


def assumptions(subject: Subject, deploy: Deployment) -> tuple[str, ...]:
    """Fields of the deployment that were not set, and figures of the model without a verified source, a line each.

    Parameters
    ----------
    subject : ModelSpec or WorldModelSpec
        What is served.
    deploy : Deployment
        Number formats, parallelism and limits.
    """
    return _assumptions(subject, deploy, frozenset(deploy.model_fields_set))


@lru_cache(maxsize=512)
def _assumptions(subject: Subject, deploy: Deployment, fields_set: frozenset[str]) -> tuple[str, ...]:
    lines = list(deploy.read_as)
    if "kv_cache" not in fields_set and deploy.kv_cache is None:
        from_file = stated_cache(network(subject), deploy)
        cache_format = f"{from_file}, as the checkpoint states" if from_file else sixteen_bit(deploy.activations)
        lines.append(f"kv_cache = {cache_format}")
    if stated_activations(network(subject), deploy) is None:
        lines.append(UNSTATED_ACTIVATIONS)
    if deploy.pipeline_parallel > 1 and deploy.pipeline_split is None:
        layers = layers_per_rank(network(subject).decoder.layer_count, deploy)
        lines.append(f"pipeline_split = {_runs(layers)} layers")
    if "routing_exponent" not in fields_set and routes(network(subject)):
        lines.append(f"routing_exponent = {deploy.routing_exponent:g}, for the experts of an attainable time")
    names = [name for name in DEFAULTS if name != "block_tokens" or not isinstance(subject, WorldModelSpec)]
    settings = {name: getattr(deploy, name) for name in names if name not in fields_set}
    lines += [f"{name} = {value}" for name, value in settings.items() if value is not None]
    engine = engine_of(deploy)
    if engine.version and deploy.engine_version is None:
        lines.append(f"engine_version = {engine.version}, the newest whose rules are known")
    if engine.version_note:
        lines.append(engine.version_note)
    return (*lines, *_of_weights(subject, deploy, "weights" in fields_set), *_of_model(subject, deploy))


def _runs(layers: tuple[int, ...]) -> str:
    """Layers of each rank, equal neighbours together."""
    runs = [(count, len(list(ranks))) for count, ranks in groupby(layers)]
    return ", ".join(f"{ranks} x {count}" if ranks > 1 else str(count) for count, ranks in runs)


def _of_weights(subject: Subject, deploy: Deployment, weights_given: bool) -> tuple[str, ...]:
    """Parts that narrow weights leave in 16 bits, or the checkpoint's formats where no weights format is given."""
    model = network(subject)
    lines, checkpoint = list(_wide_parts(model, deploy)), model.checkpoint
    if deploy.weights == AS_STORED and checkpoint is not None and not weights_given:
        parts = [f", {part} {stored}" for part, stored in checkpoint.parts.items()]
        lines.append(f"weights = as stored ({checkpoint.default}{''.join(parts)})")
    return tuple(lines)


def _wide_parts(model: ModelSpec, deploy: Deployment) -> tuple[str, ...]:
    """Parts that narrow ``weights`` leave in 16 bits and no override names, as engines do that quantise a model."""
    if deploy.weights == AS_STORED or number_format(deploy.weights).element_bits >= 16:
        return ()
    narrow_parts = {*QUANTISED_PARTS, *(override.part for override in deploy.overrides)}
    wide_parts: dict[str, list[str]] = {}
    for shard in weight_shards(model, deploy):
        module = shard.module
        if module.stored and not module.vector and module.part not in narrow_parts and shard.format != deploy.weights:
            wide_parts.setdefault(shard.format, []).append(module.part)
    reason = f", which weights = {deploy.weights} leaves alone"
    return tuple(f"{', '.join(dict.fromkeys(parts))} = {stored}{reason}" for stored, parts in wide_parts.items())


def _of_model(subject: Subject, deploy: Deployment) -> tuple[str, ...]:
    """Stored formats and figures of the model that no source states."""
    model = network(subject)
    lines, checkpoint = [], model.checkpoint
    if deploy.weights == AS_STORED and checkpoint is not None and checkpoint.evidence == "assumed":
        lines.append(f"{model.name}: stored formats")
    fields = dict.fromkeys((*model.assumed, *subject.assumed))
    return (*lines, *(f"{subject.name}: {field}" for field in fields))
