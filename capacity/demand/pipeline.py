"""Which layers of the decoder each pipeline rank holds."""

from __future__ import annotations

from bisect import bisect_right
from functools import lru_cache
from itertools import accumulate

from capacity.specs.deployment import Deployment
from capacity.specs.model import ModelSpec


def rank_of_layer(layer: int, stage: str, model: ModelSpec, deploy: Deployment) -> int:
    """Pipeline rank of a layer of the decoder, by `layers_per_rank`; other stages stay on rank 0.

    Parameters
    ----------
    layer : int
        Number of the layer in its stage. [1]
    stage : str
        Name of the stage.
    model : ModelSpec
        The network.
    deploy : Deployment
        Number formats, parallelism and limits.

    Returns
    -------
    int
        The pipeline rank. [1]
    """
    if deploy.pipeline_parallel == 1 or stage != model.decoder.name:
        return 0
    return bisect_right(_first_layers(model.decoder.layer_count, deploy), layer) - 1


def layers_per_rank(layers: int, deploy: Deployment) -> tuple[int, ...]:
    """Layers of the decoder on each pipeline rank: as given, or even, the remainder on the ranks before the last. [1]

    The last rank has the head as well, so engines give it no layer more (vLLM 0.11 distributed/utils.py,
    get_pp_indices).

    Parameters
    ----------
    layers : int
        Layers of the decoder. [layer]
    deploy : Deployment
        Number formats, parallelism and limits.

    Returns
    -------
    tuple of int
        One number per pipeline rank. [layer]

    >>> layers_per_rank(61, Deployment(pipeline_parallel=3))
    (20, 21, 20)
    """
    if deploy.pipeline_split is not None:
        return deploy.pipeline_split
    ranks = deploy.pipeline_parallel
    base, rest = divmod(layers, ranks)
    return tuple(base + (0 < ranks - 1 - rank <= rest) for rank in range(ranks))


@lru_cache(maxsize=512)
def _first_layers(layers: int, deploy: Deployment) -> tuple[int, ...]:
    return (0, *accumulate(layers_per_rank(layers, deploy)))[:-1]
