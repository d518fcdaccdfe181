"""Facts of each Hugging Face model type: which keys hold which shape, and what the type always has.

A string where a yes or no is expected names the key that decides; ``not key`` negates it.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Literal

from capacity.errors import SpecError, unknown_name
from capacity.files import package_data
from capacity.specs.base import Count, CountOrZero, FrozenMapping, Spec

Switch = bool | str
Keys = tuple[str, ...]


class ShapeKeys(Spec):
    """Keys under which a type stores its basic shapes; without a key another rule gives the value."""

    layers: Keys = ("num_hidden_layers",)
    hidden: Keys = ("hidden_size",)
    heads: Keys = ("num_attention_heads",)
    kv_heads: Keys = ("num_key_value_heads",)
    head_size: Keys = ("head_dim",)
    intermediate: Keys = ("intermediate_size",)
    vocabulary: Keys = ("vocab_size",)
    positions: Keys = ("max_position_embeddings",)
    tied: Keys = ("tie_word_embeddings",)


class AttentionFacts(Spec):
    """The mixer of a type. ``window_rule`` chooses the sliding layers where no list of layer types is given."""

    kind: Literal["grouped", "latent", "falcon"] = "grouped"
    qkv_bias: Switch = False
    output_bias: Switch = False
    query_key_norm: Literal["none", "head", "full"] = "none"
    query_key_norm_if: Switch = True
    query_key_norm_bias: bool = False
    sinks: bool = False
    output_gate: Switch = False
    shared_indexers: bool = False
    one_kv_head_if: str = ""
    window_key: str = ""
    window_if: Switch = True
    window_rule: Literal["none", "every", "from_layer", "pattern", "chunked_with_rope", "sliding_without_rope"] = "none"
    window_from_key: str = ""
    pattern_key: Keys = ()
    pattern: Count | None = None


class StateFacts(Spec):
    """Layers of constant memory: their ``kind``, what a list of layer types calls them, and without a list which layer
    of each period has attention instead: the last, of as many as ``interval_key`` says or else ``interval``.
    """

    kind: Literal["gated_delta", "mamba2"]
    layer: str
    interval_key: str = ""
    interval: Count | None = None


class NormFacts(Spec):
    """Norms of a layer and after the last one."""

    kind: Literal["rms", "layer", "none"] = "rms"
    count: CountOrZero = 2
    one_if: Switch = False
    bias: Switch = False
    final: Switch = True


class FeedForwardFacts(Spec):
    """A feed-forward whose width is a key, or ``multiple`` of the hidden size, over ``divisor``."""

    gated: bool = True
    bias: Switch = False
    multiple: Count | None = None
    divisor: Count = 1


class ExpertFacts(Spec):
    """A routed feed-forward and the layers that stay dense."""

    count: Keys
    per_token: Keys = ("num_experts_per_tok",)
    width: Keys = ("moe_intermediate_size",)
    gated: bool = True
    bias: bool = False
    router_bias: bool = False
    shared: Keys = ()
    shared_count: CountOrZero = 0
    shared_width: Keys = ()
    shared_gate: bool = False
    dense_first: str = ""
    dense_after: str = ""
    layer_kinds: str = ""
    sparse_step: str = ""
    dense_layers: str = ""
    sparse_layers: str = ""
    dense_width: Keys = ()


class EmbeddingFacts(Spec):
    """Tables outside the layers."""

    learned_positions: bool = False
    position_offset: CountOrZero = 0
    norm: bool = False
    head_bias: Switch = False
    projection: str = ""


class ModuleNames(Spec):
    """Names of a layer's matrices in the files of a checkpoint; ``{expert}`` stands for the number of an expert.

    ``whole_query`` takes the place of the first two of ``attention`` in latent attention without a query rank;
    ``router`` is named where a version of the library makes it a linear layer.
    """

    layers: str = "model.layers"
    attention: Keys = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj")
    whole_query: str = "self_attn.q_proj"
    state: Keys = ()
    mlp: Keys = ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
    experts: Keys = (
        "mlp.experts.{expert}.gate_proj",
        "mlp.experts.{expert}.up_proj",
        "mlp.experts.{expert}.down_proj",
    )
    shared: Keys = ("mlp.shared_experts.gate_proj", "mlp.shared_experts.up_proj", "mlp.shared_experts.down_proj")
    router: str = ""
    head: str = "lm_head"


class TypeFacts(Spec):
    """One model type: its class defaults, its keys and its parts. ``only`` lists the values that are supported,
    ``all_ones`` lists that must hold nothing else, ``uncounted`` what a checkpoint holds in addition to the model.

    Layers of one part each are listed under ``layer_list``, or spelled by letters under ``layer_pattern``.
    A ``nested`` type is the text part of a larger configuration: its library omits class defaults there.
    ``nullable`` keys have a default, and null means something else: the class and its modules accept it.
    """

    model_type: str
    source: str
    nested: bool = False
    layer_list: str = ""
    layer_pattern: str = ""
    nullable: tuple[str, ...] = ()
    defaults: FrozenMapping[str, Any] = FrozenMapping()
    keys: ShapeKeys = ShapeKeys()
    attention: AttentionFacts = AttentionFacts()
    state: StateFacts | None = None
    norms: NormFacts = NormFacts()
    feed_forward: FeedForwardFacts = FeedForwardFacts()
    experts: ExpertFacts | None = None
    embedding: EmbeddingFacts = EmbeddingFacts()
    modules: ModuleNames = ModuleNames()
    only: FrozenMapping[str, tuple[Any, ...]] = FrozenMapping()
    all_ones: tuple[str, ...] = ()
    uncounted: FrozenMapping[str, str] = FrozenMapping()
    harmless: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def shapes(self) -> tuple[Keys, ...]:
        """Keys of the sizes that every file of the type must hold."""
        keys, experts = self.keys, self.experts
        rows = [keys.layers, keys.hidden, keys.heads, keys.vocabulary, keys.intermediate]
        rows += [experts.count, experts.per_token, experts.width] if experts else []
        return tuple(row for row in rows if row)


def model_types() -> list[str]:
    """Every model type that has a file of facts."""
    return [name for name in package_data.names("data/hf_types", ".toml") if name != "unread"]


@cache
def facts_of(model_type: str) -> TypeFacts:
    """The facts of one type; a file that says ``same_as`` starts from another type's.

    Raises
    ------
    SpecError
        For a type without a file; the nearest supported ones are named.
    """
    if model_type not in model_types():
        raise SpecError(unknown_name("model_type", model_type, model_types()))
    return TypeFacts.parse(_with_base(model_type), f"{model_type}.toml")


def _with_base(model_type: str) -> dict[str, Any]:
    table = dict(package_data.toml(f"data/hf_types/{model_type}.toml"))
    base = table.pop("same_as", None)
    if base is None:
        return table
    merged = _with_base(base)
    for key, value in table.items():
        inner = merged.get(key)
        merged[key] = {**inner, **value} if isinstance(inner, dict) and isinstance(value, dict) else value
    return merged
