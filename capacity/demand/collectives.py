"""What devices exchange in one pass through a stage, read off the specs; links turn it into time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from capacity.demand import feed_forwards, mixers
from capacity.demand.formats import activation_element_bytes
from capacity.demand.operators import decoder_operators
from capacity.specs.deployment import Deployment
from capacity.specs.model import LayerGroup, ModelSpec, Stage
from capacity.units import number_format

CollectiveKind = Literal["all_reduce", "all_to_all", "send"]


@dataclass(frozen=True, slots=True)
class ExpertGroups:
    """Groups of devices that hold the experts of a layer, devices in each, and the experts that a token visits."""

    groups: int
    group_devices: int
    choices: int


@dataclass(frozen=True, slots=True)
class Collective:
    """A collective of one pass: how often, over how many devices, and bytes of one message per token. [B]

    ``last_token_only``: it carries what the output head makes, which in prefill is applied to the last token of a
    prompt. ``experts`` says where a token may go, to experts or back; a message is then one copy of it.
    """

    kind: CollectiveKind
    count: int
    devices: int
    token_bytes: float
    last_token_only: bool = False
    experts: ExpertGroups | None = None


@lru_cache(maxsize=512)
def collectives(model: ModelSpec, deploy: Deployment, stage_name: str) -> tuple[Collective, ...]:
    """What devices exchange in a pass through one stage, per token and device.

    Tensor parallelism sums once per mixer and once per feed-forward; in the decoder also once for the table, and it
    gathers the logits. Expert parallelism over data-parallel ranks sends each token to its experts and back. A pipeline
    hands the hidden state on at each boundary. Encoders are whole on every rank and exchange nothing.
    """
    stage = next(stage for stage in model.stages if stage.name == stage_name)
    if deploy.devices == 1 or stage.role == "encoder":
        return ()
    element, decodes = activation_element_bytes(deploy), stage.role == "decoder"
    hidden, tp, exchanges = float(stage.hidden_size * element), deploy.tensor_parallel, []
    if tp > 1:
        sums = sum(len(group.indices) * _sums_per_layer(group) for group in stage.layers)
        exchanges.append(Collective("all_reduce", sums + decodes, tp, hidden))
    if tp > 1 and decodes and model.vocabulary:
        exchanges.append(Collective("all_to_all", 1, tp, float(model.vocabulary * element), last_token_only=True))
    if deploy.data_parallel > 1:
        exchanges += _expert_exchanges(model, stage, deploy)
    if deploy.pipeline_parallel > 1 and decodes:
        exchanges.append(Collective("send", deploy.pipeline_parallel - 1, 2, hidden))
    return tuple(exchanges)


def _expert_exchanges(model: ModelSpec, stage: Stage, deploy: Deployment) -> Iterator[Collective]:
    """Tokens on their way to experts, in 8 bits where those compute in 8 bits or fewer, and results in 16 bits back."""
    ranks = deploy.tensor_parallel * deploy.data_parallel
    group_size = deploy.expert_parallel or 1
    element = activation_element_bytes(deploy)
    sent = 1 if _experts_compute_in_8_bits(model, deploy) else element
    for group in stage.layers:
        if choices := feed_forwards.of(group.feed_forward).routed_per_token(group.feed_forward):
            experts = ExpertGroups(group_size, ranks // group_size, choices)
            for width in (sent, element):
                message = float(stage.hidden_size * width)
                yield Collective("all_to_all", len(group.indices), ranks, message, experts=experts)


def _experts_compute_in_8_bits(model: ModelSpec, deploy: Deployment) -> bool:
    """Whether all routed experts take activations of 8 bits or fewer."""
    table = decoder_operators(model, deploy)
    widths = [number_format(table.arithmetic[row].computed).element_bits for row in table.matrices.routed]
    return bool(widths) and max(widths) <= 8


def _sums_per_layer(group: LayerGroup) -> int:
    return int(mixers.of(group.mixer).SUMS + feed_forwards.of(group.feed_forward).SUMS)
