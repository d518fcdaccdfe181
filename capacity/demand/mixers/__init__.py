"""Mixers, one file per kind: its matrices, cache, state, query-key pairs, activations and how it shards.

Every file has the same functions: ``weights``, ``costs``, ``cache``, ``cache_makers``, ``state_bits``,
``activation_tensors``, ``check_sharding``, ``rotary_size``, ``is_ordinary`` and ``summary``, and the facts
``OVERRIDE_PART`` (what an override of its memory is called) and ``SUMS`` (all-reduces per layer under tensor
parallelism). `of` is the only dispatch on the kind of a mixer.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from capacity.demand.mixers import attention, latent, none, state

KINDS: dict[str, ModuleType] = {"attention": attention, "latent": latent, "state": state, "none": none}


def of(mixer: Any) -> Any:
    """The file of this kind of mixer.

    Parameters
    ----------
    mixer : Attention, LatentAttention, StateMixer or NoMixer
        Any mixer of a layer group.
    """
    return KINDS[mixer.kind]
