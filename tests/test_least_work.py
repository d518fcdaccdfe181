"""The bound of the golden cases, counted again from shapes alone: bytes and FLOP that no engine does without.

Nothing of `capacity.demand` or `capacity.formulas` is used: the shapes are those of the public configurations, typed
here, and each line of the least work is written out. All times in ms.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import pytest

import capacity as cap

# Peak of 16 bits and of fp8 [FLOP/s], bandwidth [B/s], last-level cache [B]: NVIDIA's datasheets and whitepapers.
A100 = (312e12, 624e12, 2.039e12, 40 * 2**20)
H100 = (989.4e12, 1978.9e12, 3.35e12, 50 * 2**20)
H200 = (989.4e12, 1978.9e12, 4.8e12, 50 * 2**20)
PARTS = {"nvidia-a100-sxm4-80gb": A100, "nvidia-h100-sxm5-80gb": H100, "nvidia-h200-sxm5-141gb": H200}


@dataclass(frozen=True)
class Dense:
    """A decoder with grouped-query attention and a gated feed-forward, or ``experts`` of which ``used`` are visited."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    inner: int
    vocabulary: int
    experts: int = 1
    used: int = 1

    @property
    def key_and_value(self) -> int:
        return 2 * self.width * self.kv_heads * 128

    @property
    def query_and_output(self) -> int:
        return 2 * self.width * self.heads * 128

    @property
    def expert(self) -> int:
        return 3 * self.width * self.inner

    @property
    def router(self) -> int:
        return self.width * self.experts if self.experts > 1 else 0


MODELS = {
    "llama-2-7b": Dense(32, 4096, 32, 32, 11008, 32000),
    "llama-3-8b": Dense(32, 4096, 32, 8, 14336, 128256),
    "llama-3-70b": Dense(80, 8192, 64, 8, 28672, 128256),
    "mixtral-8x7b": Dense(32, 4096, 32, 8, 14336, 32000, experts=8, used=2),
}


def decode_ms(m: Dense, part, ways, batch, context):
    """All weights but the table, k experts a layer, the cache of the tokens before; the router is whole on a rank."""
    peak, _, bandwidth, cache = part
    layer = (m.key_and_value + m.query_and_output + m.used * m.expert) / ways + m.router
    weights = 2 * (m.layers * layer + m.width * m.vocabulary / ways)
    keys = batch * (context - 1) * 2 * m.layers * 2 * max(1, m.kv_heads / ways) * 128
    flop = 2 * batch * (m.layers * layer + m.width * m.vocabulary / ways)
    flop += batch * context * m.layers * 4 * m.heads * 128 / ways
    return 1e3 * max((weights + keys - cache) / bandwidth, flop / peak)


def prefill_ms(m: Dense, part, ways, batch, prompt):
    """Of the last layer keys and values for all tokens, everything else for the last token of each prompt."""
    peak, _, bandwidth, cache = part
    rest = m.query_and_output + m.used * m.expert
    last_token = (rest / ways + m.router) + m.width * m.vocabulary / ways
    matrices = (m.layers - 1) * ((m.key_and_value + rest) / ways + m.router) + m.key_and_value / ways
    pairs = (m.layers - 1) * prompt * (prompt + 1) / 2 + prompt
    flop = batch * (2 * matrices * prompt + 2 * last_token + pairs * 4 * m.heads * 128 / ways)
    weights = 2 * (m.layers * ((m.key_and_value + rest) / ways + m.router) + m.width * m.vocabulary / ways)
    return 1e3 * max((weights - cache) / bandwidth, flop / peak)


CASES = [
    ("llama-2-7b", "nvidia-a100-sxm4-80gb", 1, 1, 576, 512),
    ("llama-2-7b", "nvidia-a100-sxm4-80gb", 1, 32, 576, 512),
    ("llama-3-8b", "nvidia-h100-sxm5-80gb", 1, 1, 4160, 4096),
    ("llama-3-8b", "nvidia-h100-sxm5-80gb", 1, 64, 4160, 4096),
    ("llama-3-70b", "nvidia-a100-sxm4-80gb", 4, 16, 2112, 2048),
    ("mixtral-8x7b", "nvidia-h100-sxm5-80gb", 2, 1, 576, 512),
    ("mixtral-8x7b", "nvidia-h100-sxm5-80gb", 2, 32, 576, 512),
]


@pytest.mark.parametrize(("name", "part", "ways", "batch", "context", "prompt"), CASES)
def test_the_bound_is_the_least_work_of_the_shapes(name, part, ways, batch, context, prompt):
    model, hardware = cap.load_model(name), cap.load_hardware(part)
    sixteen = "fp16" if part.startswith("nvidia-a100") else "bf16"
    deploy = cap.Deployment(weights=sixteen, activations=sixteen, tensor_parallel=ways)
    step = cap.tpot(model, hardware, deploy, batch=batch, context_tokens=context).bound
    first = cap.ttft(model, hardware, deploy, batch=batch, prompt_tokens=prompt).bound

    assert step * 1e3 == pytest.approx(decode_ms(MODELS[name], PARTS[part], ways, batch, context), rel=1e-3)
    assert first * 1e3 == pytest.approx(prefill_ms(MODELS[name], PARTS[part], ways, batch, prompt), rel=1e-3)


# DeepSeek-V3 on 8 x H200, batch 64: attention and shared expert whole on each data-parallel rank or divided by tensor
# parallelism, but q_a, kv_a and the router, which every rank reads; one routed expert per layer and rank at the least.
@pytest.mark.parametrize("degrees", [{"data_parallel": 8}, {"tensor_parallel": 8}])
def test_the_bound_of_latent_attention_with_experts(degrees):
    ways, held = degrees.get("tensor_parallel", 1), 64 // degrees.get("data_parallel", 1)
    width, heads, latent, rank = 7168, 128, 512 + 64, 1536
    whole = width * rank + width * latent
    divided = rank * heads * 192 + 512 * heads * 256 + heads * 128 * width
    dense, expert = 3 * width * 18432, 3 * width * 2048
    fp8 = 61 * (whole + divided / ways) + 3 * dense / ways + 58 * expert / ways
    fp8 += 58 * ceil(8 / 8) * expert
    sixteen_bit = 58 * width * 256 + width * 129280 / ways
    keys = held * 4159 * 61 * latent
    moved = fp8 + 2 * sixteen_bit + 2 * keys

    deploy = cap.Deployment(weights="fp8_e4m3", activations="fp8_e4m3", kv_cache="bf16", expert_parallel=8, **degrees)
    part = cap.load_hardware("nvidia-h200-sxm5-141gb")
    found = cap.tpot(cap.load_model("deepseek-v3"), part, deploy, batch=64, context_tokens=4160)

    assert found.bound == pytest.approx((moved - H200[3]) / H200[2], rel=2e-3)
    assert found.bound_by == "memory"
