"""What one operator costs, as coefficients of tokens, sequences and keys; and the formats that a mixer works with."""

from __future__ import annotations

from dataclasses import dataclass

from capacity.units import Arithmetic, NumberFormat


@dataclass(frozen=True, slots=True)
class OperatorCost:
    """One operator of like layers on the devices that one token passes, all pipeline ranks together.

    Parameters
    ----------
    layers : number of layers with this mixer; 0 for weight operators, whose totals already sum over layers.
    weight_bytes : read once per pass, whatever the batch. [B]
    expert_bytes : of all experts held by a device; the share of distinct experts is read. [B]
    experts, experts_used, experts_held : of a layer; that one token visits; that one device holds. [expert]
    token_flop : per token. [FLOP]
    last_token_only : true for the output head.
    key_flop, expanded_key_flop : per query-key pair; the second where a latent is expanded, as in prefill. [FLOP]
    key_bytes : per cached token read. [B]
    sequence_bytes : state of one sequence, read and written. [B]
    window : keys of one query at most; 0 without a limit. [token]
    source_tokens : keys of a cross attention, which do not grow; for a matrix, the tokens it projects once. [token]
    chunked : keys are those of the current chunk of ``window`` tokens only.
    """

    operator: str
    arithmetic: Arithmetic
    layers: int = 0
    launches: int = 0
    weight_bytes: int = 0
    expert_bytes: int = 0
    experts: int = 0
    experts_used: int = 0
    experts_held: int = 0
    token_flop: float = 0.0
    last_token_only: bool = False
    key_flop: float = 0.0
    expanded_key_flop: float = 0.0
    key_bytes: float = 0.0
    sequence_bytes: float = 0.0
    window: int = 0
    source_tokens: int = 0
    chunked: bool = False


@dataclass(frozen=True, slots=True)
class LayerFormats:
    """Formats of what some like layers keep, and how attention computes on their cache."""

    cache: NumberFormat
    recurrent: NumberFormat
    conv: NumberFormat
    attention: Arithmetic


@dataclass(frozen=True, slots=True)
class LayerCache:
    """Key-value cache of one layer of one sequence on one device.

    ``token_bytes`` of each token held, of which there are at most ``window`` (0: no limit); ``constant_bytes`` of a
    cross-attention source. A ``latent`` is key and value in one. [B], [token]
    """

    token_bytes: int = 0
    window: int = 0
    constant_bytes: int = 0
    latent: bool = False
