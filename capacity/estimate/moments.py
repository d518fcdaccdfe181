"""What is alive at each moment of a pass on one device, layer by layer: the table behind the activation peak."""

from __future__ import annotations

from collections.abc import Iterator

from capacity.demand.formats import activation_element_bytes
from capacity.demand.memory import HIDDEN_ROWS, layer_tensors, sampler_peak
from capacity.demand.passes import local_sequences, tokens_in_flight
from capacity.demand.pipeline import rank_of_layer
from capacity.engines.activations import tokens_of_stages
from capacity.estimate.assumptions import assumptions
from capacity.results import ActivationMoments, MomentRow
from capacity.specs.deployment import Deployment
from capacity.specs.model import ModelSpec, Stage
from capacity.specs.world import Subject


def activation_moments(subject: Subject, deploy: Deployment, *, batch: int, tokens: int) -> ActivationMoments:
    """Each moment of the widest pass, in the order of the layers.

    Parameters
    ----------
    subject : ModelSpec or WorldModelSpec
        What is served.
    deploy : Deployment
        Compute format, parallelism and the size of a prefill chunk.
    batch : int
        Sequences of the replica. [sequence]
    tokens : int
        Tokens of each. [token]
    """
    local = int(local_sequences(batch, deploy))
    in_flight = int(tokens_in_flight(local, tokens, chunk_tokens=deploy.prefill_chunk_tokens))
    rows = list(_rows(subject, deploy, local, in_flight))
    assumed = ("the schedule of the reference decoder", *assumptions(subject, deploy))
    return ActivationMoments(subject.name, batch, tokens, in_flight, tuple(rows), assumed)


def _rows(subject: Subject, deploy: Deployment, local: int, in_flight: int) -> Iterator[MomentRow]:
    model = subject if isinstance(subject, ModelSpec) else subject.model
    stage_tokens = {} if isinstance(subject, ModelSpec) else dict(tokens_of_stages(subject))
    for stage in model.stages:
        tokens = local * stage_tokens[stage.name] if stage.name in stage_tokens else in_flight
        yield from _of_layers(stage, model, deploy, tokens)
    core = next((stage for stage in reversed(model.stages) if stage.role == "decoder"), None)
    if model.vocabulary and core is not None:
        yield _of_sampler(core, model, deploy, local, in_flight)


def _of_layers(stage: Stage, model: ModelSpec, deploy: Deployment, tokens: int) -> Iterator[MomentRow]:
    degree = 1 if stage.role == "encoder" else deploy.tensor_parallel
    element = activation_element_bytes(deploy)
    hidden = dict.fromkeys(HIDDEN_ROWS, stage.hidden_size)
    groups = sorted((layer, group) for group in stage.layers for layer in group.indices)
    for layer, group in groups:
        for moment, tensors in layer_tensors(group, degree).items():
            alive = {name: tokens * elements * element for name, elements in {**hidden, **tensors}.items() if elements}
            yield MomentRow(moment, stage.name, layer, rank_of_layer(layer, stage.name, model, deploy), alive)


def _of_sampler(core: Stage, model: ModelSpec, deploy: Deployment, local: int, in_flight: int) -> MomentRow:
    peak, element = sampler_peak(core.hidden_size, model.vocabulary, deploy), activation_element_bytes(deploy)
    alive = {
        "hidden rows": in_flight * peak.token_bytes,
        "normed rows": local * core.hidden_size * element,
        "logits and probabilities": local * (peak.sequence_bytes - core.hidden_size * element),
    }
    return MomentRow("sampler", core.name, None, deploy.pipeline_parallel - 1, alive)
