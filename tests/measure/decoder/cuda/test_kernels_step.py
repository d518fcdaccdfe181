"""The whole decode step on the emulated device against the float64 oracle.

The oracle attends to the keys and values that the kernel stored, and the stored ones are held to within one unit in the
last place of bf16 separately; so bf16, fp16 and int8 weights all reach the level of fp32 arithmetic, 1e-6 (a
feasibility study that let single roundings in the cache differ saw 2e-7 for bf16 and up to 7e-5 for int8).
Above batch 4 ``torch.mm`` gives and takes 16-bit activations, so an error there is that of the format times the
few roundings a layer: 2e-2 for bf16 (8 bits), 3e-3 for fp16 (11 bits).
"""

from collections import Counter

import pytest

from capacity.errors import CapacityError
from capacity.measure.decoder.cuda.emulator import SCHEDULES, Emulator
from capacity.measure.operators import operator_table
from capacity.measure.runs.quality import NARROW_TOLERANCES

FP32_ERROR = 1e-6


def errors(decoder, expected, position):
    """Relative error of the logits, and worst distance of the stored keys and values in bf16 steps."""
    from capacity.measure.decoder import oracle

    worst = 0.0
    for caches, wanted in ((decoder.keys, expected.keys), (decoder.values, expected.values)):
        for cache, rows in zip(caches, wanted, strict=True):
            for b, at in enumerate(position.tolist()):
                size = decoder.shape.block_tokens
                block = int(decoder.workspace["block_table"][b, at // size])
                worst = max(worst, oracle.bf16_steps(cache[block, :, at % size], rows[b]))
    return oracle.relative_error(decoder.logits, expected.logits), worst


@pytest.mark.parametrize(
    ("weight_format", "batch"),
    [("bf16", 1), ("bf16", 2), ("bf16", 3), ("bf16", 4), ("fp16", 2), ("fp16", 4), ("int8", 1), ("int8", 4)],
)
def test_step_agrees_with_the_oracle(emulated, small_shape, weight_format, batch):
    decoder, expected, position = emulated(small_shape(weight_format=weight_format), batch)

    logits, cache = errors(decoder, expected, position)
    assert logits < FP32_ERROR
    assert cache < 1.0  # a half for perfect rounding, one when it falls the other way
    assert decoder.token.tolist() == expected.logits.argmax(1).tolist()


@pytest.mark.parametrize("weight_format", ["bf16", "fp16", "int8"])
def test_step_above_batch_4_agrees_to_the_precision_of_its_activations(emulated, small_shape, weight_format):
    decoder, expected, position = emulated(small_shape(weight_format=weight_format), batch=6)

    assert errors(decoder, expected, position)[0] < NARROW_TOLERANCES[weight_format]
    chosen = expected.logits.gather(1, decoder.token.long()[:, None])[:, 0]
    slack = NARROW_TOLERANCES[weight_format] * expected.logits.abs().amax(1)
    assert bool((chosen >= expected.logits.amax(1) - 2 * slack).all())


# head size, query heads, kv heads, batch, splits, window, block tokens, hidden size: every value of each appears
SWEEP = [
    (32, 8, 8, 1, 1, 0, 16, 128),
    (32, 8, 4, 4, 5, 17, 8, 160),
    (64, 8, 1, 2, 2, 24, 16, 256),
    (64, 12, 1, 3, 5, 0, 32, 96),
    (96, 4, 2, 2, 3, 17, 16, 256),
    (128, 4, 1, 1, 5, 17, 16, 384),
    (128, 7, 1, 2, 1, 0, 8, 128),
    (256, 4, 4, 2, 2, 0, 16, 128),
    (256, 2, 1, 4, 40, 33, 64, 256),
    (8, 4, 2, 1, 2, 1, 1, 64),
]


@pytest.mark.parametrize(("head", "heads", "kv_heads", "batch", "splits", "window", "block", "hidden"), SWEEP)
def test_step_agrees_for_every_geometry(
    emulated, small_shape, head, heads, kv_heads, batch, splits, window, block, hidden
):
    shape = small_shape(
        layers=1,
        hidden_size=hidden,
        head_size=head,
        query_heads=heads,
        kv_heads=kv_heads,
        intermediate_size=176,
        vocabulary=333,
        window=window,
        block_tokens=block,
    )
    decoder, expected, position = emulated(shape, batch, splits=splits)

    logits, cache = errors(decoder, expected, position)
    assert logits < FP32_ERROR
    assert cache < 1.0


@pytest.mark.parametrize("positions", [[0, 0], [15, 16], [126, 127]])
def test_step_agrees_at_the_ends_of_the_context(emulated, small_shape, positions):
    decoder, expected, position = emulated(small_shape(window=24), positions=positions)

    assert errors(decoder, expected, position)[0] < FP32_ERROR


# pairs of rows per warp, and warps per row; 0 lets the plan choose
@pytest.mark.parametrize(
    ("weight_format", "cut"), [("bf16", (1, 1)), ("bf16", (2, 4)), ("int8", (2, 1)), ("int8", (1, 4))]
)
def test_every_cut_of_the_matrices_agrees(emulated, small_shape, cut, weight_format):
    cuts = dict.fromkeys(("qkv", "output", "gate_up", "down", "head"), cut)
    shape = small_shape(layers=1, weight_format=weight_format)
    decoder, expected, position = emulated(shape, batch=2, cuts=cuts)

    assert errors(decoder, expected, position)[0] < FP32_ERROR


def test_input_too_large_for_shared_memory_is_read_in_place(emulated, small_shape):
    class Narrow(Emulator):
        from capacity.measure.decoder.cuda.plan import Limits

        limits = Limits(processors=2, block_shared_bytes=12 * 1024, processor_shared_bytes=64 * 1024)

    decoder, expected, position = emulated(small_shape(intermediate_size=2048), batch=1, backend=Narrow())

    assert not decoder.plans["down"].staged
    assert decoder.plans["output"].staged is False or decoder.plans["output"].shared_bytes < 12 * 1024
    assert errors(decoder, expected, position)[0] < FP32_ERROR


@pytest.mark.parametrize("batch", [2, 5])
def test_three_schedules_give_the_same_bits(emulated, small_shape, batch):
    runs = [emulated(small_shape(window=40), batch, backend=Emulator(schedule)) for schedule in SCHEDULES]

    first = runs[0][0]
    for decoder, _, _ in runs[1:]:
        for name, buffer in first.workspace.items():
            same = decoder.workspace[name].nan_to_num(7.0) == buffer.nan_to_num(7.0)
            assert bool(same.all()), name
        assert all(bool((a == b).all()) for a, b in zip(first.keys, decoder.keys, strict=True))


def test_steps_follow_each_other_without_the_host(emulated, small_shape):
    from capacity.measure.decoder import oracle

    decoder, _, _ = emulated(small_shape(), batch=2)
    for _ in range(3):
        token, position = decoder.token.clone(), decoder.position.clone()
        decoder.step()
        expected = oracle.step(
            decoder.shape,
            decoder.weights,
            token,
            position,
            decoder.keys,
            decoder.values,
            decoder.workspace["block_table"],
        )
        assert decoder.position.tolist() == (position + 1).tolist()
        assert oracle.relative_error(decoder.logits, expected.logits) < FP32_ERROR
        assert decoder.token.tolist() == expected.logits.argmax(1).tolist()


def test_position_stays_inside_the_cache(emulated, small_shape):
    decoder, _, _ = emulated(small_shape(), positions=[126, 127])

    decoder.step()
    assert decoder.position.tolist() == [127, 127]


def test_position_is_held_for_timing(emulated, small_shape):
    decoder, _, position = emulated(small_shape(), advance=False)

    assert decoder.position.tolist() == position.tolist()


@pytest.mark.parametrize("weight_format", ["bf16", "int8"])
@pytest.mark.parametrize("batch", [3, 6])
def test_step_launches_what_the_operator_table_says(emulated, small_shape, weight_format, batch):
    shape = small_shape(weight_format=weight_format)
    decoder, _, _ = emulated(shape, batch)

    launched = Counter((launch.operator, launch.kernel) for launch in decoder.launches)
    tabled = Counter()
    for row in operator_table(shape, batch, 64, 3):
        tabled[row.operator, row.kernel] += row.launches
    assert launched == tabled


@pytest.mark.parametrize("weight_format", ["bf16", "fp16", "int8"])
@pytest.mark.parametrize("tied", [False, True])
def test_buffers_have_the_bytes_that_the_shape_says(emulated, small_shape, weight_format, tied):
    shape = small_shape(weight_format=weight_format, tied=tied)
    decoder, expected, position = emulated(shape)

    assert decoder.weights.nbytes() == shape.weight_bytes()
    assert decoder.cache_bytes() == shape.cache_bytes(2, 128)
    assert errors(decoder, expected, position)[0] < FP32_ERROR


def test_what_the_kernels_cannot_run_is_refused(small_shape):
    pytest.importorskip("torch")
    from capacity.measure.decoder.cuda.step import CudaDecoder

    for changes, message in (
        ({"weight_format": "fp32"}, "bf16, fp16 or int8"),
        ({"head_size": 320}, "multiple of 8 up to 256"),
        ({"hidden_size": 264, "weight_format": "int8"}, "multiple of 16"),
    ):
        with pytest.raises(CapacityError, match=message):
            CudaDecoder(small_shape(**changes), 1, 64, Emulator())
    with pytest.raises(CapacityError, match="bytes of shared memory"):
        CudaDecoder(small_shape(hidden_size=16384, layers=1, vocabulary=8), 4, 64, Emulator())


def test_state_outside_the_cache_is_refused(emulated, small_shape):
    decoder, _, _ = emulated(small_shape())

    with pytest.raises(CapacityError, match="positions must be 2 values from 0 to 127"):
        decoder.set_state([1, 2], [0, 128])
    with pytest.raises(CapacityError, match="CUDA device only"):
        decoder.capture("qkv")
