"""A world model or robot policy: which stages of a network encode, remember and act, and on how many tokens."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from capacity.inputs import LARGEST_COUNT
from capacity.specs.base import Bytes, Count, CountOrZero, FrozenMapping, NonNegative, Source, Spec
from capacity.specs.model import ModelSpec, Stage
from capacity.specs.ranges import Flop
from capacity.units import FormatName

HeadKind = Literal["autoregressive", "parallel", "flow", "diffusion", "maskgit", "planner", "none"]


class TokenRule(Spec):
    """How the frames of a view become tokens: patches, extra tokens inside the encoder, then merging or pooling.

    ``temporal_patch`` frames become one layer of patches, ``frames_together`` such layers go through the encoder as
    one sequence, and with ``first_frame_alone`` a causal video tokenizer encodes the first frame on its own.
    ``merge`` joins merge x merge patches into one token; ``pooled_tokens`` is the output length of a
    resampler, whatever its input.
    """

    height_px: Count
    width_px: Count
    patch_px: Count
    temporal_patch: Count = 1
    frames_together: Count = 1
    first_frame_alone: bool = False
    merge: Count = 1
    extra_tokens: CountOrZero = 0
    pooled_tokens: Count | None = None

    @cached_property
    def grid(self) -> tuple[int, int]:
        """Whole patches down and across one image."""
        return self.height_px // self.patch_px, self.width_px // self.patch_px

    @cached_property
    def patches(self) -> int:
        """Patches of one sequence. [token]"""
        rows, columns = self.grid
        return rows * columns * self.frames_together

    @cached_property
    def encoder_tokens(self) -> int:
        """Tokens of one sequence inside the encoder. [token]"""
        return self.patches + self.extra_tokens

    @cached_property
    def merged_tokens(self) -> int:
        """Tokens of one sequence after merging neighbours. [token]"""
        return self.patches // self.merge**2

    @cached_property
    def tokens_per_image(self) -> int:
        """Tokens that one sequence gives to the core; a sequence is one image unless frames go together. [token]"""
        return self.pooled_tokens or self.merged_tokens

    def sequences(self, frames: int) -> int:
        """Sequences of ``frames`` frames of one view; the last may be partly empty. [sequence]"""
        if self.first_frame_alone:
            layers = 1 + -(-(frames - 1) // self.temporal_patch)
        else:
            layers = -(-frames // self.temporal_patch)
        return -(-layers // self.frames_together)

    @model_validator(mode="after")
    def patch_fits_the_image(self) -> Self:
        if self.patch_px > min(self.height_px, self.width_px):
            raise ValueError(
                f"a patch of {self.patch_px} px is larger than the image, {self.height_px}x{self.width_px}"
            )
        return self

    @model_validator(mode="after")
    def neighbours_merge_without_rest(self) -> Self:
        rows, columns = self.grid
        if rows % self.merge or columns % self.merge:
            raise ValueError(
                f"{rows}x{columns} patches do not divide into {self.merge}x{self.merge}: resize the image to "
                f"multiples of {self.patch_px * self.merge} px, as the preprocessor does"
            )
        return self


class Encoder(Spec):
    """A stage that runs on every image. ``feeds_core`` is false for one fused into another's tokens.

    Tensors before its layers are applied to every patch, tensors after them to every merged token; ``positions``
    gives another count by tensor name, as for a convolution. ``image_flop`` is a tabulated constant, FLOP per image,
    for a network whose layers are not listed. [FLOP]
    """

    stage: str
    tokens: TokenRule
    feeds_core: bool = True
    positions: FrozenMapping[str, CountOrZero] = FrozenMapping()
    image_flop: Flop | None = None


class Head(Spec):
    """How actions, or the frames of an interactive world, are produced; ``makes`` says which of the two.

    ``autoregressive`` makes ``tokens_per_action`` tokens per action, one per pass. ``parallel`` adds a slot for each
    token to the prompt. ``flow``, ``diffusion`` and ``maskgit`` run ``steps`` passes of ``stage`` over a chunk
    and ``extra_tokens``; ``memory`` is whether they read the cache of the core, cross-attend to its tokens, or
    neither. A ``planner`` scores ``samples`` sequences of ``horizon`` steps in each of ``steps`` iterations.
    ``executed_actions`` are those that a policy plays of each chunk before it decides anew; None where it says nothing.
    """

    kind: HeadKind
    makes: Literal["actions", "frames"] = "actions"
    stage: str | None = None
    steps: Count = 1
    chunk_actions: Count = 1
    executed_actions: Count | None = None
    tokens_per_action: Annotated[NonNegative, Field(le=LARGEST_COUNT)] = 1.0
    extra_tokens: CountOrZero = 0
    memory: Literal["cache", "cross", "none"] = "none"
    samples: Count = 1
    horizon: Count = 1

    @model_validator(mode="after")
    def denoising_has_a_stage(self) -> Self:
        if self.kind in ("flow", "diffusion", "maskgit", "planner") and self.stage is None:
            raise ValueError(f"a {self.kind} head needs the name of its stage")
        return self

    @model_validator(mode="after")
    def an_answer_has_a_possible_length(self) -> Self:
        tokens = self.chunk_actions * self.tokens_per_action
        if self.kind == "autoregressive" and tokens < 1:
            raise ValueError("an autoregressive head makes at least one token")
        if tokens > LARGEST_COUNT:
            raise ValueError(f"chunk_actions x tokens_per_action is {tokens:.3g}, more than 2^31 tokens")
        return self


class Resident(Spec):
    """A part held in memory along with the network (tokenizer, text encoder, guardrail); it may be offloaded."""

    name: str
    held_bytes: Bytes
    offloaded: bool = False


class WorldModelSpec(Spec):
    """Stages of ``model`` by role. ``views`` images of ``frames`` frames each enter a decision with
    ``text_tokens`` and ``state_tokens``; ``core`` is the stage that remembers; ``detokenizer`` turns
    tokens into pixels. ``offloaded`` names stages, or tensors as ``stage.tensor``, offloaded to host memory."""

    obtained_by: ClassVar[str] = "load it with load_world_model"

    name: str
    model: ModelSpec
    encoders: tuple[Encoder, ...] = ()
    core: str | None = None
    causal_prompt: bool = True
    views: Count = 1
    frames: Count = 1
    text_tokens: CountOrZero = 0
    state_tokens: CountOrZero = 0
    head: Head
    detokenizer: Encoder | None = None
    residents: tuple[Resident, ...] = ()
    offloaded: tuple[str, ...] = ()
    runs_in: FormatName = "bf16"
    sources: tuple[Source, ...] = ()
    notes: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Name and head, what enters a decision, then one line per stage."""
        head = self.head
        steps = f", {head.steps:,} steps" if head.steps > 1 else ""
        frames = f" of {self.frames:,} frames" if self.frames > 1 else ""
        counts = {"image": self.image_tokens, "text": self.text_tokens, "state": self.state_tokens}
        tokens = "".join(f", {_counted(count, f'{kind} token')}" for kind, count in counts.items() if count)
        return "\n".join(
            (
                f"{self.name}, {head.kind} head{steps}, {_counted(head.chunk_actions, 'action')} per decision",
                f"  input: {_counted(self.views, 'view')}{frames}{tokens}",
                *str(self.model).splitlines()[1:],
            )
        )

    @cached_property
    def _stages(self) -> dict[str, Stage]:
        return {stage.name: stage for stage in self.model.stages}

    def stage(self, name: str) -> Stage:
        """The stage called ``name``."""
        return self._stages[name]

    def on_device(self, stage: str, tensor: str) -> bool:
        """Whether a tensor of a stage stays in device memory between phases."""
        return stage not in self.offloaded and f"{stage}.{tensor}" not in self.offloaded

    @cached_property
    def image_tokens(self) -> int:
        """Tokens that all images of a decision give to the core. [token]"""
        return self.views * sum(
            encoder.tokens.sequences(self.frames) * encoder.tokens.tokens_per_image
            for encoder in self.encoders
            if encoder.feeds_core
        )

    @cached_property
    def prompt_tokens(self) -> int:
        """Tokens that enter the core before the first output. [token]"""
        return self.image_tokens + self.text_tokens + self.state_tokens

    @cached_property
    def answer_tokens(self) -> int:
        """Tokens that one decision makes, rounded up; 0 where the head makes none. [token]"""
        if self.head.kind not in ("autoregressive", "parallel"):
            return 0
        return int(-(-self.head.chunk_actions * self.head.tokens_per_action // 1))

    @model_validator(mode="after")
    def stages_exist(self) -> Self:
        stages = {stage.name for stage in self.model.stages}
        names = [encoder.stage for encoder in self.encoders]
        names += [name for name in (self.core, self.head.stage) if name is not None]
        names += [self.detokenizer.stage] if self.detokenizer else []
        for name in names:
            if name not in stages:
                raise ValueError(f"no stage {name!r} in {self.model.name}; it has {', '.join(sorted(stages))}")
        if self.core is None and self.head.kind in ("autoregressive", "parallel"):
            raise ValueError(f"a {self.head.kind} head needs a core stage")
        return self

    @model_validator(mode="after")
    def stages_have_their_roles(self) -> Self:
        uses = [(f"encoders.{index}", encoder.stage, "encoder") for index, encoder in enumerate(self.encoders)]
        uses += [("core", self.core, "decoder")] if self.core is not None else []
        if self.head.kind != "none" and self.head.stage is not None:
            uses.append(("head.stage", self.head.stage, "head"))
        for where, name, role in uses:
            if self.stage(name).role != role:
                raise ValueError(f"{where}: stage {name!r} has role {self.stage(name).role!r}, must have {role!r}")
        return self

    @model_validator(mode="after")
    def offloaded_parts_exist(self) -> Self:
        stages = {stage.name: stage for stage in self.model.stages}
        for name in self.offloaded:
            stage, _, tensor = name.partition(".")
            component = stages.get(name) or stages.get(stage)
            outside = {item.name for item in (*component.before, *component.after)} if component else set()
            if component is None or (tensor and name not in stages and tensor not in outside):
                parts = ", ".join(sorted(stages))
                raise ValueError(f"offloaded: no stage or tensor {name!r} in {self.model.name}; stages: {parts}")
        return self

    @model_validator(mode="after")
    def positions_name_tensors(self) -> Self:
        for encoder in (*self.encoders, *([self.detokenizer] if self.detokenizer else [])):
            stage = self.stage(encoder.stage)
            tensors = {tensor.name for tensor in (*stage.before, *stage.after)}
            for name in encoder.positions:
                if name not in tensors:
                    raise ValueError(f"positions: no tensor {name!r} outside the layers of stage {stage.name!r}")
        return self


def _counted(count: int, word: str) -> str:
    return f"{count:,} {word}" + ("" if count == 1 else "s")


Subject = ModelSpec | WorldModelSpec  # what a question may be about


def network(subject: Subject) -> ModelSpec:
    """The network of a model or of a world model."""
    return subject.model if isinstance(subject, WorldModelSpec) else subject
