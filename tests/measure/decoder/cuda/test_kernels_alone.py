"""Each kernel alone against the oracle's function of the same name, and the kernels of few bytes to the last bit."""

import ctypes
import subprocess

import numpy as np
import pytest

from capacity.errors import CapacityError
from capacity.measure.decoder.cuda import plan
from capacity.measure.decoder.cuda.arguments import Shape, matrix_argument, pack_arguments
from capacity.measure.decoder.cuda.emulator import Emulator, find_compiler
from capacity.measure.decoder.cuda.source import unit_macros, unit_source

KERNEL_ERROR = 3e-7  # one kernel in fp32 arithmetic


@pytest.mark.parametrize("weight_format", ["bf16", "fp16", "int8"])
def test_each_kernel_agrees_with_its_oracle(emulated, small_shape, weight_format):
    from capacity.measure.decoder import oracle

    shape = small_shape(layers=1, weight_format=weight_format)
    decoder, _, position = emulated(shape)
    decoder.set_state([5, 42], position.tolist())
    buffers, layer = decoder.workspace, decoder.weights.layers[0]

    def expected(kernel, x):
        if kernel == "embed":
            return oracle.embed(decoder.weights.embedding.exact(), decoder.token)
        if kernel == "qkv":
            return oracle.qkv(shape, x, layer.attention_norm, layer.qkv.exact(), position)[0].flatten(1)
        if kernel == "attention":
            q = buffers["q"].double().view(2, shape.query_heads, shape.head_size)
            table = buffers["block_table"]
            return oracle.attention(shape, q, decoder.keys[0], decoder.values[0], table, position)
        if kernel == "output":
            return x + buffers["attended"].double() @ layer.output.exact().T
        if kernel == "gate_up":
            return oracle.gate_up(shape, x, layer.mlp_norm, layer.gate_up.exact())
        if kernel == "down":
            return x + buffers["h"].double() @ layer.down.exact().T
        return oracle.head(shape, x, decoder.weights.final_norm, decoder.weights.head.exact())

    written = {"embed": "x", "qkv": "q", "attention": "attended", "output": "x", "gate_up": "h", "down": "x"}
    for launch in decoder.launches[:-1]:
        x = buffers["x"].double()
        launch.run()
        found = buffers[written.get(launch.kernel, "logits")]
        assert oracle.relative_error(found, expected(launch.kernel, x)) < KERNEL_ERROR, launch.kernel


@pytest.fixture(scope="module")
def small_kernels():
    pytest.importorskip("torch")
    return {
        name: Emulator().load(
            "small", {"WIDE": wide, "HEAD_SIZE": 64, "BLOCK_TOKENS": 16} | ({"NARROW_LOGITS": 1} if wide else {})
        )
        for name, wide in (("bf16", 0), ("fp16", 1))
    }


def struct(hidden=256, inner=96, vocabulary=1030):
    return Shape(hidden, 8, 2, inner, vocabulary, 128, 0, 1, 1e-5)


@pytest.mark.parametrize("number_format", ["bf16", "fp16"])
def test_normalise_adds_and_rounds_once(small_kernels, number_format):
    import torch

    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[number_format]
    x, delta, gain = torch.randn(3, 256), torch.randn(3, 256).to(dtype), torch.randn(256).to(dtype)
    out, summed = torch.empty(3, 256, dtype=dtype), x + delta.float()
    small_kernels[number_format]["normalise"]((3, 1, 1), 96, 128, struct(), delta, x, gain, out)

    wide = summed.double()
    wanted = wide / (wide.square().mean(-1, keepdim=True) + 1e-5).sqrt() * gain.double()
    assert torch.equal(x, summed)
    bits = 8 if number_format == "bf16" else 11
    assert bool(((out.double() - wanted).abs() <= wanted.abs() * 2.0**-bits * 1.001 + 1e-7).all())


@pytest.mark.parametrize("number_format", ["bf16", "fp16"])
def test_swiglu_is_that_of_torch(small_kernels, number_format):
    import torch

    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[number_format]
    rows, h = torch.randn(5, 192).to(dtype), torch.empty(5, 96, dtype=dtype)
    small_kernels[number_format]["swiglu"]((2, 1, 1), 64, 0, struct(), ctypes.c_int(5), rows, h)

    gate, up = rows.double().chunk(2, -1)
    wanted = torch.nn.functional.silu(gate) * up
    bits = 8 if number_format == "bf16" else 11
    assert bool(((h.double() - wanted).abs() <= wanted.abs() * 2.0**-bits * 1.001 + 1e-7).all())


@pytest.mark.parametrize("number_format", ["bf16", "fp16"])
def test_dequantise_gives_every_value_of_int8_exactly_rounded(small_kernels, number_format):
    import torch

    from capacity.measure.decoder.weights import StoredMatrix

    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[number_format]
    stored = torch.arange(-128, 128, dtype=torch.int16).to(torch.int8).repeat(3, 1)
    scales = torch.tensor([1.0, 0.013, 7.7])
    out = torch.empty(3, 256, dtype=dtype)
    arguments = (matrix_argument(StoredMatrix(stored, scales)), ctypes.c_longlong(3), ctypes.c_int(256), out)
    small_kernels[number_format]["dequantise"]((1, 1, 1), 32, 0, *arguments)

    assert torch.equal(out, (stored.float() * scales[:, None]).to(dtype))


# blocks, threads: more slices than lanes, more warps than one, and neither
@pytest.mark.parametrize(("slices", "threads"), [(4, 64), (40, 96), (1, 32)])
def test_argmax_takes_the_lowest_of_equal_logits(small_kernels, slices, threads):
    import torch

    logits = torch.zeros(3, 1030)
    logits[0, [7, 900]] = 2.0
    logits[1] = -3.0
    logits[2] = float("-inf")
    logits[2, 1029] = -1e30
    token, position = torch.full((3,), -1, dtype=torch.int32), torch.tensor([0, 5, 127], dtype=torch.int32)
    best, arrivals = torch.empty(2, 3, slices), torch.zeros(3, dtype=torch.int32)
    arguments = (logits, ctypes.c_int(1), best[0], best[1], arrivals, token, position)
    small_kernels["bf16"]["argmax"]((slices, 3, 1), threads, threads // 4, struct(), *arguments)

    assert token.tolist() == [7, 0, 1029]
    assert position.tolist() == [1, 6, 127]
    assert arrivals.tolist() == [0, 0, 0]


def test_argmax_of_nan_stays_inside_the_vocabulary(small_kernels):
    import torch

    logits = torch.full((1, 1030), float("nan"))
    token, position = torch.zeros(2, 1, dtype=torch.int32)
    best, arrivals = torch.empty(2, 1, 4), torch.zeros(1, dtype=torch.int32)
    arguments = (logits, ctypes.c_int(0), best[0], best[1], arrivals, token, position)
    small_kernels["bf16"]["argmax"]((4, 1, 1), 64, 16, struct(), *arguments)

    assert 0 <= int(token) < 1030


def test_stream_read_reads_every_word_once(small_kernels):
    import torch

    words = np.random.default_rng(0).integers(0, 2**32, 4 * 1777, dtype=np.uint32)
    out = torch.zeros(1, dtype=torch.int32)
    data = torch.from_numpy(words.view(np.int32))
    small_kernels["bf16"]["stream_read"]((3, 1, 1), 64, 0, data, ctypes.c_longlong(1777), out)

    assert np.uint32(out.numpy().view(np.uint32)[0]) == np.bitwise_xor.reduce(words)


def test_an_argument_of_unknown_width_is_refused():
    with pytest.raises(TypeError, match="ctypes value, got int"):
        pack_arguments((3,))


MACROS = {
    "WEIGHTS": (0, 1),
    "WIDE": (0, 1),
    "BATCH": (1, 3),
    "HEAD_SIZE": (64, 128),
    "GROUP": (1, 4),
    "BLOCK_TOKENS": (16, 32),
    "MATRIX_THREADS": (256, 512),
    "QKV_PAIRS": (1, 2),
    "QKV_SPLIT": (1, 2),
    "OUTPUT_STAGED": (0, 1),
    "DOWN_STAGED": (0, 1),
    "HEAD_SPLIT": (1, 2),
}


@pytest.mark.parametrize("unit", ["matrix", "attention", "small"])
def test_a_unit_takes_the_macros_that_change_what_the_preprocessor_makes_of_it(unit):
    def preprocessed(macros):
        defines = [f"-D{name}={value}" for name, value in macros.items()]
        narrow = ("-DNARROW_ATTENTION=1", "-DNARROW_LOGITS=1")
        command = [find_compiler(), "-E", "-P", "-x", "c++", *narrow, *defines, "-"]
        return subprocess.run(command, input=unit_source(unit), capture_output=True, text=True, check=True).stdout

    first = {name: values[0] for name, values in MACROS.items()}
    plain = preprocessed(first)
    changed = {name for name, values in MACROS.items() if preprocessed(first | {name: values[1]}) != plain}
    assert set(unit_macros(unit, first)) == changed


def test_an_unknown_unit_is_named():
    with pytest.raises(CapacityError, match="unknown kernel unit 'atention'; nearest: attention"):
        unit_source("atention")


@pytest.mark.parametrize(("group", "heads"), [(1, 1), (4, 4), (7, 7), (8, 8), (12, 6), (16, 8), (71, 1)])
def test_heads_per_block_divide_the_group(group, heads):
    assert plan.heads_per_block(group) == heads
