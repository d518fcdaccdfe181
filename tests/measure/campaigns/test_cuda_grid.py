"""The shapes and cases of a GPU campaign."""

from __future__ import annotations

from capacity.measure.campaigns import cuda_grid


def test_llama_2_7b_at_batch_16_and_8192_tokens_does_not_fit_80_gb():
    """2 x 32 layers x 4096 elements x 2 bytes per token: 68.7 GB of cache, so that weights do not fit 80 GB too."""
    shapes = {one.name: one for one in cuda_grid.shapes(quick=False)}
    assert shapes["cuda-7b-bf16"].cache_bytes(16, 8192) == 2 * 32 * 4096 * 2 * 16 * 8192
    assert shapes["cuda-7b-bf16"].weight_bytes() == 2 * 6_738_415_616  # parameters of meta-llama/Llama-2-7b


def test_each_format_has_a_model_between_the_two_that_are_fitted():
    sizes = {}
    for one in cuda_grid.shapes(quick=False):
        sizes.setdefault(one.weight_format, []).append(one.weight_bytes())
        largest = max(batch for batch, _ in cuda_grid.decode_cases(one))
        assert largest == (4 if one.weight_format == "int8" else 64)
    for listed in sizes.values():
        assert len(listed) >= 3
        assert {listed[0], listed[1]} == {min(listed), max(listed)}  # those of the fit come first
