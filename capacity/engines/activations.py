"""What is alive during a pass: policies that make the activation rows of the memory table, as alternatives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from capacity.demand.memory import activation_peaks, layer_peak_bytes, sampler_peak
from capacity.engines.table import MemoryRow
from capacity.specs.deployment import Deployment
from capacity.specs.model import ModelSpec
from capacity.specs.world import Encoder, WorldModelSpec

ACTIVATIONS = "activations"
_PEAK = MemoryRow(ACTIVATIONS, 0, evidence="assumed", alternative=ACTIVATIONS)


def widest_layer_or_sampler(model: ModelSpec, world: WorldModelSpec | None, deploy: Deployment) -> Iterator[MemoryRow]:
    """The end of the widest layer, or the sampler; for a world model, of the stage whose pass holds most.

    A pass of the core holds at most a prefill chunk of tokens; all images of a decision, a chunk of actions or the
    samples of a planner go through their stage together.
    """
    peaks = [*(_of_model(model, deploy) if world is None else _of_world(world, deploy))]
    for rank in range(deploy.pipeline_parallel):
        yield from [replace(peak, rank=rank) for peak in peaks]


def _of_model(model: ModelSpec, deploy: Deployment) -> Iterator[MemoryRow]:
    for peak in activation_peaks(model, deploy):
        yield replace(_PEAK, in_flight_bytes=peak.token_bytes, sequence_bytes=peak.sequence_bytes)


def _of_world(world: WorldModelSpec, deploy: Deployment) -> Iterator[MemoryRow]:
    if world.core is not None:
        core = world.stage(world.core)
        yield replace(_PEAK, in_flight_bytes=layer_peak_bytes(core, deploy))
        if world.model.vocabulary:
            sampler = sampler_peak(core.hidden_size, world.model.vocabulary, deploy)
            yield replace(_PEAK, in_flight_bytes=sampler.token_bytes, sequence_bytes=sampler.sequence_bytes)
    for stage, tokens in _tokens_of_images(world):
        yield replace(_PEAK, image_bytes=tokens * layer_peak_bytes(world.stage(stage), deploy))
    for stage, tokens in _tokens_behind_the_core(world):
        yield replace(_PEAK, sequence_bytes=tokens * layer_peak_bytes(world.stage(stage), deploy))


def tokens_of_stages(world: WorldModelSpec) -> Iterator[tuple[str, int]]:
    """Stages other than the core, and the tokens of one robot or session that go through each together. [token]"""
    for stage, tokens in _tokens_of_images(world):
        yield stage, world.views * tokens
    yield from _tokens_behind_the_core(world)


def _tokens_of_images(world: WorldModelSpec) -> Iterator[tuple[str, int]]:
    """Encoders, and the tokens of one image: what one view sees in all frames of a decision. [token]"""
    for encoder in world.encoders:
        yield encoder.stage, encoder.tokens.sequences(world.frames) * encoder.tokens.encoder_tokens


def _tokens_behind_the_core(world: WorldModelSpec) -> Iterator[tuple[str, int]]:
    head = world.head
    if head.stage is not None and head.kind == "planner":
        yield head.stage, head.samples * (world.image_tokens + head.extra_tokens)
    elif head.stage is not None:
        yield head.stage, head.chunk_actions + head.extra_tokens
    if world.detokenizer is not None:
        detokenizer: Encoder = world.detokenizer
        yield detokenizer.stage, detokenizer.tokens.encoder_tokens


Policy = Callable[[ModelSpec, WorldModelSpec | None, Deployment], Iterator[MemoryRow]]
ACTIVATION_PEAKS: dict[str, Policy] = {"widest_layer_or_sampler": widest_layer_or_sampler}
