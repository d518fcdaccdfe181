"""The operator table against what the loads of the emulated kernels were counted to read, and published sizes."""

import re
from collections import Counter

import pytest

from capacity.errors import CapacityError
from capacity.measure.decoder.cuda.source import UNITS, unit_source
from capacity.measure.operators import operator_table, totals
from capacity.measure.shape import DecoderShape


def loaded_by(decoder):
    """Bytes of weights and of cache that the loads of each kernel read in one more step."""
    found = {}
    for launch in decoder.launches:
        kernel = getattr(launch.run, "func", None)
        if not hasattr(kernel, "loaded_bytes"):
            launch.run()  # torch.mm
            continue
        before = kernel.loaded_bytes()
        launch.run()
        seen = found.setdefault((launch.operator, launch.kernel), [0, 0])
        for i, after in enumerate(kernel.loaded_bytes()):
            seen[i] += after - before[i]
    return found


@pytest.mark.parametrize("weight_format", ["bf16", "int8"])
def test_matrix_kernels_load_the_bytes_of_the_table(emulated, small_shape, weight_format):
    shape = small_shape(weight_format=weight_format)
    decoder, _, _ = emulated(shape, batch=2)
    found = loaded_by(decoder)

    gain_bytes = shape.hidden_size * 2  # the norm's gain and int8's scales are no 16-byte loads
    for row in operator_table(shape, 2, 64, 3):
        if row.operator not in ("qkv", "output", "gate_up", "down", "head"):
            continue
        rows = {**shape.layer_matrices(), "head": (shape.vocabulary, 0)}[row.operator][0]
        aside = gain_bytes if row.operator in ("qkv", "gate_up", "head") else 0
        aside += rows * 4 if weight_format == "int8" and row.operator != "head" else 0
        aside *= 1 if row.operator == "head" else shape.layers
        assert found[row.operator, row.kernel][0] == row.weight_bytes - aside, row.operator


@pytest.mark.parametrize("window", [0, 24])
@pytest.mark.parametrize("position", [0, 40, 100])
@pytest.mark.parametrize("splits", [1, 3])
def test_attention_loads_the_cache_bytes_of_the_table(emulated, small_shape, window, position, splits):
    shape = small_shape(window=window)
    decoder, _, _ = emulated(shape, batch=2, positions=[position, position], splits=splits, advance=False)
    found = loaded_by(decoder)["attention", "attention"][1]

    rows = {row.operator: row for row in operator_table(shape, 2, position + 1, splits)}
    assert found == rows["attention"].kv_read_bytes


def test_dequantise_loads_the_matrices_once(emulated, small_shape):
    shape = small_shape(weight_format="int8")
    decoder, _, _ = emulated(shape, batch=5)
    found = loaded_by(decoder)

    for operator, (rows, columns) in shape.layer_matrices().items():
        assert found[operator, "dequantise"][0] == shape.layers * rows * columns


LEFT_OUT = ("attention_arrivals", "argmax_arrivals", "best_value", "best_index")
HANDED_ON = ("partial", "peaks")  # each split writes its part, the last split reads all


def rows_used(decoder, name, kernel, tokens):
    """Share of a table of tokens that a step of each sequence reads."""
    shape = decoder.shape
    if name == "rotary":
        return decoder.batch / decoder.max_context
    if name == "block_table":
        used = -(-tokens // shape.block_tokens) if kernel == "attention" else 1
        return used / shape.context_blocks(decoder.max_context)
    return 1


def stays_nan(decoder, launch, buffer):
    """Whether a buffer of NaN is still NaN after the launch, so that what was in it before went into the result."""
    kept = {name: other.clone() for name, other in decoder.workspace.items()}
    buffer.fill_(float("nan"))
    launch.run()
    stays = bool(buffer.isnan().any())
    for name, other in kept.items():
        decoder.workspace[name].copy_(other)
    return stays


def is_written(kernel):
    """For each parameter of a kernel whether it may write there, from the declaration."""
    if kernel == "torch.mm":
        return [False, False, True]
    source = "".join(unit_source(unit) for unit in UNITS)
    parameters = re.search(rf'extern "C" __global__[^{{;]*?\b{kernel}\(([^)]*)\)\s*{{', source).group(1).split(",")
    return ["*" in one and "const" not in one for one in parameters]


def handed_bytes(decoder, tokens):
    """Bytes of the buffers each launch is given, by operator and kernel; one that it writes and reads counts twice."""
    found = Counter()
    names = {buffer.data_ptr(): name for name, buffer in decoder.workspace.items()}
    for launch in decoder.launches:
        given = launch.run.args[0 if launch.kernel == "torch.mm" else 3 :]  # after grid, threads and shared bytes
        for buffer, writes in zip(given, is_written(launch.kernel), strict=True):
            name = names.get(buffer.data_ptr()) if hasattr(buffer, "data_ptr") else None
            if name is None or name in LEFT_OUT:
                continue
            both = writes and (name in HANDED_ON or (buffer.is_floating_point() and stays_nan(decoder, launch, buffer)))
            share = rows_used(decoder, name, launch.kernel, tokens)
            found[launch.operator, launch.kernel] += round(buffer.nbytes * share) * (1 + both)
    return found


@pytest.mark.parametrize("weight_format", ["bf16", "int8"])
@pytest.mark.parametrize("batch", [2, 6])
@pytest.mark.parametrize("splits", [1, 3])
def test_activations_of_the_table_are_the_buffers_that_the_kernels_are_given(
    emulated, small_shape, weight_format, batch, splits
):
    shape = small_shape(layers=3, hidden_size=64, vocabulary=90, intermediate_size=96, weight_format=weight_format)
    decoder, _, _ = emulated(shape, batch, positions=[40] * batch, splits=splits, advance=False)
    tabled = Counter()
    for row in operator_table(shape, batch, 41, splits):
        tabled[row.operator, row.kernel] += row.activation_bytes
    assert handed_bytes(decoder, 41) == tabled


# Parameters of meta-llama/Llama-3.1-8B and Llama-3.2-3B, counted by building LlamaForCausalLM of transformers from
# the published config.json (8,030,261,248 and 3,212,749,824); two bytes each.
LLAMA = [
    (DecoderShape("8b", 32, 4096, 32, 8, 128, 14336, 128256), 16_060_522_496),
    (DecoderShape("3b", 28, 3072, 24, 8, 128, 8192, 128256, tied=True), 6_425_499_648),
]


@pytest.mark.parametrize(("shape", "counted_bytes"), LLAMA)
def test_weights_have_the_bytes_that_transformers_counts(shape, counted_bytes):
    assert shape.weight_bytes() == counted_bytes


@pytest.mark.parametrize(("shape", "counted_bytes"), LLAMA)
def test_a_step_reads_all_weights_but_the_rest_of_the_embedding(shape, counted_bytes):
    step = totals(operator_table(shape, 1, 1024, 4))

    table_bytes = shape.vocabulary * shape.hidden_size * 2
    unread_bytes = 0 if shape.tied else table_bytes
    assert step.weight_bytes == counted_bytes - unread_bytes + shape.hidden_size * 2  # one row is looked up
    assert step.launches == 5 * shape.layers + 3


def test_matrix_flop_are_two_per_weight_and_sequence():
    shape = LLAMA[0][0]

    rows = operator_table(shape, 3, 1024, 4)
    matrices = [row for row in rows if row.operator in ("qkv", "output", "gate_up", "down", "head")]
    weights = sum(row.weight_bytes for row in matrices) // 2 - (2 * shape.layers + 1) * shape.hidden_size
    assert sum(row.flop for row in matrices) == 2 * 3 * weights


def test_a_window_caps_what_is_read():
    shape = DecoderShape("w", 2, 256, 8, 2, 64, 512, 1030, window=100)

    reads = [totals(operator_table(shape, 1, context, 1)).kv_read_bytes for context in (50, 100, 5000)]
    assert reads == [50 * 2 * 2 * 2 * 64 * 2, 100 * 2 * 2 * 2 * 64 * 2, 100 * 2 * 2 * 2 * 64 * 2]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"query_heads": 7}, "query_heads must be a multiple of kv_heads, got 7 and 2"),
        ({"layers": 0}, "layers must be at least 1, got 0"),
        ({"weight_format": "bf61"}, "unknown weight_format 'bf61'; nearest: bf16"),
        ({"window": -1}, "window must be 0"),
        ({"head_size": 63}, "head_size must be even"),
    ],
)
def test_a_shape_that_cannot_be_is_refused(small_shape, changes, message):
    with pytest.raises(CapacityError, match=message):
        small_shape(**changes)
