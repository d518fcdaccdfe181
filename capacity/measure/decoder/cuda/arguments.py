"""The structs that the kernels take, and how the arguments of a launch are packed."""

from __future__ import annotations

import ctypes
from typing import Any

from capacity.measure.decoder.weights import StoredMatrix
from capacity.measure.shape import DecoderShape


class Shape(ctypes.Structure):
    """``struct Shape`` of numbers.cuh."""

    _fields_ = [
        (name, ctypes.c_int)
        for name in (
            "hidden",
            "query_heads",
            "kv_heads",
            "inner",
            "vocabulary",
            "max_context",
            "window",
            "splits",
        )
    ] + [("norm_eps", ctypes.c_float)]


class Matrix(ctypes.Structure):
    """``struct Matrix`` of numbers.cuh."""

    _fields_ = [("weights", ctypes.c_void_p), ("scales", ctypes.c_void_p)]


def shape_argument(shape: DecoderShape, max_context: int, splits: int) -> Shape:
    """The sizes of a decoder as the kernels take them."""
    return Shape(
        shape.hidden_size,
        shape.query_heads,
        shape.kv_heads,
        shape.intermediate_size,
        shape.vocabulary,
        max_context,
        shape.window,
        splits,
        shape.norm_eps,
    )


def matrix_argument(stored: StoredMatrix) -> Matrix:
    """The addresses of a matrix and its scales; the tensors must outlive the launch."""
    return Matrix(stored.data.data_ptr(), stored.scales.data_ptr() if stored.scales is not None else None)


def pack_arguments(arguments: tuple[Any, ...]) -> tuple[Any, list[Any]]:
    """Array of pointers as ``cuLaunchKernel`` takes it, and the values that it points to, which must outlive the call.

    Tensors are passed as their address and ``None`` as a null pointer; numbers must be ctypes values, since their
    width has to be that of the kernel's parameter.
    """
    values = [_value(argument) for argument in arguments]
    array = (ctypes.c_void_p * len(values))(*[ctypes.cast(ctypes.byref(v), ctypes.c_void_p) for v in values])
    return array, values


def _value(argument: Any) -> Any:
    if argument is None or hasattr(argument, "data_ptr"):
        return ctypes.c_void_p(argument.data_ptr() if argument is not None else None)
    if isinstance(argument, (ctypes.Structure, ctypes._SimpleCData)):
        return argument
    raise TypeError(f"a kernel argument must be a tensor, None or a ctypes value, got {type(argument).__name__}")
