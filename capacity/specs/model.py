"""Shapes of a network: stages of layer groups, each with one mixer and one feed-forward. No number formats."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from capacity.errors import SpecError
from capacity.specs.base import Count, CountOrZero, Source, Spec
from capacity.specs.checkpoint import Checkpoint
from capacity.specs.model_checks import contradictions
from capacity.specs.state_mixer import StateMixer

Projection = Literal["query", "key", "value", "output"]
Role = Literal["encoder", "decoder", "head", "resident"]
TensorPart = Literal["embedding", "lm_head", "norm", "attention", "mlp", "vision"]


class Tensor(Spec):
    """One tensor outside the pattern of mixers and feed-forwards.

    ``read`` is how much of it one forward pass reads: all of it, the row of each token, or nothing.
    A ``tied`` tensor takes no memory of its own: it is the embedding, read again.
    """

    name: str
    shape: Annotated[tuple[Count, ...], Field(min_length=1, max_length=6)]
    part: TensorPart
    read: Literal["whole", "rows", "never"] = "whole"
    tied: bool = False


class Norms(Spec):
    """Normalisations of one layer at the hidden width: ``rms`` has a weight, ``layer`` a weight and maybe a bias."""

    kind: Literal["rms", "layer", "none"] = "rms"
    count: CountOrZero = 2
    bias: bool = False

    def parameters(self, width: int) -> int:
        """Parameters of all norms of the layer."""
        return 0 if self.kind == "none" else self.count * width * (2 if self.bias else 1)


class Attention(Spec):
    """Softmax attention with a key-value cache.

    ``sliding`` keys are the last ``window`` tokens, ``chunked`` keys those of the current chunk of ``window``
    tokens, ``cross`` keys a fixed ``source_tokens`` of another stage. A layer without ``keeps_cache`` reads the
    cache of another layer, or has keys that last for one pass only.
    """

    kind: Literal["attention"] = "attention"
    query_heads: Count
    kv_heads: Count
    head_size: Count
    value_size: Count | None = None
    span: Literal["full", "sliding", "chunked", "cross"] = "full"
    window: Count | None = None
    source_tokens: Count | None = None
    source_size: Count | None = None
    biases: tuple[Projection, ...] = ()
    query_key_norm: Literal["none", "head", "full"] = "none"
    query_key_norm_bias: bool = False
    value_is_key: bool = False
    sinks: bool = False
    output_gate: bool = False
    causal: bool = True
    keeps_cache: bool = True
    kv_projections: bool = True

    @property
    def value_head_size(self) -> int:
        """Width of one value head; the key width unless ``value_size`` is given."""
        return self.value_size or self.head_size

    @model_validator(mode="after")
    def heads_group_evenly(self) -> Self:
        if self.query_heads % self.kv_heads:
            raise ValueError(f"{self.query_heads} query heads do not divide into {self.kv_heads} KV heads")
        return self

    @model_validator(mode="after")
    def span_has_its_length(self) -> Self:
        if self.span in ("sliding", "chunked") and self.window is None:
            raise ValueError(f"{self.span} attention needs a window")
        if self.span == "full" and self.window is not None:
            raise ValueError("full attention has no window")
        if self.span == "cross" and self.source_tokens is None:
            raise ValueError("cross attention needs source_tokens")
        return self


class Indexer(Spec):
    """The key selector of a sparse latent attention: it keeps one small key per token."""

    heads: Count
    head_size: Count
    top_k: Count


class LatentAttention(Spec):
    """Multi-head latent attention: one compressed latent and one rotary key per token, whatever the head count."""

    kind: Literal["latent"] = "latent"
    query_heads: Count
    query_rank: Count | None = None
    kv_rank: Count
    nope_size: Count
    rope_size: Count
    value_size: Count
    biases: bool = False
    indexer: Indexer | None = None

    @property
    def latent_size(self) -> int:
        """Elements cached for one token of one layer, without an indexer key."""
        return self.kv_rank + self.rope_size


class NoMixer(Spec):
    """A layer that does not mix tokens."""

    kind: Literal["none"] = "none"


class Dense(Spec):
    """A feed-forward of two matrices, or three when gated."""

    kind: Literal["dense"] = "dense"
    intermediate_size: Count
    gated: bool = True
    bias: bool = False


class Experts(Spec):
    """A routed feed-forward; ``shared_intermediate_size`` is the total width of experts that every token visits."""

    kind: Literal["experts"] = "experts"
    experts: Count
    experts_per_token: Count
    intermediate_size: Count
    gated: bool = True
    bias: bool = False
    router_bias: bool = False
    shared_intermediate_size: CountOrZero = 0
    shared_gate: bool = False

    @model_validator(mode="after")
    def chosen_experts_exist(self) -> Self:
        if self.experts_per_token > self.experts:
            raise ValueError(f"{self.experts_per_token} experts per token, but only {self.experts} experts")
        return self


class NoFeedForward(Spec):
    """A layer without a feed-forward."""

    kind: Literal["none"] = "none"


Mixer = Annotated[Attention | LatentAttention | StateMixer | NoMixer, Field(discriminator="kind")]
FeedForward = Annotated[Dense | Experts | NoFeedForward, Field(discriminator="kind")]


_ASK_CONTROL = "it does not make tokens one at a time; ask control for a decision of its world model"
MAX_LAYERS = 2_000  # ten times the deepest network there is


class LayerGroup(Spec):
    """Layers with the same mixer, feed-forward and norms."""

    indices: Annotated[tuple[CountOrZero, ...], Field(min_length=1, max_length=MAX_LAYERS)]
    mixer: Mixer
    feed_forward: FeedForward
    norms: Norms = Norms()
    extra: tuple[Tensor, ...] = ()


class Stage(Spec):
    """A run of layers of one width; the tensors of an encoder stage belong to the part ``vision``."""

    name: str
    role: Role
    hidden_size: Count
    layers: tuple[LayerGroup, ...] = ()
    before: tuple[Tensor, ...] = ()
    after: tuple[Tensor, ...] = ()

    def __str__(self) -> str:
        """Name, layers, width and the kinds of its layers."""
        groups = [f"{group.mixer.kind} and {group.feed_forward.kind}" for group in self.layers]
        kinds = f" ({', '.join(dict.fromkeys(groups))})" if groups else ""
        return f"{self.name}: {self.layer_count:,} layers of width {self.hidden_size:,}{kinds}"

    @cached_property
    def layer_count(self) -> int:
        """Layers of all groups."""
        return sum(len(group.indices) for group in self.layers)

    @model_validator(mode="after")
    def layers_are_numbered_once(self) -> Self:
        numbers = sorted(index for group in self.layers for index in group.indices)
        if numbers != list(range(len(numbers))):
            raise ValueError("layer indices must be 0, 1, 2 ... each once over all groups of a stage")
        return self

    @model_validator(mode="after")
    def something_is_computed(self) -> Self:
        if not (self.layers or self.before or self.after):
            raise ValueError(f"stage {self.name} has no layers and no tensors before or after them")
        return self


class ModelSpec(Spec):
    """A network as sizing sees it. ``notes`` are what the importer ignored or assumed."""

    obtained_by: ClassVar[str] = "load it with load_model"

    name: str
    stages: Annotated[tuple[Stage, ...], Field(min_length=1)]
    vocabulary: CountOrZero = 0
    positions: Count | None = None
    checkpoint: Checkpoint | None = None
    sources: tuple[Source, ...] = ()
    notes: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Name, vocabulary, positions and formats, then one line per stage."""
        facts = [f"vocabulary {self.vocabulary:,}"] if self.vocabulary else []
        facts += [f"{self.positions:,} positions"] if self.positions else []
        if self.checkpoint is not None:
            formats = dict.fromkeys((self.checkpoint.default, *self.checkpoint.parts.values()))
            facts.append(f"stored in {', '.join(formats)}")
        return "\n".join((", ".join((self.name, *facts)), *(f"  {stage}" for stage in self.stages)))

    @cached_property
    def decoder(self) -> Stage:
        """The stage that makes tokens one at a time: the first decoder stage."""
        for stage in self.stages:
            if stage.role == "decoder":
                return stage
        raise SpecError(f"{self.name} has no decoder stage: {_ASK_CONTROL}")

    @cached_property
    def language_decoder(self) -> Stage:
        """The decoder, of a network whose answer is tokens of its vocabulary."""
        if not any(tensor.part == "lm_head" for tensor in self.decoder.after):
            raise SpecError(f"{self.name} has no output head over a vocabulary: {_ASK_CONTROL}")
        for stage in self.stages:
            if stage.role == "head":
                raise SpecError(f"{self.name} answers through its stage {stage.name}: {_ASK_CONTROL}")
        return self.decoder

    @model_validator(mode="after")
    def parts_go_together(self) -> Self:
        """Stages have names of their own; tables, head and mixers the widths and the vocabulary of the network."""
        if wrong := "; ".join(contradictions(self.stages, self.vocabulary)):
            raise ValueError(wrong)
        return self
