"""The feed-forward of each layer: dense, or experts with the layers that stay dense."""

from __future__ import annotations

from capacity.importers.huggingface.config import Config
from capacity.importers.huggingface.facts import ExpertFacts, TypeFacts
from capacity.specs.model import Dense, Experts, FeedForward


def feed_forwards(config: Config, facts: TypeFacts, layers: int) -> list[FeedForward]:
    """One feed-forward for each layer, the same object for equal layers."""
    if facts.experts is None:
        return [dense(config, facts, facts.keys.intermediate)] * layers
    experts = facts.experts
    if not config.count(experts.count, minimum=0):
        return [dense(config, facts, experts.dense_width or facts.keys.intermediate)] * layers
    sparse = _sparse_layers(config, experts, layers)
    sparse_layer = routed(config, experts) if any(sparse) else None
    plain = None if all(sparse) else dense(config, facts, experts.dense_width or facts.keys.intermediate)
    config.given(facts.keys.intermediate)
    config.given(experts.dense_width)
    return [kind for one in sparse if (kind := sparse_layer if one else plain) is not None]


def dense(config: Config, facts: TypeFacts, keys: tuple[str, ...]) -> Dense:
    """A dense feed-forward whose width one of the keys holds."""
    table = facts.feed_forward
    width = config.optional_count(keys) if keys else None
    if width is None:
        if table.multiple is None:
            raise config.fault(keys, "is missing, and its type has no default for it")
        width = table.multiple * config.count(facts.keys.hidden)
        config.leave_open(keys, f"{width}: {table.multiple} x hidden size")
    if width % table.divisor:
        raise config.fault(keys, f"= {width} must be a multiple of {table.divisor}: the file counts gate and up")
    return Dense.parse(
        {"intermediate_size": width // table.divisor, "gated": table.gated, "bias": config.switch(table.bias)},
        config.where,
    )


def routed(config: Config, facts: ExpertFacts) -> Experts:
    """A routed feed-forward."""
    width = config.count(facts.width)
    table = {
        "experts": config.count(facts.count),
        "experts_per_token": config.count(facts.per_token),
        "intermediate_size": width,
        "gated": facts.gated,
        "bias": facts.bias,
        "router_bias": facts.router_bias,
        "shared_intermediate_size": _shared_width(config, facts, width),
        "shared_gate": facts.shared_gate,
    }
    return Experts.parse(table, config.where)


def _shared_width(config: Config, facts: ExpertFacts, width: int) -> int:
    if facts.shared_width:
        return config.optional_count(facts.shared_width, minimum=0) or 0
    if facts.shared:
        return (config.optional_count(facts.shared, minimum=0) or 0) * width
    return facts.shared_count * width


def _sparse_layers(config: Config, facts: ExpertFacts, layers: int) -> list[bool]:
    """Whether each layer is routed, by the rules of the type."""
    sparse = [True] * layers
    if facts.dense_first:
        first = config.optional_count(facts.dense_first, minimum=0) or 0
        sparse = [i >= first for i in range(layers)]
    if facts.dense_after:
        last = config.optional_count(facts.dense_after, minimum=-1)
        sparse = [one and (last in (None, -1) or i <= last) for i, one in enumerate(sparse)]
    if facts.layer_kinds and not config.has(facts.layer_kinds):
        config.leave_open(facts.layer_kinds, f"by the rule of type {config.kind}")
    elif facts.layer_kinds:
        kinds = config.names(facts.layer_kinds, ("dense", "sparse")) or ()
        if len(kinds) != layers:
            raise config.fault(facts.layer_kinds, f"has {len(kinds)} entries for {layers} layers")
        config.given(facts.dense_first or facts.layer_kinds)
        sparse = [kind == "sparse" for kind in kinds]
    if facts.sparse_step:
        step = config.count(facts.sparse_step)
        sparse = [one and (i + 1) % step == 0 for i, one in enumerate(sparse)]
    if facts.dense_layers:
        dense = set(config.counts(facts.dense_layers, maximum=layers - 1) or ())
        sparse = [one and i not in dense for i, one in enumerate(sparse)]
    if facts.sparse_layers and (listed := config.counts(facts.sparse_layers, maximum=layers - 1)) is not None:
        routed = set(listed)
        sparse = [i in routed for i in range(layers)]
    return sparse
