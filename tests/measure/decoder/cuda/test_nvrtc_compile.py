"""The kernels compile for the architectures that are promised, without spills, and read 16 bytes at a time.

No device is needed: NVRTC comes as a wheel. The machine code is read here directly: an instruction has 16 bytes, an
LDG has 0x981 in its lowest 12 bits and the width of the load in bits 73 to 75 (6: 16 bytes). That reading was held
against cuobjdump 13.4, which counts the same loads per kernel for sm_90; sm_80 to sm_120 share the encoding.
"""

import re
import shutil
import struct

import pytest

from capacity.errors import CapacityError
from capacity.measure.decoder.cuda import nvrtc, plan
from capacity.measure.decoder.cuda.source import UNITS, kernel_names, kernel_sha256, unit_macros, unit_source
from capacity.measure.shape import DecoderShape

ARCHITECTURES = ("sm_80", "sm_90", "sm_100", "sm_120")
MATRICES = ("qkv", "output", "gate_up", "down", "head")
LLAMA_8B = DecoderShape("8b", 32, 4096, 32, 8, 128, 14336, 128256)  # meta-llama/Llama-3.1-8B, config.json
H100 = plan.Limits(processors=132, block_shared_bytes=227 * 1024, processor_shared_bytes=228 * 1024)

needs_nvrtc = pytest.mark.skipif(nvrtc.find_nvrtc() is None, reason="no NVRTC here: pip install nvidia-cuda-nvrtc")


def macros(shape=LLAMA_8B, batch=1):
    """The macros that the plan chooses for that shape on an H100."""
    threads = plan.matrix_threads(shape, batch, H100)
    chosen = plan.shape_macros(shape, batch) | {"MATRIX_THREADS": threads}
    for name, (rows, columns) in {**shape.layer_matrices(), "head": (shape.vocabulary, shape.hidden_size)}.items():
        chosen |= plan.matrix_plan(name, rows, columns, batch, threads, H100).macros()
    return chosen


def sections(image):
    """Sections of an ELF file by name."""
    table = struct.unpack_from("<Q", image, 0x28)[0]
    size, count, names = struct.unpack_from("<HHH", image, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", image, table + i * size) for i in range(count)]
    start = headers[names][4]

    def name(header):
        return image[start + header[0] : image.index(b"\0", start + header[0])].decode()

    return {name(h): image[h[4] : h[4] + h[5]] for h in headers if h[1] != 8}  # 8: takes no room in the file


def wide_loads(cubin, kernel):
    """16-byte loads from global memory in the machine code of a kernel."""
    code = sections(cubin)[f".text.{kernel}"]
    words = struct.iter_unpack("<QQ", code[: len(code) // 16 * 16])
    return sum(low & 0xFFF == 0x981 and high >> 9 & 7 == 6 for low, high in words)


def report(text):
    """Registers and spilled bytes by kernel, from what ptxas prints."""
    found = re.findall(
        r"properties for (\w+).*?(\d+) bytes spill stores, (\d+) bytes spill loads.*?Used (\d+) registers",
        text,
        re.DOTALL,
    )
    return {name: (int(registers), int(stores) + int(loads)) for name, stores, loads, registers in found}


@needs_nvrtc
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("unit", UNITS)
def test_kernels_compile_without_warnings_or_spills(unit, architecture):
    cubin, text = nvrtc.compile_source(unit_source(unit), unit_macros(unit, macros()), architecture)

    assert "warning" not in text.lower()
    usage = report(text)
    assert set(usage) == set(kernel_names(unit))
    assert all(spilled == 0 for _, spilled in usage.values()), usage
    assert all(f".text.{name}" in sections(cubin) for name in usage)


@needs_nvrtc
@pytest.mark.parametrize("weight_format", ["bf16", "fp16", "int8"])
@pytest.mark.parametrize("batch", [1, 2, 4])
def test_matrix_kernels_keep_registers_for_two_blocks(weight_format, batch):
    shape = DecoderShape("8b", 32, 4096, 32, 8, 128, 14336, 128256, weight_format=weight_format)
    chosen = macros(shape, batch)
    _, text = nvrtc.compile_source(unit_source("matrix"), unit_macros("matrix", chosen), "sm_90")

    for name, (registers, spilled) in report(text).items():
        # 65,536 registers; at 256 threads two blocks are 16 warps with 4 KiB of loads each under way
        assert registers * chosen["MATRIX_THREADS"] <= 65_536, name
        assert registers <= 128, name
        assert spilled <= 32, name  # bytes a thread, stores and loads: a few registers, outside the loop


@needs_nvrtc
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_weights_are_read_by_eight_wide_loads_at_once(architecture):
    cubin, _ = nvrtc.compile_source(unit_source("matrix"), unit_macros("matrix", macros()), architecture)

    for kernel in MATRICES:  # two rows, four loads each; what is more are loads of the input vector
        assert wide_loads(cubin, kernel) >= 8, kernel


@needs_nvrtc
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_keys_and_values_are_read_by_eight_wide_loads_at_once(architecture):
    chosen = unit_macros("attention", macros())
    cubin, _ = nvrtc.compile_source(unit_source("attention"), chosen, architecture)

    assert wide_loads(cubin, "attention") >= 8  # four tokens, a key and a value each


@needs_nvrtc
@pytest.mark.parametrize(("head_size", "group"), [(64, 7), (96, 8), (128, 8), (256, 1), (256, 8)])
def test_attention_of_every_group_fits_its_registers(head_size, group):
    chosen = unit_macros("attention", macros() | {"HEAD_SIZE": head_size, "GROUP": group})
    _, text = nvrtc.compile_source(unit_source("attention"), chosen, "sm_90")

    registers, spilled = report(text)["attention"]
    assert registers <= 255
    assert spilled <= 32


@needs_nvrtc
def test_wide_loads_are_counted(tmp_path):
    source = """
    extern "C" __global__ void two(const uint4* a, uint4* b, const int* c, int* d) {
      uint4 x = a[threadIdx.x], y = a[threadIdx.x + 64];
      b[threadIdx.x] = make_uint4(x.x ^ y.x, x.y ^ y.y, x.z ^ y.z, x.w ^ y.w);
      d[threadIdx.x] = c[threadIdx.x];
    }"""
    cubin, _ = nvrtc.compile_source(source, {}, "sm_90")

    assert wide_loads(cubin, "two") == 2


@needs_nvrtc
def test_a_unit_is_compiled_once(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = nvrtc.compile_unit("small", macros(), "sm_90")
    monkeypatch.setattr(nvrtc, "compile_source", None)

    assert nvrtc.compile_unit("small", macros(), "sm_90") == first
    with pytest.raises(TypeError):  # another architecture is not in the cache
        nvrtc.compile_unit("small", macros(), "sm_80")


@needs_nvrtc
def test_a_refused_architecture_is_named():
    with pytest.raises(CapacityError, match="did not compile the kernels for sm_12"):
        nvrtc.compile_source(unit_source("small"), unit_macros("small", macros()), "sm_12")


@needs_nvrtc
def test_a_refused_source_shows_the_compilers_words():
    with pytest.raises(CapacityError, match='identifier "wrong" is undefined'):
        nvrtc.compile_source("__global__ void k() { wrong; }", {}, "sm_90")


@pytest.mark.skipif(not shutil.which("nvcc"), reason="no nvcc on the PATH")
@pytest.mark.parametrize("unit", UNITS)
def test_nvcc_serves_where_nvrtc_is_missing(unit, monkeypatch):
    monkeypatch.setattr(nvrtc, "find_nvrtc", lambda: None)
    cubin, text = nvrtc.compile_source(unit_source(unit), unit_macros(unit, macros()), "sm_90")

    assert nvrtc.compiler_version().startswith("nvcc ")
    assert all(f".text.{name}" in sections(cubin) for name in kernel_names(unit))
    assert all(spilled == 0 for _, spilled in report(text).values())


def test_a_missing_compiler_is_named(monkeypatch):
    monkeypatch.setattr(nvrtc, "find_nvrtc", lambda: None)
    monkeypatch.setattr(shutil, "which", lambda name: None)

    with pytest.raises(CapacityError, match="pip install nvidia-cuda-nvrtc"):
        nvrtc.compile_source("", {}, "sm_90")
    with pytest.raises(CapacityError, match="pip install nvidia-cuda-nvrtc"):
        nvrtc.compiler_version()


def test_the_hash_is_that_of_the_sources():
    assert re.fullmatch("[0-9a-f]{64}", kernel_sha256())
    assert "#include" not in "".join(unit_source(unit) for unit in UNITS)


@pytest.mark.skipif(nvrtc.find_nvrtc() is None, reason="no NVRTC here: pip install nvidia-cuda-nvrtc")
def test_a_machine_without_a_device_is_refused():
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    from capacity.measure.decoder.cuda.driver import CudaDevice

    with pytest.raises(CapacityError, match="no CUDA device"):
        CudaDevice()
