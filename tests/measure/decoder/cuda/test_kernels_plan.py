"""How work is cut: enough warps where there are rows, nothing beyond the device's shared memory."""

import pytest

from capacity.errors import CapacityError
from capacity.measure.decoder.cuda import plan
from capacity.measure.shape import DecoderShape

# NVIDIA H100 SXM: 132 multiprocessors, 228 KiB of shared memory each, 227 KiB for one block (CUDA programming
# guide, table of technical specifications per compute capability, 9.0).
H100 = plan.Limits(processors=132, block_shared_bytes=227 * 1024, processor_shared_bytes=228 * 1024)
LLAMA_8B = DecoderShape("8b", 32, 4096, 32, 8, 128, 14336, 128256)
QWEN_HALF_B = DecoderShape("0.5b", 24, 896, 14, 2, 64, 4864, 151936, tied=True)


def plans(shape, batch, limits=H100):
    threads = plan.matrix_threads(shape, batch, limits)
    sizes = {**shape.layer_matrices(), "head": (shape.vocabulary, shape.hidden_size)}
    return {name: plan.matrix_plan(name, *size, batch, threads, limits) for name, size in sizes.items()}


@pytest.mark.parametrize("shape", [LLAMA_8B, QWEN_HALF_B])
@pytest.mark.parametrize("batch", [1, 2, 3, 4])
def test_a_plan_stays_inside_the_device(shape, batch):
    for cut in plans(shape, batch).values():
        assert cut.shared_bytes <= H100.block_shared_bytes
        assert cut.threads // plan.WARP % cut.split == 0


def test_small_matrices_share_rows_and_large_ones_do_not():
    cuts = plans(LLAMA_8B, 1)

    assert cuts["output"].split > 1  # 2,048 pairs are 15 warps on each of 132 multiprocessors
    assert cuts["head"].split == cuts["gate_up"].split == 1
    for cut in cuts.values():
        assert cut.blocks * cut.threads // plan.WARP >= 24 * H100.processors


def test_rows_are_not_shared_by_more_lanes_than_they_have_loads():
    for columns in (64, 128, 256, 896, 4096):
        cut = plan.matrix_plan("output", 64, columns, 1, 256, H100)
        assert cut.split == 1 or cut.split * plan.WARP * 8 <= columns


def test_input_too_large_is_read_in_place_by_output_and_down_and_refused_by_the_others():
    cuts = plans(LLAMA_8B, 4)
    assert not cuts["down"].staged  # 4 x 14,336 x 4 bytes leave no room for the rest of the block
    assert cuts["output"].staged

    with pytest.raises(CapacityError, match="qkv: the input of 4 sequences of 16384 elements takes 262656 bytes"):
        plan.matrix_plan("qkv", 1024, 16384, 4, 256, H100, split=1)


def test_splits_fill_the_device_and_keep_parts_long():
    assert plan.attention_splits(LLAMA_8B, 1, 100, H100) == 1
    assert plan.attention_splits(LLAMA_8B, 1, 1024, H100) == 1024 // plan.MIN_SPLIT_TOKENS
    assert plan.attention_splits(LLAMA_8B, 1, 1_000_000, H100) == plan.MAX_SPLITS
    assert plan.attention_splits(LLAMA_8B, 64, 8192, H100) == 1  # 512 blocks without any split


def test_a_window_limits_the_splits():
    windowed = DecoderShape("w", 2, 4096, 32, 8, 128, 14336, 1030, window=256)

    assert plan.attention_splits(windowed, 1, 100_000, H100) == 256 // plan.MIN_SPLIT_TOKENS
