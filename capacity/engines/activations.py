"""What is alive during a pass: policies that make the activation rows of the memory table, as alternatives."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from capacity.demand.memory import activation_peaks, layer_peak_bytes, sampler_peak
from capacity.engines.table import MemoryRow
from capacity.specs.deployment import Deployment
from capacity.specs.model import ModelSpec
from capacity.specs.world import Encoder, WorldModelSpec

ACTIVATIONS = "activations"


def widest_layer_or_sampler(model: ModelSpec, world: WorldModelSpec | None, deploy: Deployment) -> Iterator[MemoryRow]:
    """The end of the widest layer, or the sampler; for a world model, of the stage whose pass holds most.

    A pass of the core holds at most a prefill chunk of tokens; all images of a decision, a chunk of actions or the
    samples of a planner go through their stage together.
    """
    for rank in range(deploy.pipeline_parallel):
        if world is None:
            for peak in activation_peaks(model, deploy):
                yield _row(rank, peak.token_bytes, peak.sequence_bytes)
        else:
            yield from _of_world(world, deploy, rank)


def _of_world(world: WorldModelSpec, deploy: Deployment, rank: int) -> Iterator[MemoryRow]:
    if world.core is not None:
        core = world.stage(world.core)
        yield _row(rank, layer_peak_bytes(core, deploy), 0)
        if world.model.vocabulary:
            sampler = sampler_peak(core.hidden_size, world.model.vocabulary, deploy)
            yield _row(rank, sampler.token_bytes, sampler.sequence_bytes)
    for stage, tokens in tokens_of_stages(world):
        yield _row(rank, 0, tokens * layer_peak_bytes(world.stage(stage), deploy))


def tokens_of_stages(world: WorldModelSpec) -> Iterator[tuple[str, int]]:
    """Stages other than the core, and the tokens of one robot or session that go through each together. [token]"""
    head = world.head
    for encoder in world.encoders:
        yield encoder.stage, world.views * encoder.tokens.sequences(world.frames) * encoder.tokens.encoder_tokens
    if head.stage is not None and head.kind == "planner":
        yield head.stage, head.samples * (world.image_tokens + head.extra_tokens)
    elif head.stage is not None:
        yield head.stage, head.chunk_actions + head.extra_tokens
    if world.detokenizer is not None:
        detokenizer: Encoder = world.detokenizer
        yield detokenizer.stage, detokenizer.tokens.encoder_tokens


def _row(rank: int, in_flight_bytes: int, sequence_bytes: int) -> MemoryRow:
    return MemoryRow(
        ACTIVATIONS,
        rank,
        evidence="assumed",
        alternative=ACTIVATIONS,
        in_flight_bytes=in_flight_bytes,
        sequence_bytes=sequence_bytes,
    )


Policy = Callable[[ModelSpec, WorldModelSpec | None, Deployment], Iterator[MemoryRow]]
ACTIVATION_PEAKS: dict[str, Policy] = {"widest_layer_or_sampler": widest_layer_or_sampler}
