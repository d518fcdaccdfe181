"""A stand-in for torch.cuda on a processor, with the emulation in place of the device.

Tensors requested on "cuda" are created in main memory, events have a clock of their own, a graph runs its launches
again, and the counters of the allocator are constant at a peak that was calculated by hand. The kernels are those of
the device, on fibers.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from itertools import count
from types import SimpleNamespace

import torch
from torch.overrides import TorchFunctionMode

from capacity.measure.campaigns import cuda_grid
from capacity.measure.decoder.cuda.emulator import Emulator
from capacity.measure.decoder.cuda.step import CudaDecoder
from capacity.measure.runs import cuda_machine, cuda_microbenchmarks, cuda_runs, timing
from capacity.measure.shape import DecoderShape

UUID = "01234567-89ab-cdef-0123-456789abcdef"
FREE_BYTES, TOTAL_BYTES = 139 * 10**9, 141 * 10**9
ANSWERS = {
    "clocks.sm,clocks.mem,power.limit": "1980, 3201, 700.00",
    "driver_version,ecc.mode.current": "580.1, Enabled",
}
FACTS = SimpleNamespace(
    name="NVIDIA H200",
    uuid=UUID,
    major=9,
    minor=0,
    multi_processor_count=132,
    L2_cache_size=60 * 2**20,
    total_memory=TOTAL_BYTES,
)
TINY = {
    "layers": 2,
    "hidden_size": 64,
    "query_heads": 4,
    "kv_heads": 2,
    "head_size": 16,
    "intermediate_size": 96,
    "vocabulary": 130,
}
# Of 2 prompts of 20 tokens: at the end of a feed-forward each token holds 4 x 64 + 4 x 96 elements of 2 bytes.
PEAK_BYTES = 2 * 20 * (4 * 64 + 4 * 96) * 2


class OnProcessor(TorchFunctionMode):
    """Creates in main memory what is requested on "cuda"."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if kwargs.get("device") == "cuda":
            kwargs["device"] = "cpu"
        kwargs.pop("pin_memory", None)
        return function(*args, **kwargs)


class Event:
    """A clock that advances by a millisecond with each event, so that all samples are equal."""

    recorded = count()

    def __init__(self, enable_timing=False):
        self.at = 0

    def record(self):
        self.at = next(Event.recorded)

    def synchronize(self):
        pass

    def elapsed_time(self, later):
        return float(later.at - self.at)


def shapes(*, quick):
    """A tiny decoder in two formats of the campaign."""
    return [DecoderShape(name=f"tiny-{weights}", weight_format=weights, **TINY) for weights in ("bf16", "int8")]


def put_in_place(patch):
    """Install the stand-in device and small cases with ``patch``, a pytest.MonkeyPatch."""
    torch.set_num_threads(1)
    graph = contextmanager(lambda captured: (yield))
    for name, value in {
        "is_available": lambda: True,
        "current_device": lambda: 0,
        "get_device_properties": lambda index: FACTS,
        "mem_get_info": lambda: (FREE_BYTES, TOTAL_BYTES),
        "Event": Event,
        "CUDAGraph": lambda: SimpleNamespace(replay=lambda: None),
        "graph": graph,
    }.items():
        patch.setattr(torch.cuda, name, value)
    for name in ("memory_allocated", "memory_reserved", "max_memory_reserved"):
        patch.setattr(torch.cuda, name, lambda: 0)
    stats = {"requested_bytes.all.current": 7, "requested_bytes.all.peak": 7 + PEAK_BYTES}
    patch.setattr(torch.cuda, "memory_stats", lambda: stats)
    for name in ("synchronize", "empty_cache", "reset_peak_memory_stats"):
        patch.setattr(torch.cuda, name, lambda: None)

    def capture(decoder, operator=None):
        return SimpleNamespace(replay=lambda: decoder.run_operator(operator))

    patch.setattr(CudaDecoder, "capture", capture)
    patch.setattr(cuda_grid, "CudaDevice", Emulator)
    patch.setattr(cuda_grid, "shapes", shapes)
    patch.setattr(cuda_machine, "smi_text", lambda query, device: ANSWERS[query] if device == f"GPU-{UUID}" else "")
    patch.setattr(cuda_grid, "BATCHES", (1, 5))
    patch.setattr(cuda_grid, "CONTEXTS", (20,))
    patch.setattr(cuda_grid, "MEMORY_CASES", ((2, 20),))
    patch.setattr(cuda_grid, "PREFILL_CASES", ((1, 9), (2, 20)))
    patch.setattr(cuda_runs, "OWN_READ_BYTES", 2**16)
    patch.setattr(cuda_runs, "REPLAYS", 3)
    patch.setattr(cuda_runs, "OPERATOR_REPLAYS", 1)
    patch.setattr(cuda_microbenchmarks, "READ_BYTES", 2**20)
    patch.setattr(cuda_microbenchmarks, "LINK_BYTES", 2**16)
    patch.setattr(cuda_microbenchmarks, "GEMM_SIZES", (64,))
    patch.setattr(timing, "WARMUP_RUNS", 1)
    patch.setattr(timing, "event_samples_s", partial(timing.event_samples_s, runs=1))
    patch.setattr(cuda_machine, "code_commit", lambda: "rehearsal")
