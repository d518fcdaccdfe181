"""What is alive during a pass: policies that make the activation rows of the memory table, as alternatives."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

from capacity.demand.memory import activation_peaks, layer_peak_bytes, sampler_peak
from capacity.engines.table import MemoryRow
from capacity.specs.deployment import Deployment
from capacity.specs.engine import EngineSpec
from capacity.specs.model import ModelSpec
from capacity.specs.world import Encoder, WorldModelSpec

ACTIVATIONS = "activations"
_PEAK = MemoryRow(ACTIVATIONS, 0, evidence="assumed", alternative=ACTIVATIONS)


def widest_layer_or_sampler(
    engine: EngineSpec, model: ModelSpec, world: WorldModelSpec | None, deploy: Deployment
) -> Iterator[MemoryRow]:
    """The end of the widest layer, or the sampler; for a world model, of the stage whose pass holds most.

    A pass of the core holds at most a prefill chunk of tokens; all images of a decision, a chunk of actions or the
    samples of a planner go through their stage together.
    """
    peaks = [*(_of_model(model, deploy) if world is None else _of_world(world, deploy))]
    for rank in range(deploy.pipeline_parallel):
        yield from [replace(peak, rank=rank) for peak in peaks]


def profiled_terms(
    engine: EngineSpec, model: ModelSpec, world: WorldModelSpec | None, deploy: Deployment
) -> Iterator[MemoryRow]:
    r"""The peak of one profiled pass, set apart once: :math:`a\, n V + b\, c\, d` [1]_.

    n are the sequences allowed, V the vocabulary, c the tokens of the largest pass, d the hidden width; a and b are
    the engine's. Neither is divided by tensor parallelism: every rank samples from the whole vocabulary.

    References
    ----------
    .. [1] Fit to published start-up logs; the data file of the engine has the figures and their source.
    """
    terms = engine.activation_terms
    if terms is None or world is not None:
        yield from widest_layer_or_sampler(engine, model, world, deploy)
        return
    sampled = (deploy.max_sequences or 1) * model.vocabulary
    passed = deploy.prefill_chunk_tokens * model.decoder.hidden_size
    held_bytes = math.ceil(terms.sequence_entry_bytes * sampled + terms.token_column_bytes * passed)
    for rank in range(deploy.pipeline_parallel):
        yield MemoryRow(ACTIVATIONS, rank, evidence="calibrated", alternative=ACTIVATIONS, fixed_bytes=held_bytes)


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


Policy = Callable[[EngineSpec, ModelSpec, WorldModelSpec | None, Deployment], Iterator[MemoryRow]]
ACTIVATION_PEAKS: dict[str, Policy] = {
    "widest_layer_or_sampler": widest_layer_or_sampler,
    "profiled_terms": profiled_terms,
}
