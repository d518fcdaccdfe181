"""The launches of one decode step: which kernels run in which order, on which buffers, with how many threads.

Up to batch 4 each operator is one hand-written kernel; above, ``torch.mm`` multiplies and small kernels do the rest.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from capacity.measure.decoder.cuda import plan
from capacity.measure.decoder.cuda.arguments import matrix_argument, shape_argument
from capacity.measure.decoder.cuda.buffers import DeviceMemory
from capacity.measure.decoder.weights import LayerWeights, StoredMatrix
from capacity.measure.operators import CUDA_CORE_BATCH
from capacity.measure.shape import DecoderShape

if TYPE_CHECKING:
    from torch import Tensor

    from capacity.measure.decoder.cuda.driver import CudaDevice
    from capacity.measure.decoder.cuda.emulator import Emulator

Cuts = dict[str, tuple[int, int]]


@dataclass(frozen=True)
class Launch:
    """One launch of the step: its row in the operator table, the call that makes it, and its thread blocks."""

    operator: str
    kernel: str
    run: Callable[[], None]
    blocks: int = 0


class StepLaunches:
    """Loads the kernels of a decoder and binds them to its buffers.

    Parameters
    ----------
    shape : DecoderShape
        The decoder.
    batch, max_context, splits : int
        Sequences, tokens that the cache of a sequence holds, parts into which attention divides a context.
    backend : CudaDevice or Emulator
        Where the kernels run.
    memory : DeviceMemory
        The buffers that the launches read and write.
    advance : bool
        Whether the last kernel increments the positions.
    cuts : dict
        Pairs and split by matrix that override the plan.
    """

    def __init__(
        self,
        shape: DecoderShape,
        batch: int,
        max_context: int,
        splits: int,
        backend: CudaDevice | Emulator,
        memory: DeviceMemory,
        *,
        advance: bool,
        cuts: Cuts,
    ) -> None:
        self.shape, self.batch, self.splits, self.backend, self.memory = shape, batch, splits, backend, memory
        self.gemm_backend = "simt" if batch <= CUDA_CORE_BATCH else "torch.mm"
        self._advance = ctypes.c_int(advance)
        self._shape = shape_argument(shape, max_context, splits)
        self.plans = self._plan_matrices(cuts) if self.gemm_backend == "simt" else {}
        self.macros = plan.shape_macros(shape, batch) | self._path_macros()
        self._kernels = self._load()

    def step(self) -> tuple[Launch, ...]:
        """All launches of one decode step, in order."""
        return tuple(self._fused_step() if self.gemm_backend == "simt" else self._matmul_step())

    # ---- kernels ----

    def _plan_matrices(self, cuts: Cuts) -> dict[str, plan.MatrixPlan]:
        shape, limits = self.shape, self.backend.limits
        threads = plan.matrix_threads(shape, self.batch, limits)
        sizes = {**shape.layer_matrices(), "head": (shape.vocabulary, shape.hidden_size)}
        return {
            name: plan.matrix_plan(name, rows, columns, self.batch, threads, limits, *cuts.get(name, (0, 0)))
            for name, (rows, columns) in sizes.items()
        }

    def _path_macros(self) -> dict[str, int]:
        """The macros that differ between the hand-written matrix kernels and ``torch.mm``."""
        if self.gemm_backend == "torch.mm":
            return {"NARROW_ATTENTION": 1, "NARROW_LOGITS": 1}
        macros = {"MATRIX_THREADS": self.plans["qkv"].threads}
        for matrix in self.plans.values():
            macros |= matrix.macros()
        return macros

    def _load(self) -> dict[str, Any]:
        units = ("matrix", "attention", "small") if self.gemm_backend == "simt" else ("attention", "small")
        return {name: kernel for unit in units for name, kernel in self.backend.load(unit, self.macros).items()}

    def _launch(
        self, operator: str, kernel: str, grid: tuple[int, int, int], threads: int, shared_bytes: int, *arguments: Any
    ) -> Launch:
        run = partial(self._kernels[kernel], grid, threads, shared_bytes, *arguments)
        return Launch(operator, kernel, run, grid[0] * grid[1] * grid[2])

    def _grid_blocks(self, elements: int, per_thread: int = 1) -> int:
        """Thread blocks of a kernel that loops over elements: enough for all, at most 8 per multiprocessor."""
        return min(-(-elements // (per_thread * plan.SMALL_THREADS)), self.backend.limits.processors * 8)

    # ---- kernels of both paths ----

    def _embed(self) -> Launch:
        w, grid = self.memory.workspace, (self.batch, 1, 1)
        table = self.memory.weights.embedding.data
        return self._launch("embed", "embed", grid, plan.SMALL_THREADS, 0, self._shape, w["token"], table, w["x"])

    def _attention(self, layer: int) -> Launch:
        shape, w = self.shape, self.memory.workspace
        heads = plan.heads_per_block(shape.group)
        return self._launch(
            "attention",
            "attention",
            (self.splits, shape.query_heads // heads, self.batch),
            plan.ATTENTION_THREADS,
            plan.attention_shared_bytes(shape.head_size, heads, self.splits),
            self._shape,
            *(w["q"], self.memory.keys[layer], self.memory.values[layer], w["block_table"], w["position"]),
            *(w["attended"], w.get("partial"), w.get("peaks"), w["attention_arrivals"]),
        )

    def _argmax(self) -> Launch:
        w = self.memory.workspace
        slices = min(plan.MAX_ARGMAX_SLICES, -(-self.shape.vocabulary // (4 * plan.SMALL_THREADS)))
        return self._launch(
            "argmax",
            "argmax",
            (slices, self.batch, 1),
            plan.SMALL_THREADS,
            2 * plan.SMALL_THREADS // plan.WARP * 4,
            self._shape,
            *(w["logits"], self._advance, w["best_value"], w["best_index"], w["argmax_arrivals"]),
            *(w["token"], w["position"]),
        )

    # ---- batch 1 to 4 ----

    def _fused_step(self) -> list[Launch]:
        w, weights = self.memory.workspace, self.memory.weights
        launches = [self._embed()]
        for number, layer in enumerate(weights.layers):
            launches += self._fused_layer(number, layer)
        head = self._matrix("head", w["x"], weights.final_norm, matrix_argument(weights.head), w["logits"])
        return [*launches, head, self._argmax()]

    def _fused_layer(self, number: int, layer: LayerWeights) -> list[Launch]:
        w, memory = self.memory.workspace, self.memory
        return [
            self._matrix(
                "qkv",
                *(w["x"], layer.attention_norm, matrix_argument(layer.qkv), w["rotary"], w["block_table"]),
                *(w["position"], w["q"], memory.keys[number], memory.values[number]),
            ),
            self._attention(number),
            self._matrix("output", w["attended"], matrix_argument(layer.output), w["x"]),
            self._matrix("gate_up", w["x"], layer.mlp_norm, matrix_argument(layer.gate_up), w["h"]),
            self._matrix("down", w["h"], matrix_argument(layer.down), w["x"]),
        ]

    def _matrix(self, name: str, *arguments: Any) -> Launch:
        cut = self.plans[name]
        resident = self._kernels[name].blocks_per_processor(cut.threads, cut.shared_bytes)
        blocks = min(cut.blocks, self.backend.limits.processors * max(1, resident))
        return self._launch(name, name, (blocks, 1, 1), cut.threads, cut.shared_bytes, self._shape, *arguments)

    # ---- batch above 4 ----

    def _matmul_step(self) -> list[Launch]:
        w, weights, launches = self.memory.workspace, self.memory.weights, [self._embed()]
        for number, layer in enumerate(weights.layers):
            launches += self._matmul_layer(number, layer)
        launches.append(self._normalise("head", weights.final_norm, first=False))
        launches += self._multiply("head", w["normed"], weights.head, w["logits"])
        return [*launches, self._argmax()]

    def _matmul_layer(self, number: int, layer: LayerWeights) -> list[Launch]:
        w = self.memory.workspace
        return [
            self._normalise("qkv", layer.attention_norm, first=number == 0),
            *self._multiply("qkv", w["normed"], layer.qkv, w["qkv_rows"]),
            self._rotate(number),
            self._attention(number),
            *self._multiply("output", w["attended"], layer.output, w["delta"]),
            self._normalise("gate_up", layer.mlp_norm, first=False),
            *self._multiply("gate_up", w["normed"], layer.gate_up, w["gate_up_rows"]),
            self._swiglu(),
            *self._multiply("down", w["h"], layer.down, w["delta"]),
        ]

    def _rotate(self, number: int) -> Launch:
        shape, w = self.shape, self.memory.workspace
        return self._launch(
            "qkv",
            "rotate",
            (shape.query_heads + 2 * shape.kv_heads, self.batch, 1),
            plan.WARP * 2,
            0,
            self._shape,
            *(w["qkv_rows"], w["rotary"], w["block_table"], w["position"], w["q"]),
            *(self.memory.keys[number], self.memory.values[number]),
        )

    def _swiglu(self) -> Launch:
        w, batch = self.memory.workspace, ctypes.c_int(self.batch)
        grid = (self._grid_blocks(self.batch * self.shape.intermediate_size), 1, 1)
        arguments = (self._shape, batch, w["gate_up_rows"], w["h"])
        return self._launch("gate_up", "swiglu", grid, plan.SMALL_THREADS, 0, *arguments)

    def _normalise(self, operator: str, gain: Tensor, *, first: bool) -> Launch:
        w = self.memory.workspace
        arguments = (None if first else w["delta"], w["x"], gain, w["normed"])
        return self._launch(
            operator, "normalise", (self.batch, 1, 1), plan.SMALL_THREADS, plan.WARP * 4, self._shape, *arguments
        )

    def _multiply(self, operator: str, x: Tensor, matrix: StoredMatrix, out: Tensor) -> list[Launch]:
        if matrix.scales is None:
            return [Launch(operator, "torch.mm", partial(_matmul, x, matrix.data.t(), out))]
        rows, columns = matrix.data.shape
        expanded = self.memory.workspace["expanded"][: rows * columns]
        grid = (self._grid_blocks(rows * columns, per_thread=16), 1, 1)
        arguments = (matrix_argument(matrix), ctypes.c_longlong(rows), ctypes.c_int(columns), expanded)
        dequantise = self._launch(operator, "dequantise", grid, plan.SMALL_THREADS, 0, *arguments)
        return [dequantise, Launch(operator, "torch.mm", partial(_matmul, x, expanded.view(rows, columns).t(), out))]


def _matmul(x: Tensor, matrix: Tensor, out: Tensor) -> None:
    import torch

    torch.mm(x, matrix, out=out)
