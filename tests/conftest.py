"""Hand-made models whose sizes are published, parts with round figures, and the command line as a test asks it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from capacity.cli import run
from capacity.specs.hardware import HardwareSpec
from capacity.specs.model import (
    Attention,
    Dense,
    Experts,
    LatentAttention,
    LayerGroup,
    ModelSpec,
    Stage,
    Tensor,
)


def decoder(name, width, vocabulary, groups, *, tied=False, positions=None):
    """A model of one decoder stage with a table, a final norm and a head."""
    stage = Stage(
        name="decoder",
        role="decoder",
        hidden_size=width,
        layers=tuple(groups),
        before=(Tensor(name="embedding", shape=(vocabulary, width), part="embedding", read="rows"),),
        after=(
            Tensor(name="final_norm", shape=(width,), part="norm"),
            Tensor(name="lm_head", shape=(vocabulary, width), part="lm_head", tied=tied),
        ),
    )
    return ModelSpec(name=name, stages=(stage,), vocabulary=vocabulary, positions=positions)


def llama_like(name, layers, width, heads, kv_heads, head_size, inner, vocabulary, **options):
    """A dense decoder of like layers."""
    group = LayerGroup(
        indices=tuple(range(layers)),
        mixer=Attention(query_heads=heads, kv_heads=kv_heads, head_size=head_size),
        feed_forward=options.pop("feed_forward", None) or Dense(intermediate_size=inner),
    )
    return decoder(name, width, vocabulary, [group], **options)


@pytest.fixture(scope="session")
def make_llama():
    return llama_like


@pytest.fixture(scope="session")
def make_decoder():
    return decoder


@pytest.fixture(scope="session")
def llama_2_7b():
    return llama_like("llama-2-7b", 32, 4096, 32, 32, 128, 11008, 32000, positions=4096)


@pytest.fixture(scope="session")
def llama_3_8b():
    return llama_like("llama-3-8b", 32, 4096, 32, 8, 128, 14336, 128256, positions=8192)


@pytest.fixture(scope="session")
def llama_3_70b():
    return llama_like("llama-3-70b", 80, 8192, 64, 8, 128, 28672, 128256, positions=8192)


@pytest.fixture(scope="session")
def mixtral_8x7b():
    experts = Experts(experts=8, experts_per_token=2, intermediate_size=14336)
    return llama_like("mixtral-8x7b", 32, 4096, 32, 8, 128, 0, 32000, feed_forward=experts)


@pytest.fixture(scope="session")
def deepseek_v3():
    latent = LatentAttention(query_heads=128, query_rank=1536, kv_rank=512, nope_size=128, rope_size=64, value_size=128)
    experts = Experts(experts=256, experts_per_token=8, intermediate_size=2048, shared_intermediate_size=2048)
    groups = [
        LayerGroup(indices=(0, 1, 2), mixer=latent, feed_forward=Dense(intermediate_size=18432)),
        LayerGroup(indices=tuple(range(3, 61)), mixer=latent, feed_forward=experts),
    ]
    return decoder("deepseek-v3", 7168, 129280, groups)


def simple_part(name="part", gib=80.0, bytes_per_s=2e12, **peaks):
    """A part with round figures; bf16 and fp16 at 312 TFLOP/s unless given."""
    rates = {"bf16": 312e12, "fp16": 312e12} | peaks
    return HardwareSpec(
        name=name,
        memory={"capacity_bytes": int(gib * 2**30), "bytes_per_s": bytes_per_s},
        peak_flop_per_s=rates,
        sources=({"fields": ("*",), "cite": "round figures of a test"},),
    )


@pytest.fixture(scope="session")
def make_part():
    return simple_part


@pytest.fixture(scope="session")
def shell():
    """Runs the command line in a process of its own, as a pipe sees it."""

    def run_apart(*arguments, columns="80"):
        command = [sys.executable, "-m", "capacity.cli", *arguments]
        environment = {**os.environ, "COLUMNS": columns, "PYTHONIOENCODING": "utf-8"}
        return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=False)

    return run_apart


@pytest.fixture
def printed_json(capsys):
    """The JSON that a command prints, which must be all that it prints."""

    def ask(*arguments, code=0):
        assert run([*arguments, "--json"]) == code
        printed = capsys.readouterr()
        assert printed.err == ""
        return json.loads(printed.out)

    return ask
