"""Mixers of constant memory from a configuration: one function for each kind."""

from __future__ import annotations

from capacity.importers.huggingface.config import Config
from capacity.importers.huggingface.facts import StateFacts
from capacity.specs.model import StateMixer
from capacity.specs.state_mixer import Matrix, StateTensor


def state_mixer(config: Config, facts: StateFacts, hidden: int) -> StateMixer:
    """The mixer of the layers that keep a state.

    Raises
    ------
    SpecError
        If a size is missing or impossible.
    """
    return KINDS[facts.kind](config, hidden)


def _gated_delta(config: Config, hidden: int) -> StateMixer:
    """Gated delta rule: keys and values of their own head counts behind a short convolution.

    Per token and value head the state of d_k x d_v elements decays (1 FLOP each), is read by the key, corrected by an
    outer product and read by the query (2 each).

    References
    ----------
    transformers 5.24.0, ``Qwen3NextGatedDeltaNet`` and ``Qwen3_5GatedDeltaNet``.
    """
    key_heads, value_heads = config.count("linear_num_key_heads"), config.count("linear_num_value_heads")
    key_size, value_size = config.count("linear_key_head_dim"), config.count("linear_value_head_dim")
    kernel = config.count("linear_conv_kernel_dim")
    if value_heads % key_heads:
        raise config.fault("linear_num_value_heads", f"= {value_heads} must be a multiple of the {key_heads} key heads")
    keys, values = key_heads * key_size, value_heads * value_size
    convolved = 2 * keys + values
    return StateMixer(
        name="gated delta rule",
        heads=key_heads,
        matrices=(
            Matrix(name="state_in", rows=convolved + values, columns=hidden),
            Matrix(name="state_gates", rows=2 * value_heads, columns=hidden),
            Matrix(name="state_out", rows=hidden, columns=values, shard="columns"),
        ),
        vector_parameters=convolved * kernel + 2 * value_heads + value_size,
        state=(
            StateTensor(name="conv", elements=convolved * kernel, kind="conv", columns=kernel),
            StateTensor(name="delta", elements=value_heads * key_size * value_size, kind="recurrent"),
        ),
        update_flop=7.0 * value_heads * key_size * value_size,
    )


KINDS = {"gated_delta": _gated_delta}
