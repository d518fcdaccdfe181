"""The kernels on a CUDA device: the driver library through ctypes, launches on the current stream of torch."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from functools import cache
from typing import Any

from capacity.errors import CapacityError
from capacity.measure.decoder.cuda.arguments import pack_arguments
from capacity.measure.decoder.cuda.nvrtc import compile_unit, compiler_version
from capacity.measure.decoder.cuda.plan import Limits
from capacity.measure.decoder.cuda.source import kernel_names

MAX_SHARED_BYTES = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
BLOCK_SHARED, PROCESSOR_SHARED = 97, 81  # CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, _PER_MULTIPROCESSOR
PROCESSORS = 16  # CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
DEFAULT_SHARED_BYTES = 48 * 1024  # more must be requested per kernel
REJECTED_IMAGE = (200, 209, 222)  # CUDA_ERROR_INVALID_IMAGE, _NO_BINARY_FOR_GPU, _UNSUPPORTED_PTX_VERSION


class CudaDevice:
    """The current device of torch.

    Raises
    ------
    CapacityError
        If torch has no CUDA device, or the driver library is missing.
    """

    device = "cuda"

    def __init__(self) -> None:
        import torch

        if not torch.cuda.is_available():
            raise CapacityError(
                "no CUDA device: the reference decoder needs an NVIDIA GPU, its driver, and a CUDA build of torch"
            )
        self.index = torch.cuda.current_device()
        torch.zeros(1, device="cuda")  # makes torch create the context that the modules are loaded into
        major, minor = torch.cuda.get_device_capability(self.index)
        self.architecture = f"sm_{major}{minor}"
        self._enter_context()
        self.limits = Limits(
            processors=self._attribute(PROCESSORS),
            block_shared_bytes=self._attribute(BLOCK_SHARED),
            processor_shared_bytes=self._attribute(PROCESSOR_SHARED),
        )

    def load(self, unit: str, macros: Mapping[str, int]) -> dict[str, DeviceKernel]:
        """Kernels of a unit by name, compiled for this device."""
        image = compile_unit(unit, macros, self.architecture)
        module = ctypes.c_void_p()
        _call("cuModuleLoadData", ctypes.byref(module), image)
        return {name: DeviceKernel(module, name) for name in kernel_names(unit)}

    def _enter_context(self) -> None:
        """Make torch's context current on this thread; the runtime library does so only at its own calls."""
        _call("cuInit", 0)
        self._device, context = ctypes.c_int(), ctypes.c_void_p()
        _call("cuDeviceGet", ctypes.byref(self._device), self.index)
        _call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self._device)
        _call("cuCtxSetCurrent", context)

    def _attribute(self, number: int) -> int:
        value = ctypes.c_int()
        _call("cuDeviceGetAttribute", ctypes.byref(value), number, self._device)
        return value.value


class DeviceKernel:
    """One kernel of a loaded module."""

    def __init__(self, module: ctypes.c_void_p, name: str) -> None:
        self.name = name
        self._module = module
        self._function = ctypes.c_void_p()
        self._shared_limit_bytes = DEFAULT_SHARED_BYTES
        _call("cuModuleGetFunction", ctypes.byref(self._function), module, name.encode())

    def __call__(self, grid: tuple[int, int, int], threads: int, shared_bytes: int, *arguments: Any) -> None:
        """Launch on the current stream of torch, which may be capturing."""
        import torch

        self.allow_shared_bytes(shared_bytes)
        array, _values = pack_arguments(arguments)
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        _call("cuLaunchKernel", self._function, *grid, threads, 1, 1, shared_bytes, stream, array, None)

    def allow_shared_bytes(self, shared_bytes: int) -> None:
        """Raise the kernel's limit of dynamic shared memory where a launch needs more."""
        if shared_bytes > self._shared_limit_bytes:
            _call("cuFuncSetAttribute", self._function, MAX_SHARED_BYTES, shared_bytes)
            self._shared_limit_bytes = shared_bytes

    def blocks_per_processor(self, threads: int, shared_bytes: int) -> int:
        """Blocks that are resident on one multiprocessor at once."""
        self.allow_shared_bytes(shared_bytes)
        blocks = ctypes.c_int()
        _call(
            "cuOccupancyMaxActiveBlocksPerMultiprocessor",
            ctypes.byref(blocks),
            self._function,
            threads,
            ctypes.c_size_t(shared_bytes),
        )
        return blocks.value


@cache
def _library() -> ctypes.CDLL:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        raise CapacityError("libcuda.so.1 is missing: install the NVIDIA driver of this machine") from None


def _call(name: str, *arguments: Any) -> None:
    """Call the driver.

    Raises
    ------
    CapacityError
        With the driver's own message, if the call fails.
    """
    library = _library()
    status = getattr(library, name)(*arguments)
    if status:
        text = ctypes.c_char_p()
        library.cuGetErrorString(status, ctypes.byref(text))
        message = f"{name} failed: {(text.value or b'unknown error').decode()} (code {status})"
        if status in REJECTED_IMAGE:
            message += (
                f"; the kernels were compiled by {compiler_version()}: use the compiler of the driver's own CUDA "
                "(pip install nvidia-cuda-nvrtc for CUDA 13, nvidia-cuda-nvrtc-cu12 for CUDA 12)"
            )
        raise CapacityError(message)
