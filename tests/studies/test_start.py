"""Whether an engine starts, and the smallest change with which it would."""

import pytest

import capacity as cap
from capacity.studies.start import start

H100, A100 = "nvidia-h100-sxm5-80gb", "nvidia-a100-sxm4-80gb"


def asked(model, part, *, context_tokens=None, **deploy):
    return start(
        cap.load_model(model), cap.load_hardware(part), cap.Deployment(**deploy), context_tokens=context_tokens
    )


def test_a_model_that_fits_starts_with_its_own_positions():
    answer = asked("llama-3.1-8b", H100, engine="vllm", weights="bf16")

    assert answer.starts
    assert answer.context_tokens == 131_072
    assert "longest context = 131,072 tokens" in answer.assumed
    assert (answer.fraction, answer.enough) == (None, None)


def test_each_change_that_is_named_starts_and_the_next_smaller_does_not():
    model = {"model": "llama-3.1-8b", "part": "nvidia-l4-pcie-24gb", "engine": "vllm", "engine_version": "0.19"}

    answer = asked(**model, weights="bf16", context_tokens=65_536)

    assert not answer.starts
    longest = answer.longest_context_tokens
    assert 0 < longest < 65_536
    assert asked(**model, weights="bf16", context_tokens=longest).starts
    assert not asked(**model, weights="bf16", context_tokens=longest + 1).starts
    degree = answer.enough.tensor_parallel
    assert asked(**model, weights="bf16", context_tokens=65_536, tensor_parallel=degree).starts
    assert not asked(**model, weights="bf16", context_tokens=65_536, tensor_parallel=degree // 2).starts


def test_a_larger_fraction_is_named_where_it_is_enough():
    at = {"model": "llama-3.3-70b", "part": H100, "engine": "vllm", "weights": "fp8_row", "engine_version": "0.19"}

    answer = asked(**at, context_tokens=4096, memory_fraction=0.88)

    assert not answer.starts
    assert asked(**at, context_tokens=4096, memory_fraction=answer.fraction).starts
    assert not asked(**at, context_tokens=4096, memory_fraction=round(answer.fraction - 0.01, 2)).starts


def test_an_engine_that_reserves_its_slots_must_hold_all_of_them():
    part = "nvidia-rtx-4090-24gb"
    one = asked("llama-3.1-8b", part, engine="llama.cpp", weights="q8_0", context_tokens=65_536)
    eight = asked("llama-3.1-8b", part, engine="llama.cpp", weights="q8_0", context_tokens=65_536, max_sequences=8)

    assert (one.starts, one.sequences) == (True, 1)
    assert (eight.starts, eight.sequences) == (False, 8)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm"])
def test_the_pool_of_an_engine_that_starts_holds_a_request(engine):
    answer = asked("qwen3-14b", A100, engine=engine, weights="bf16", context_tokens=8192)

    assert answer.starts
    assert answer.pool.requests >= 1
    assert "starts" in str(answer)
