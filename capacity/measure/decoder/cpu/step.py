"""The reference decoder on a CPU, for timing: arrays of numpy, kernels of ``kernels/cpu_ref.cpp``.

The step is a list of kernel calls in the order of the CUDA decoder. Each call carries its bytes and FLOP, counted from
the arrays that it is given, so that a run records the counts of what ran.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from capacity.errors import CapacityError, Unsupported
from capacity.measure.decoder.cpu.library import library
from capacity.measure.decoder.cpu.weights import PANEL, Matrix, Weights, random_weights
from capacity.measure.operators import OperatorCount
from capacity.measure.shape import DecoderShape

if TYPE_CHECKING:
    from torch import Tensor

FORMATS = {"fp32": 0, "bf16": 1, "int8": 2}
HEAD_SIZES = (16, 32, 64, 128, 256)
BLOCK_TOKENS = 16
MAX_BATCH = 16


CacheArrays = tuple[np.ndarray, np.ndarray]


def random_cache(shape: DecoderShape, *, tokens: int, sequences: int = 1, seed: int) -> CacheArrays:
    """Random keys and values for ``sequences`` of ``tokens`` each, [layers, blocks, kv_heads, head_size * 16] fp32."""
    rng = np.random.default_rng(seed)
    blocks = sequences * shape.context_blocks(tokens)
    size = (shape.layers, blocks, shape.kv_heads, shape.head_size * shape.block_tokens)
    return rng.standard_normal(size, dtype=np.float32), rng.standard_normal(size, dtype=np.float32)


class CacheView(ctypes.Structure):
    """``struct Cache`` of cpu_ref.cpp."""

    _fields_ = (
        ("keys", ctypes.c_void_p),
        ("values", ctypes.c_void_p),
        ("table", ctypes.c_void_p),
        ("table_width", ctypes.c_int32),
        ("query_heads", ctypes.c_int32),
        ("kv_heads", ctypes.c_int32),
        ("head_size", ctypes.c_int32),
        ("window", ctypes.c_int32),
    )


@dataclass(frozen=True)
class Call:
    """One kernel call of the step, with its operator, bytes and FLOP."""

    count: OperatorCount
    run: Callable[[], Any]


class CpuDecoder:
    """A decoder with random weights and a paged cache of random keys and values.

    Parameters
    ----------
    shape : DecoderShape
        fp32 cache; fp32, bf16 or int8 weights.
    batch : int
        Sequences, at most 16.
    max_context : int
        Tokens that the cache of a sequence holds. [tokens]
    threads : int
        Threads of the kernels.
    weights : Weights, optional
        Weights to share between decoders of the same shape.
    cache : CacheArrays, optional
        Blocks to share between decoders with the same cache shape, at least as many as this one needs.
    """

    backend = "cpu_ref"

    def __init__(
        self,
        shape: DecoderShape,
        batch: int,
        max_context: int,
        *,
        seed: int = 0,
        threads: int = 1,
        weights: Weights | None = None,
        cache: CacheArrays | None = None,
    ) -> None:
        _check(shape, batch, max_context)
        self.shape, self.batch, self.max_context = shape, batch, max_context
        self.library = library()
        self.library.ref_threads(threads)
        self.weights = weights or random_weights(shape, seed)
        self.keys, self.values = cache or random_cache(shape, tokens=max_context, sequences=batch, seed=seed + 1)
        self.block_table = self._block_table(np.random.default_rng(seed + 2))
        self._allocate_workspace()
        self.calls = self._step_calls()
        self.move_to(max_context)

    def _block_table(self, rng: np.random.Generator) -> np.ndarray:
        """Blocks of each sequence, drawn at random from the whole cache. [batch, blocks]"""
        width, blocks = self.shape.context_blocks(self.max_context), self.keys.shape[1]
        if blocks < self.batch * width:
            raise CapacityError(f"the cache has {blocks} blocks, {self.batch} sequences need {self.batch * width}")
        return rng.permutation(blocks)[: self.batch * width].astype(np.int32).reshape(self.batch, width)

    def _allocate_workspace(self) -> None:
        s, batch = self.shape, self.batch
        width = {
            "residual": s.hidden_size,
            "normed": s.hidden_size,
            "qkv": s.qkv_rows,
            "attended": s.query_size,
            "gate_up": 2 * s.intermediate_size,
            "product": s.intermediate_size,
            "logits": s.vocabulary,
        }
        self.workspace = {name: np.zeros((batch, size), np.float32) for name, size in width.items()}
        self.tokens = np.zeros(batch, np.int32)
        self.positions = np.zeros(batch, np.int32)
        self.cosine, self.sine = rotary_table(self.max_context, s.head_size, s.rope_theta)
        self.layer_caches = [self._cache_view(layer) for layer in range(s.layers)]

    def _cache_view(self, layer: int) -> CacheView:
        s = self.shape
        keys, values = self.keys[layer].ctypes.data, self.values[layer].ctypes.data
        width = self.block_table.shape[1]
        heads = (s.query_heads, s.kv_heads, s.head_size, s.window)
        return CacheView(keys, values, self.block_table.ctypes.data, width, *heads)

    # ---- what a run records ----

    @property
    def cache_bytes(self) -> int:
        """Bytes of the arrays that hold keys and values. [B]"""
        return self.keys.nbytes + self.values.nbytes

    @property
    def workspace_bytes(self) -> int:
        """Bytes of the buffers between the kernels. [B]"""
        return sum(buffer.nbytes for buffer in self.workspace.values())

    def counts(self) -> tuple[OperatorCount, ...]:
        """Bytes and FLOP of each kernel call of the next step, at the current positions."""
        return tuple(call.count for call in self.calls)

    def cache_tensors(self) -> tuple[list[Tensor], list[Tensor]]:
        """Keys and values by layer as views, [blocks, kv_heads, block_tokens, head_size]; keys are transposed."""
        import torch

        s = self.shape
        blocks = (s.layers, self.keys.shape[1], s.kv_heads)
        keys = torch.from_numpy(self.keys).view(*blocks, s.head_size, s.block_tokens).transpose(3, 4)
        values = torch.from_numpy(self.values).view(*blocks, s.block_tokens, s.head_size)
        return list(keys), list(values)

    # ---- the step ----

    def move_to(self, context_tokens: int, token: int = 1) -> None:
        """Make the next step that of token number ``context_tokens`` of every sequence."""
        if not 1 <= context_tokens <= self.max_context:
            raise CapacityError(f"context must be 1 to {self.max_context} tokens, got {context_tokens}")
        self.tokens[:] = (token + np.arange(self.batch)) % self.shape.vocabulary
        self.positions[:] = context_tokens - 1
        self.calls = self._step_calls()

    def step(self) -> None:
        """One decode step: reads ``tokens`` at ``positions``, writes logits and the next tokens."""
        for call in self.calls:
            call.run()

    def timed_step(self) -> dict[str, float]:
        """One step with each call timed, summed by operator. [s]"""
        times: dict[str, float] = {}
        for call in self.calls:
            start = time.perf_counter()
            call.run()
            times[call.count.operator] = times.get(call.count.operator, 0.0) + time.perf_counter() - start
        return times

    def _step_calls(self) -> list[Call]:
        s, w = self.shape, self.workspace
        calls = [self._embed()]
        for layer, cache_view in zip(self.weights.layers, self.layer_caches, strict=True):
            calls += [
                self._normalise("qkv", layer["gain_1"]),
                self._linear("qkv", layer["qkv"], w["normed"], w["qkv"]),
                self._rotate(cache_view),
                self._attention(cache_view),
                self._linear("output", layer["output"], w["attended"], w["residual"], add=True),
                self._normalise("gate_up", layer["gain_2"]),
                self._linear("gate_up", layer["gate_up"], w["normed"], w["gate_up"]),
                self._swiglu(),
                self._linear("down", layer["down"], w["product"], w["residual"], add=True),
            ]
        calls += [
            self._normalise("head", self.weights.gain),
            self._linear("head", self.weights.head, w["normed"], w["logits"]),
        ]
        argmax = (_at(w["logits"]), _at(self.tokens), self.batch, s.vocabulary)
        moved_bytes = w["logits"].nbytes + self.tokens.nbytes
        return [*calls, self._call("argmax", "argmax", argmax, activation_bytes=moved_bytes)]

    def _call(self, operator: str, kernel: str, arguments: tuple[Any, ...], **counts: int) -> Call:
        function = getattr(self.library, f"ref_{kernel}")
        return Call(OperatorCount(operator, kernel, **counts), lambda: function(*arguments))

    def _embed(self) -> Call:
        table, out = self.weights.embedding, self.workspace["residual"]
        arguments = (FORMATS[table.format], _at(table.values), _at(self.tokens), _at(out), self.batch, out.shape[1])
        rows_bytes = out.size * table.values.itemsize
        moved_bytes = out.nbytes + self.tokens.nbytes
        return self._call("embed", "embed", arguments, weight_bytes=rows_bytes, activation_bytes=moved_bytes)

    def _normalise(self, operator: str, gain: Matrix) -> Call:
        x, y = self.workspace["residual"], self.workspace["normed"]
        eps = ctypes.c_float(self.shape.norm_eps)
        arguments = (FORMATS[gain.format], _at(x), _at(gain.values), _at(y), self.batch, x.shape[1], eps)
        moved_bytes = x.nbytes + y.nbytes
        return self._call(operator, "normalise", arguments, weight_bytes=gain.nbytes, activation_bytes=moved_bytes)

    def _linear(self, operator: str, w: Matrix, x: np.ndarray, y: np.ndarray, *, add: bool = False) -> Call:
        rows, columns = w.shape
        scales = None if w.scales is None else _at(w.scales)
        arguments = (FORMATS[w.format], _at(w.values), scales, _at(x), _at(y), rows, columns, self.batch, int(add))
        moved_bytes = x.nbytes + y.nbytes * (2 if add else 1)
        flop = 2 * rows * columns * self.batch
        return self._call(operator, "linear", arguments, weight_bytes=w.nbytes, activation_bytes=moved_bytes, flop=flop)

    def _rotate(self, view: CacheView) -> Call:
        s, qkv = self.shape, self.workspace["qkv"]
        arguments = (_at(qkv), _at(self.cosine), _at(self.sine), ctypes.byref(view), _at(self.positions), self.batch)
        rotated = (s.query_size + s.kv_size) * 2 + s.kv_size  # reads and writes q and k, reads v
        moved_bytes = self.batch * (rotated + s.head_size) * 4
        written_bytes = self.batch * 2 * s.kv_size * self.keys.itemsize
        return self._call("qkv", "rotate", arguments, kv_write_bytes=written_bytes, activation_bytes=moved_bytes)

    def _attention(self, view: CacheView) -> Call:
        s, qkv, out = self.shape, self.workspace["qkv"], self.workspace["attended"]
        arguments = (_at(qkv), _at(out), ctypes.byref(view), _at(self.positions), self.batch)
        tokens = sum(s.attended(int(position) + 1) for position in self.positions)
        return self._call(
            "attention",
            "attention",
            arguments,
            kv_read_bytes=tokens * 2 * s.kv_size * self.keys.itemsize,
            activation_bytes=2 * out.nbytes,
            flop=tokens * 4 * s.query_size,
        )

    def _swiglu(self) -> Call:
        x, y = self.workspace["gate_up"], self.workspace["product"]
        arguments = (_at(x), _at(y), self.batch, y.shape[1])
        return self._call("gate_up", "swiglu", arguments, activation_bytes=x.nbytes + y.nbytes)


def rotary_table(tokens: int, head_size: int, theta: float) -> tuple[np.ndarray, np.ndarray]:
    """Cosine and sine of every pair at every position, fp32 from float64. [tokens, head_size / 2]"""
    rate = theta ** (-2.0 * np.arange(head_size // 2) / head_size)
    angle = np.arange(tokens)[:, None] * rate
    return np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)


def _at(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def _check(shape: DecoderShape, batch: int, max_context: int) -> None:
    if not 1 <= batch <= MAX_BATCH:
        raise CapacityError(f"the CPU decoder steps 1 to {MAX_BATCH} sequences, got {batch}")
    if max_context < 1:
        raise CapacityError(f"max_context must be at least 1 token, got {max_context}")
    if shape.weight_format not in FORMATS:
        raise Unsupported(
            f"shape {shape.name}: the CPU decoder holds weights in {', '.join(FORMATS)}, not {shape.weight_format}"
        )
    if shape.kv_format != "fp32" or shape.block_tokens != BLOCK_TOKENS:
        raise Unsupported(f"shape {shape.name}: the CPU decoder has an fp32 cache in blocks of {BLOCK_TOKENS} tokens")
    if shape.head_size not in HEAD_SIZES:
        raise Unsupported(f"shape {shape.name}: the CPU decoder has head sizes {HEAD_SIZES}, not {shape.head_size}")
    rows = {"head": shape.vocabulary} | {name: rows for name, (rows, _) in shape.layer_matrices().items()}
    for operator, count in rows.items():
        if count % PANEL:
            raise Unsupported(f"shape {shape.name}: {operator} has {count} rows, not a multiple of {PANEL}")
