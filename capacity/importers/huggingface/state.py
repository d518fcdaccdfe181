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


def _mamba2(config: Config, hidden: int) -> StateMixer:
    """State space duality: groups share B and C, and each head has a state of head size x state size.

    Per token and element of the state: decay 1 FLOP, input 2, output 2.

    References
    ----------
    transformers 5.24.0, ``NemotronHMamba2Mixer``.
    """
    heads, head_size = config.count("mamba_num_heads"), config.count("mamba_head_dim")
    groups = config.count(("n_groups", "mamba_n_groups"))
    state_size, kernel = config.count("ssm_state_size"), config.count(("conv_kernel", "mamba_d_conv"))
    if heads % groups:
        raise config.fault("mamba_num_heads", f"= {heads} must be a multiple of the {groups} groups")
    inner = heads * head_size
    convolved = inner + 2 * groups * state_size
    biases = convolved if config.flag(("use_conv_bias", "mamba_conv_bias")) else 0
    if config.flag("use_bias"):
        biases += inner + convolved + heads + hidden
    return StateMixer(
        name="state space (Mamba 2)",
        heads=heads,
        matrices=(
            Matrix(name="state_in", rows=inner + convolved + heads, columns=hidden),
            Matrix(name="state_out", rows=hidden, columns=inner, shard="columns"),
        ),
        vector_parameters=convolved * kernel + 3 * heads + inner + biases,
        state=(
            StateTensor(name="conv", elements=convolved * kernel, kind="conv", columns=kernel),
            StateTensor(name="ssm", elements=inner * state_size, kind="recurrent"),
        ),
        update_flop=5.0 * inner * state_size,
    )


KINDS = {"gated_delta": _gated_delta, "mamba2": _mamba2}
