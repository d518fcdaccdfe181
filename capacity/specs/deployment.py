"""The operator's choices: number formats, parallelism, engine, memory limit, chunk sizes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from capacity.errors import unknown_name
from capacity.specs.base import Count, Fraction, FrozenMapping, Spec, UserSpec
from capacity.units import FormatName, meant_by, number_format

OverridePart = Literal["attention", "mlp", "experts", "router", "embedding", "lm_head", "vision", "kv_cache", "state"]
Degree = Annotated[int, Field(ge=1, le=65_536, strict=True)]
LaunchMode = Literal["eager", "compiled", "graph", "tuned"]
LAUNCH_MODES: tuple[LaunchMode, ...] = ("eager", "compiled", "graph", "tuned")
RoutingExponent = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False, strict=True)]
AS_STORED = "as_stored"
PHASES = ("encode", "prefill", "decode", "project", "denoise", "plan", "verify", "detokenise")
_SLICE = re.compile(r"(\d{0,6}):(\d{0,6})")


class Override(Spec):
    """One part, in the layers of a Python slice or in all of them, in another number format."""

    part: OverridePart
    format: FormatName
    layers: str | None = None

    @model_validator(mode="after")
    def layers_are_a_slice(self) -> Self:
        if self.layers is not None and _SLICE.fullmatch(self.layers) is None:
            raise ValueError(f"layers must look like '16:32', ':8' or '24:', got {self.layers!r}")
        return self

    def covers(self, layer: int) -> bool:
        """Whether ``layer`` lies in the slice."""
        if self.layers is None:
            return True
        match = _SLICE.fullmatch(self.layers)
        first, stop = match.groups() if match else ("", "")
        return int(first or 0) <= layer < int(stop or 10**9)


def _as_overrides(value: Any) -> Any:
    return (value,) if isinstance(value, dict | Override) else value


def _as_launch_modes(value: Any) -> Any:
    """A launch mode as it is; a table of them by phase with the names checked."""
    modes = value.values() if isinstance(value, Mapping) else () if value is None else (value,)
    for mode in modes:
        if not isinstance(mode, str):
            raise ValueError(f"must be one of {', '.join(LAUNCH_MODES)}, or a table of them by phase")
        if mode not in LAUNCH_MODES:
            raise ValueError(unknown_name("launch mode", str(mode), LAUNCH_MODES))
    if isinstance(value, Mapping) and not value:
        raise ValueError("launch_mode must name the mode of at least one phase, or of default")
    for phase in value if isinstance(value, Mapping) else ():
        if phase not in (*PHASES, "default"):
            raise ValueError(unknown_name("phase", str(phase), (*PHASES, "default")))
    return value


def _weights_format(name: str) -> str:
    return name if name == AS_STORED else number_format(name).name


class Deployment(UserSpec):
    """How one replica of a model is served. What is ``None`` is chosen by the engine and echoed as assumed.

    ``weights`` applies to attention, mlp and experts; embedding, head, router, norms, biases and vision stay 16
    bit unless overridden. ``as_stored`` takes the formats of the checkpoint. ``activations`` is the compute
    format; unless it or the checkpoint states one, it follows from how each weight is stored and what the part can do.
    ``launch_mode`` is how kernels are launched: ``eager``, one by one by Python; ``compiled``, compiled kernels one by
    one; ``graph``, a captured graph of a general compiler; ``tuned``, an engine written for this model family; or a
    table of them by phase, with ``default`` for the rest. ``pipeline_split`` is the layers of each pipeline rank;
    even unless stated. ``routing_exponent`` is how freely tokens choose experts in
    an attainable time: T tokens visit as many as T to this power would that choose independently; 1: uniform routing.
    ``read_as`` is filled in: what words such as ``fp8`` were read as.
    """

    obtained_by: ClassVar[str] = "make one with Deployment(...)"

    weights: Annotated[str, AfterValidator(_weights_format)] = AS_STORED
    activations: FormatName | None = None
    kv_cache: FormatName | None = None
    state: FormatName | None = None
    overrides: Annotated[tuple[Override, ...], BeforeValidator(_as_overrides)] = ()
    tensor_parallel: Degree = 1
    pipeline_parallel: Degree = 1
    pipeline_split: Annotated[tuple[Count, ...], Field(min_length=1, max_length=65_536)] | None = None
    data_parallel: Degree = 1
    expert_parallel: Degree | None = None
    engine: str = "reference"
    engine_version: str | None = None
    launch_mode: Annotated[LaunchMode | FrozenMapping[str, LaunchMode] | None, BeforeValidator(_as_launch_modes)] = None
    memory_fraction: Fraction = 0.9
    reserved_bytes: Annotated[int, Field(ge=0, le=2**53, strict=True)] = 0
    block_tokens: Annotated[int, Field(ge=1, le=65_536, strict=True)] = 16
    max_sequences: Count | None = None
    prefill_chunk_tokens: Count = 8192
    draft: Draft | None = None
    routing_exponent: RoutingExponent = 0.85
    read_as: tuple[str, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def words_for_formats_are_echoed(cls, data: Any) -> Any:
        """Keep what words that are no names of formats were read as."""
        if not isinstance(data, Mapping):
            return data
        words = {name: data.get(name) for name in ("weights", "activations", "kv_cache", "state")}
        overrides = _as_overrides(data.get("overrides"))
        for one in overrides if isinstance(overrides, list | tuple) else ():
            if isinstance(one, Mapping):
                words[str(one.get("part"))[:40]] = one.get("format")
        lines = [f"{name} {word} is read as {meant}" for name, word in words.items() if (meant := meant_by(word))]
        return {**data, "read_as": (*data.get("read_as", ()), *lines)} if lines else data

    @property
    def devices(self) -> int:
        """Devices of one replica."""
        return self.tensor_parallel * self.pipeline_parallel * self.data_parallel

    def replace(self, **changes: Any) -> Self:
        """A copy with dotted fields changed; what was not stated stays so, see ``Spec.replace``."""
        changed = super().replace(**changes)
        changed.model_fields_set.intersection_update(self.model_fields_set | {name.split(".")[0] for name in changes})
        return changed

    def launch_mode_of(self, phase: str) -> LaunchMode | None:
        """The launch mode of one phase."""
        if isinstance(self.launch_mode, FrozenMapping):
            return self.launch_mode.get(phase, self.launch_mode.get("default"))
        return self.launch_mode

    @model_validator(mode="after")
    def experts_spread_over_the_devices_of_a_stage(self) -> Self:
        ranks = self.tensor_parallel * self.data_parallel
        if self.expert_parallel is not None and ranks % self.expert_parallel:
            raise ValueError(
                f"expert_parallel {self.expert_parallel} must divide tensor_parallel x data_parallel = {ranks}"
            )
        return self

    @model_validator(mode="after")
    def every_pipeline_rank_has_its_layers(self) -> Self:
        if self.pipeline_split is not None and len(self.pipeline_split) != self.pipeline_parallel:
            raise ValueError(
                f"pipeline_split has {len(self.pipeline_split)} numbers of layers for pipeline_parallel "
                f"{self.pipeline_parallel}"
            )
        return self

    @model_validator(mode="after")
    def activations_can_be_computed_in(self) -> Self:
        if self.activations is None:
            return self
        item = number_format(self.activations)
        if isinstance(item.group, int) and (item.family == "int" or item.arithmetic_bits > item.element_bits):
            raise ValueError(f"activations {item.name!r} is a storage format; compute in bf16, fp16, fp8_e4m3 or int8")
        return self


class Draft(UserSpec):
    """Speculative decoding: tokens drafted per step, how often one is accepted, and what each of them costs in plain
    decode steps of the model. [token], [1]
    """

    obtained_by: ClassVar[str] = "make one with Draft(tokens=..., acceptance=..., cost=...)"

    tokens: Annotated[int, Field(ge=1, le=1024, strict=True)]
    acceptance: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False, strict=True)]
    cost: Annotated[float, Field(ge=0, le=1000, allow_inf_nan=False, strict=True)]


Deployment.model_rebuild()

DEFAULT_DEPLOYMENT = Deployment()
"""What a function takes that is given none."""
