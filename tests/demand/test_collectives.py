"""Messages of one pass, counted off the shapes of a model by hand: sums, logits, routed tokens, pipeline stages."""

from __future__ import annotations

import pytest

import capacity as cap
from capacity.demand.collectives import Collective, ExpertGroups, collectives
from capacity.specs.model import Attention, Dense, LayerGroup


def of_decoder(model, **degrees):
    """The collectives of the decoder by kind."""
    found = collectives(model, cap.Deployment(weights="bf16", **degrees), "decoder")
    return {(item.kind, item.last_token_only): item for item in found}


def test_one_device_exchanges_nothing(mixtral_8x7b):
    assert of_decoder(mixtral_8x7b) == {}


# Megatron-LM: one all-reduce behind each attention and each feed-forward, one behind a table that is cut by words; the
# logits are gathered. 80 layers of 8192 in 16 bit, 128,256 words.
@pytest.mark.parametrize("ways", [2, 8])
def test_tensor_parallel_ranks_sum_twice_a_layer_and_gather_the_logits(llama_3_70b, ways):
    assert of_decoder(llama_3_70b, tensor_parallel=ways) == {
        ("all_reduce", False): Collective("all_reduce", 2 * 80 + 1, ways, 8192 * 2.0),
        ("all_to_all", True): Collective("all_to_all", 1, ways, 128_256 * 2.0, last_token_only=True),
    }


def test_messages_are_in_the_format_of_activations(llama_3_70b):
    """Four bytes where fp32 is computed in; two under fp8, since residuals stay 16 bit."""
    for activations, size in (("fp32", 4), ("fp8_e4m3", 2)):
        found = of_decoder(llama_3_70b, tensor_parallel=2, activations=activations)
        assert found["all_reduce", False].token_bytes == 8192 * size


# A layer without a mixer or without a feed-forward sums once, as in Nemotron-H.
def test_a_layer_sums_once_for_each_half_that_it_has(make_decoder):
    mixer, dense = Attention(query_heads=4, kv_heads=4, head_size=16), Dense(intermediate_size=64)
    groups = [
        LayerGroup(indices=(0, 1, 2), mixer=mixer, feed_forward={"kind": "none"}),
        LayerGroup(indices=(3, 4), mixer={"kind": "none"}, feed_forward=dense),
        LayerGroup(indices=(5,), mixer=mixer, feed_forward=dense),
    ]
    found = of_decoder(make_decoder("halves", 64, 100, groups), tensor_parallel=2)

    assert found["all_reduce", False].count == 3 + 2 + 2 + 1


def of_experts(model, **degrees):
    """Messages to experts and back."""
    return [item for item in collectives(model, cap.Deployment(**degrees), "decoder") if item.experts]


# DeepSeek-V3 computes in fp8: each of 58 layers sends 7,168 bytes per copy of a token and takes 16-bit results back
# (DeepEP: "FP8 dispatching and BF16 combining"). Computed in bf16 both ways are 16 bits.
@pytest.mark.parametrize(
    ("degrees", "groups"),
    [
        ({"data_parallel": 8, "expert_parallel": 8}, ExpertGroups(8, 1, 8)),
        ({"data_parallel": 4, "tensor_parallel": 2, "expert_parallel": 8}, ExpertGroups(8, 1, 8)),
        ({"data_parallel": 8, "expert_parallel": 2}, ExpertGroups(2, 4, 8)),
        ({"data_parallel": 8}, ExpertGroups(1, 8, 8)),
    ],
)
def test_tokens_of_data_parallel_ranks_go_to_their_experts_and_back(deepseek_v3, llama_3_70b, degrees, groups):
    there, back = of_experts(deepseek_v3, weights="fp8_block128", **degrees)
    wide = of_experts(deepseek_v3, weights="bf16", activations="bf16", **degrees)

    assert there == Collective("all_to_all", 58, 8, 7168.0, experts=groups)
    assert back == Collective("all_to_all", 58, 8, 2 * 7168.0, experts=groups)
    assert [item.token_bytes for item in wide] == [2 * 7168.0, 2 * 7168.0]
    assert of_experts(llama_3_70b, weights="bf16", data_parallel=8) == []


# A pipeline of p stages hands the hidden state on p - 1 times, from one device to the next.
@pytest.mark.parametrize("stages", [2, 4])
def test_a_pipeline_hands_the_hidden_state_on_at_each_boundary(llama_3_70b, stages):
    assert of_decoder(llama_3_70b, pipeline_parallel=stages) == {
        ("send", False): Collective("send", stages - 1, 2, 8192 * 2.0)
    }
