"""A decoder from the facts of its type: embedding, equal layers in groups, final norm, head."""

from __future__ import annotations

from capacity.importers.huggingface.attention import mixers
from capacity.importers.huggingface.config import Config
from capacity.importers.huggingface.facts import EmbeddingFacts, TypeFacts
from capacity.importers.huggingface.feed_forward import feed_forwards
from capacity.importers.huggingface.single_layers import single_layers
from capacity.specs.model import MAX_LAYERS, FeedForward, LayerGroup, Mixer, Norms, Stage, Tensor


def decoder(config: Config, facts: TypeFacts) -> tuple[Stage, int, int | None]:
    """The decoder stage, its vocabulary and its positions (None where any length is allowed)."""
    keys = facts.keys
    hidden = config.count(keys.hidden)
    vocabulary = config.count(keys.vocabulary)
    positions = _positions(config, facts)
    for key, allowed in facts.only.items():
        config.require(key, allowed)
    for key in facts.all_ones:
        if any(one != 1 for one in config.counts(key) or ()):
            raise config.fault(key, f"is supported for type {config.kind} only as a list of ones")
    for key, meaning in facts.uncounted.items():
        _note_uncounted(config, key, meaning)
    norms = layer_norms(config, facts)
    stage = Stage(
        name="decoder",
        role="decoder",
        hidden_size=hidden,
        layers=group(*_layers(config, facts), norms),
        before=_before(config, facts, hidden, vocabulary, positions),
        after=_after(config, facts, hidden, vocabulary, norms),
    )
    return stage, vocabulary, positions


def _layers(config: Config, facts: TypeFacts) -> tuple[list[Mixer], list[FeedForward]]:
    """Mixer and feed-forward of each layer."""
    if facts.layer_list:
        return single_layers(config, facts)
    layers = config.count(facts.keys.layers, maximum=MAX_LAYERS)
    return mixers(config, facts, layers), feed_forwards(config, facts, layers)


def _positions(config: Config, facts: TypeFacts) -> int | None:
    """What the file states, or the default of the type; `model_max_length` is the length that engines then serve."""
    keys = facts.keys.positions
    if not keys:
        return None
    positions, served = config.optional_count(keys), config.optional_count("model_max_length")
    if facts.embedding.learned_positions:
        return config.count(keys)
    if served and positions and served != positions:
        config.notes.append(f"{keys[0]} is {positions:,} and model_max_length {served:,}: the latter is taken")
    if not served and not positions:
        config.notes.append(f"{keys[0]} is absent: any context length is allowed")
    return served or positions


def layer_norms(config: Config, facts: TypeFacts) -> Norms:
    """Norms at the hidden width in each layer."""
    norms = facts.norms
    count = 1 if config.switch(norms.one_if) else norms.count
    if facts.attention.kind == "falcon":
        count = _falcon_norms(config)
    return Norms(kind=norms.kind, count=count, bias=config.switch(norms.bias))


def _falcon_norms(config: Config) -> int:
    """Two, unless attention and feed-forward run in parallel after one norm."""
    norms = config.optional_count("num_ln_in_parallel_attn", maximum=2)
    grouped, parallel = config.flag("new_decoder_architecture"), config.flag("parallel_attn")
    if grouped:
        return norms or 2
    return 1 if parallel else 2


def group(mixed: list[Mixer], fed: list[FeedForward], norms: Norms) -> tuple[LayerGroup, ...]:
    """Layers with the same mixer and feed-forward in one group, in the order of their first layer."""
    equal: dict[tuple[Mixer, FeedForward], list[int]] = {}
    for index, pair in enumerate(zip(mixed, fed, strict=True)):
        equal.setdefault(pair, []).append(index)
    return tuple(
        LayerGroup(indices=tuple(indices), mixer=mixer, feed_forward=feed_forward, norms=norms)
        for (mixer, feed_forward), indices in equal.items()
    )


def _before(
    config: Config, facts: TypeFacts, hidden: int, vocabulary: int, positions: int | None
) -> tuple[Tensor, ...]:
    embedding, width = facts.embedding, _table_width(config, facts.embedding, hidden)
    tensors = [Tensor(name="embedding", shape=(vocabulary, width), part="embedding", read="rows")]
    if width != hidden:
        tensors.append(Tensor(name="project_in", shape=(hidden, width), part="mlp"))
    if embedding.learned_positions:
        tensors.append(
            Tensor(
                name="positions",
                shape=((positions or 0) + embedding.position_offset, hidden),
                part="embedding",
                read="rows",
            )
        )
    if embedding.norm:
        tensors.append(Tensor(name="embedding_norm", shape=(2 * hidden,), part="norm"))
    return tuple(tensors)


def _after(config: Config, facts: TypeFacts, hidden: int, vocabulary: int, norms: Norms) -> tuple[Tensor, ...]:
    tensors, width = [], _table_width(config, facts.embedding, hidden)
    final = norms.parameters(hidden) // max(1, norms.count)
    if final and config.switch(facts.norms.final):
        tensors.append(Tensor(name="final_norm", shape=(final,), part="norm"))
    if width != hidden:
        tensors.append(Tensor(name="project_out", shape=(width, hidden), part="mlp"))
    tied = config.flag(facts.keys.tied)
    tensors.append(Tensor(name="lm_head", shape=(vocabulary, width), part="lm_head", tied=tied))
    if config.switch(facts.embedding.head_bias):
        tensors.append(Tensor(name="lm_head_bias", shape=(vocabulary,), part="lm_head"))
    return tuple(tensors)


def _table_width(config: Config, facts: EmbeddingFacts, hidden: int) -> int:
    return config.count_or(facts.projection, hidden, "as the hidden size") if facts.projection else hidden


def _note_uncounted(config: Config, key: str, meaning: str) -> None:
    if config.has(key) and (count := config.optional_count(key, minimum=0)):
        config.notes.append(f"{key} = {count}: {meaning}")
