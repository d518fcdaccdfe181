"""Decoders whose layers hold one part each: attention, a state, a feed-forward or experts."""

from __future__ import annotations

from capacity.importers.huggingface.attention import grouped
from capacity.importers.huggingface.config import Config
from capacity.importers.huggingface.facts import TypeFacts
from capacity.importers.huggingface.feed_forward import dense, routed
from capacity.importers.huggingface.state import state_mixer
from capacity.specs.model import MAX_LAYERS, FeedForward, Mixer, NoFeedForward, NoMixer

LETTERS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
NAMES = {
    "mamba": "mamba",
    "linear_attention": "mamba",
    "attention": "attention",
    "full_attention": "attention",
    "mlp": "mlp",
    "moe": "moe",
}


def single_layers(config: Config, facts: TypeFacts) -> tuple[list[Mixer], list[FeedForward]]:
    """Mixer and feed-forward of each layer, one of which is none; the same object for equal layers.

    Raises
    ------
    SpecError
        If neither list nor pattern says what the layers are, or they contradict each other.
    """
    kinds = _kinds(config, facts)
    parts: dict[str, tuple[Mixer, FeedForward]] = {}
    for kind in dict.fromkeys(kinds):
        parts[kind] = _parts(config, facts, kind)
    return [parts[kind][0] for kind in kinds], [parts[kind][1] for kind in kinds]


def _parts(config: Config, facts: TypeFacts, kind: str) -> tuple[Mixer, FeedForward]:
    if kind == "attention":
        return grouped(config, facts), NoFeedForward()
    if kind == "mlp":
        return NoMixer(), dense(config, facts, facts.keys.intermediate)
    if kind == "moe" and facts.experts is not None:
        return NoMixer(), routed(config, facts.experts)
    if facts.state is None:
        raise config.fault(facts.layer_list, f"holds {kind} layers, which type {config.kind} does not have")
    return state_mixer(config, facts.state, config.count(facts.keys.hidden)), NoFeedForward()


def _kinds(config: Config, facts: TypeFacts) -> list[str]:
    """What each layer is, by a list or a pattern of letters."""
    listed = config.names(facts.layer_list, NAMES) if config.has(facts.layer_list) else None
    for keys in _other_keys(facts):
        config.given(keys)  # stated, whether or not there are layers of the kind
    pattern = config.value(facts.layer_pattern) if config.has(facts.layer_pattern) else None
    kinds = [NAMES[name] for name in listed or ()]
    if isinstance(pattern, str):
        if len(pattern) > MAX_LAYERS or set(pattern) - set(LETTERS):
            raise config.fault(facts.layer_pattern, f"= {pattern!r:.40} must be of {', '.join(LETTERS)}")
        spelled = [LETTERS[letter] for letter in pattern]
        if kinds and kinds != spelled:
            raise config.fault(facts.layer_pattern, f"and {facts.layer_list} disagree")
        kinds = spelled
    if not kinds:
        raise config.fault(facts.layer_list, f"and {facts.layer_pattern} are missing: one must say what the layers are")
    stated = config.optional_count(facts.keys.layers)
    if stated is not None and stated != len(kinds):
        raise config.fault(facts.keys.layers, f"= {stated}, but {len(kinds)} layers are listed")
    return kinds


def _other_keys(facts: TypeFacts) -> list[tuple[str, ...]]:
    experts = facts.experts
    routed_keys = [experts.count, experts.per_token, experts.width, experts.shared_width] if experts else []
    return [facts.keys.intermediate, *routed_keys]
