"""The mixer of each layer: grouped or latent attention, full, sliding or chunked."""

from __future__ import annotations

from capacity.importers.huggingface.config import Config
from capacity.importers.huggingface.facts import AttentionFacts, StateFacts, TypeFacts
from capacity.importers.huggingface.state import state_mixer
from capacity.specs.model import Attention, Indexer, LatentAttention, Mixer, Projection

FALCON_KV_HEADS = ("num_kv_heads", "n_head_kv")
SPANS = {"full_attention": "full", "sliding_attention": "sliding", "chunked_attention": "chunked"}


def mixers(config: Config, facts: TypeFacts, layers: int) -> list[Mixer]:
    """One mixer for each layer, the same object for equal layers."""
    if facts.attention.kind == "latent":
        return _latents(config, facts, layers)
    plain = grouped(config, facts)
    window, kinds = _window(config, facts.attention), _layer_kinds(config, facts, layers)
    by_kind: dict[str, Mixer] = {"full_attention": plain}
    if facts.state is not None:
        by_kind[facts.state.layer] = state_mixer(config, facts.state, config.count(facts.keys.hidden))
    for kind in dict.fromkeys(kinds):
        if kind not in by_kind:
            if window is None:
                raise config.fault(facts.attention.window_key or "layer_types", f"is needed for {kind} layers")
            by_kind[kind] = Attention.parse({**plain.model_dump(), "span": SPANS[kind], "window": window}, config.where)
    return [by_kind[kind] for kind in kinds]


def grouped(config: Config, facts: TypeFacts) -> Attention:
    """Attention of grouped queries over the whole context."""
    attention, keys = facts.attention, facts.keys
    heads = config.count(keys.heads)
    kv_heads = _falcon_kv_heads(config, heads) if attention.kind == "falcon" else _kv_heads(config, facts, heads)
    biases: tuple[Projection, ...] = ()
    if config.switch(attention.qkv_bias):
        biases += ("query", "key", "value")
    if config.switch(attention.output_bias):
        biases += ("output",)
    normed = attention.query_key_norm != "none" and config.switch(attention.query_key_norm_if)
    table = {
        "query_heads": heads,
        "kv_heads": kv_heads,
        "head_size": _head_size(config, facts, heads),
        "biases": biases,
        "query_key_norm": attention.query_key_norm if normed else "none",
        "query_key_norm_bias": attention.query_key_norm_bias and normed,
        "sinks": attention.sinks,
        "output_gate": config.switch(attention.output_gate),
    }
    return Attention.parse(table, config.where)


def _kv_heads(config: Config, facts: TypeFacts, heads: int) -> int:
    if facts.attention.one_kv_head_if:
        config.given("num_key_value_heads")  # written by the library, from the same flag
        return 1 if config.flag(facts.attention.one_kv_head_if) else heads
    return config.count_or(facts.keys.kv_heads, heads, "as many as heads") if facts.keys.kv_heads else heads


def _falcon_kv_heads(config: Config, heads: int) -> int:
    """The new architecture groups queries by ``num_kv_heads``; the old one has one KV head, or all of them."""
    config.given("multi_query")
    if config.flag("new_decoder_architecture"):
        return config.count_or(FALCON_KV_HEADS, heads, "as many as heads")
    config.given(FALCON_KV_HEADS)
    return 1 if config.flag("multi_query") else heads


def _head_size(config: Config, facts: TypeFacts, heads: int) -> int:
    size = config.optional_count(facts.keys.head_size) if facts.keys.head_size else None
    if size is not None:
        return size
    return _equal_share(config, facts, heads, facts.keys.head_size)


def _equal_share(config: Config, facts: TypeFacts, heads: int, keys: tuple[str, ...]) -> int:
    """The width of a head that no key states."""
    hidden = config.count(facts.keys.hidden)
    if hidden % heads:
        raise config.fault(facts.keys.heads, f"= {heads} does not divide the hidden size {hidden}")
    config.leave_open(keys, f"{hidden // heads}: hidden size / heads")
    return hidden // heads


def _latent(config: Config, facts: TypeFacts) -> LatentAttention:
    heads = config.count(facts.keys.heads)
    config.given(facts.keys.kv_heads)
    config.given(facts.keys.head_size)
    rank, biases = config.optional_count("q_lora_rank"), config.flag("attention_bias")
    if biases and rank is None:
        raise config.fault("attention_bias", "is supported in latent attention only with a q_lora_rank")
    nope = config.count("qk_nope_head_dim")
    table = {
        "query_heads": heads,
        "query_rank": rank,
        "kv_rank": config.count("kv_lora_rank"),
        "nope_size": nope,
        "rope_size": config.count("qk_rope_head_dim"),
        "value_size": config.optional_count("v_head_dim") or _equal_share(config, facts, heads, ("v_head_dim",)),
        "biases": biases,
        "indexer": _indexer(config),
    }
    return LatentAttention.parse(table, config.where)


def _latents(config: Config, facts: TypeFacts, layers: int) -> list[Mixer]:
    """Latent attention in every layer; layers that share the choice of an indexer before them have none."""
    own = _latent(config, facts)
    if not facts.attention.shared_indexers:
        return [own] * layers
    shared = LatentAttention.parse({**own.model_dump(), "indexer": None}, config.where)
    return [own if kind == "full" else shared for kind in _indexer_kinds(config, layers)]


def _indexer_kinds(config: Config, layers: int) -> list[str]:
    """Which layers have an indexer of their own: a list, a pattern of F and S, or every so many layers."""
    listed = config.names("indexer_types", ("full", "shared"))
    pattern = config.value("index_topk_pattern")
    period = config.count_or("index_topk_freq", 1, "every layer has an indexer")
    offset = config.count_or("index_skip_topk_offset", 2, "the offset of the type", minimum=0)
    if listed is None and isinstance(pattern, str):
        if set(pattern) - {"F", "S"}:
            raise config.fault("index_topk_pattern", f"= {pattern!r:.40} must be of F and S")
        listed = tuple({"F": "full", "S": "shared"}[letter] for letter in pattern)
    if listed is None:
        listed = tuple("shared" if max(i - offset + 1, 0) % period else "full" for i in range(layers))
    if len(listed) != layers:
        raise config.fault("indexer_types", f"has {len(listed)} entries for {layers} layers")
    return list(listed)


def _indexer(config: Config) -> Indexer | None:
    if "index_head_dim" not in config.defaults and not config.has("index_head_dim"):
        return None
    table = {"heads": config.count("index_n_heads"), "head_size": config.count("index_head_dim")}
    return Indexer.parse({**table, "top_k": config.count("index_topk")}, config.where)


def _window(config: Config, facts: AttentionFacts) -> int | None:
    if not facts.window_key or not config.switch(facts.window_if):
        config.given(facts.window_key or "layer_types")
        return None
    return config.optional_count(facts.window_key)


def _layer_kinds(config: Config, facts: TypeFacts, layers: int) -> list[str]:
    """The kind of each layer: from the list of layer types, else by the rule of the type."""
    attention, state = facts.attention, facts.state
    for key in (attention.window_from_key, attention.pattern_key, state.interval_key if state else ""):
        if key:
            config.given(key)
    names = SPANS if state is None else ("full_attention", state.layer)
    kinds = config.names("layer_types", names) if config.has("layer_types") else None
    if kinds is None:
        return _ruled_kinds(config, attention, layers) if state is None else _alternating(config, state, layers)
    if len(kinds) != layers:
        raise config.fault("layer_types", f"has {len(kinds)} entries for {layers} layers")
    return list(kinds)


def _alternating(config: Config, state: StateFacts, layers: int) -> list[str]:
    """The last layer of each period has attention."""
    config.leave_open("layer_types", f"by the rule of type {config.kind}")
    usual = state.interval or 1
    period = config.count_or(state.interval_key, usual, "the period of the type") if state.interval_key else usual
    return [state.layer if (i + 1) % period else "full_attention" for i in range(layers)]


def _ruled_kinds(config: Config, facts: AttentionFacts, layers: int) -> list[str]:
    if facts.window_rule == "none" or _window(config, facts) is None:
        return ["full_attention"] * layers
    config.leave_open("layer_types", f"by the rule of type {config.kind}")
    if facts.window_rule == "every":
        return ["sliding_attention"] * layers
    if facts.window_rule == "from_layer":
        first = config.count(facts.window_from_key, minimum=0)
        return ["sliding_attention" if i >= first else "full_attention" for i in range(layers)]
    if facts.window_rule == "chunked_with_rope":
        return ["chunked_attention" if one else "full_attention" for one in _rotary(config, layers)]
    if facts.window_rule == "sliding_without_rope":
        return ["full_attention" if one else "sliding_attention" for one in _rotary(config, layers)]
    return _patterned(config, facts, layers)


def _rotary(config: Config, layers: int) -> tuple[int, ...]:
    """1 for layers with rotary positions, 0 for those without."""
    rotary = config.counts("no_rope_layers", maximum=1)
    if not rotary:
        period = config.count("no_rope_layer_interval")
        rotary = tuple(int((i + 1) % period != 0) for i in range(layers))
    if len(rotary) != layers:
        raise config.fault("no_rope_layers", f"has {len(rotary)} entries for {layers} layers")
    return rotary


def _patterned(config: Config, facts: AttentionFacts, layers: int) -> list[str]:
    """The last layer of each period has full attention; a period may be spelled out, local and global, as ``LLLG``."""
    spelled = config.value(facts.pattern_key) if facts.pattern_key else None
    if isinstance(spelled, str):
        if not spelled or set(spelled) - {"L", "G"} or layers % len(spelled):
            raise config.fault(
                facts.pattern_key, f"= {spelled!r:.40} must be of L and G, in a number that divides the {layers} layers"
            )
        return ["full_attention" if one == "G" else "sliding_attention" for one in spelled] * (layers // len(spelled))
    usual = facts.pattern or 1
    period = config.count_or(facts.pattern_key, usual, "the period of the type") if facts.pattern_key else usual
    return ["sliding_attention" if (i + 1) % period else "full_attention" for i in range(layers)]
