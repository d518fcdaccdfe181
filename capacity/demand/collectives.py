"""What devices exchange in one step, read off the specs; `communication` turns it into time."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from capacity.demand.placement import sixteen_bit
from capacity.specs.deployment import Deployment
from capacity.specs.model import Experts, ModelSpec
from capacity.units import number_format


@dataclass(frozen=True, slots=True)
class Collective:
    """A collective of one pass: how often, over how many devices, and bytes of one message for each token. [B]

    ``last_token_only``: it carries what the output head makes, which in prefill meets the last token of a prompt.
    """

    kind: Literal["all_reduce", "all_to_all", "send"]
    count: int
    devices: int
    token_bytes: float
    last_token_only: bool = False


@lru_cache(maxsize=512)
def collectives(model: ModelSpec, deploy: Deployment) -> tuple[Collective, ...]:
    """What devices exchange in a pass of the decoder, for each token a device works on.

    Tensor parallelism sums twice a layer (once where a layer has no mixer or no feed-forward), and once for the
    table, and gathers the logits. Expert parallelism over data-parallel ranks sends each token to its experts and
    back. A pipeline hands the hidden state on at each boundary.
    """
    if deploy.devices == 1:
        return ()
    decoder, element = model.decoder, number_format(sixteen_bit(deploy.activations)).element_bits / 8
    hidden, tp, found = decoder.hidden_size * element, deploy.tensor_parallel, []
    if tp > 1:
        sums = sum(
            len(g.indices) * ((g.mixer.kind != "none") + (g.feed_forward.kind != "none")) for g in decoder.layers
        )
        found.append(Collective("all_reduce", sums + 1, tp, hidden))
        found.append(Collective("all_to_all", 1, tp, model.vocabulary * element, last_token_only=True))
    if deploy.data_parallel > 1:
        routed = [g for g in decoder.layers if isinstance(g.feed_forward, Experts)]
        for group in routed:
            sent = hidden * group.feed_forward.experts_per_token  # type: ignore[union-attr]
            found.append(Collective("all_to_all", 2 * len(group.indices), tp * deploy.data_parallel, sent))
    if deploy.pipeline_parallel > 1:
        found.append(Collective("send", deploy.pipeline_parallel - 1, 2, hidden))
    return tuple(found)
