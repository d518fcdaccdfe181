"""The same steps on a CUDA device: the emulated suite's own checks, and a graph that replays what ``step`` does."""

import pytest

from capacity.measure.runs.quality import NARROW_TOLERANCES, TOLERANCE

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def cuda():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    from capacity.measure.decoder.cuda.driver import CudaDevice

    return CudaDevice()


@pytest.mark.parametrize("weight_format", ["bf16", "fp16", "int8"])
@pytest.mark.parametrize("batch", [1, 2, 4, 16])
@pytest.mark.parametrize("window", [0, 300])
def test_step_agrees_with_the_oracle(emulated, small_shape, cuda, weight_format, batch, window):
    from capacity.measure.decoder import oracle

    shape = small_shape(
        hidden_size=1024,
        query_heads=16,
        kv_heads=4,
        head_size=128,
        intermediate_size=2816,
        vocabulary=32001,
        window=window,
        weight_format=weight_format,
    )
    decoder, expected, _ = emulated(shape, batch, backend=cuda, max_context=1024, splits=None)

    limit = TOLERANCE if batch <= 4 else NARROW_TOLERANCES[weight_format]
    assert oracle.relative_error(decoder.logits, expected.logits) < limit


@pytest.mark.parametrize("batch", [2, 16])
def test_graph_replays_the_step(emulated, small_shape, cuda, batch):
    import torch

    decoder, _, position = emulated(small_shape(), batch, backend=cuda)
    token = decoder.token.clone()
    seen = []
    graph = decoder.capture()
    for run in (decoder.step, graph.replay):
        decoder.token.copy_(token)
        decoder.position.copy_(position + 1)
        for _ in range(3):
            run()
        torch.cuda.synchronize()
        seen.append((decoder.logits.clone(), decoder.token.tolist(), decoder.position.tolist()))

    assert torch.equal(seen[0][0], seen[1][0])
    assert seen[0][1:] == seen[1][1:]
    assert seen[0][2] == [min(at + 4, 127) for at in position.tolist()]
