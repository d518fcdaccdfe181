"""Small decoders on the emulated device, which needs torch and a C++ compiler, or on another one."""

import importlib.util
import shutil
from pathlib import Path

import pytest

from capacity.measure.shape import DecoderShape


@pytest.fixture(scope="session")
def emulated():
    """Runs one step of a small decoder, by default on fibers, and returns it with the oracle's result of that step."""
    torch = pytest.importorskip("torch")
    from capacity.measure.decoder import oracle
    from capacity.measure.decoder.cuda.emulator import Emulator
    from capacity.measure.decoder.cuda.step import CudaDecoder

    torch.set_num_threads(1)

    def run(shape, batch=2, positions=None, backend=None, max_context=128, splits=3, **options):
        if backend is None and not any(shutil.which(name) for name in ("c++", "g++", "clang++")):
            pytest.skip("no C++ compiler: the kernels cannot be built for the CPU")
        decoder = CudaDecoder(shape, batch, max_context, backend or Emulator(), splits=splits, **options)
        positions = positions or [(37 + 53 * b) % (max_context - 1) for b in range(batch)]
        decoder.set_state([(5 + 37 * b) % shape.vocabulary for b in range(batch)], positions)
        token, position = decoder.token.clone(), decoder.position.clone()
        decoder.step()
        table = decoder.workspace["block_table"]
        expected = oracle.step(shape, decoder.weights, token, position, decoder.keys, decoder.values, table)
        return decoder, expected, position

    return run


@pytest.fixture
def small_shape():
    """A decoder shape of two layers, with odd sizes where a kernel has a tail: 1030 rows are not a multiple of 32."""

    def make(**changes):
        sizes = {
            "name": "small",
            "layers": 2,
            "hidden_size": 256,
            "query_heads": 8,
            "kv_heads": 2,
            "head_size": 64,
            "intermediate_size": 512,
            "vocabulary": 1030,
        }
        return DecoderShape(**(sizes | changes))

    return make


@pytest.fixture(scope="session")
def pretend_cuda():
    """The module of that name in this folder."""
    pytest.importorskip("torch")
    spec = importlib.util.spec_from_file_location("pretend_cuda", Path(__file__).with_name("pretend_cuda.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
