"""The reference decoder: buffers of fixed size, and the list of launches that make one decode step.

Token, position and block table live in device memory and the last kernel moves them on, so one CUDA graph
replays step after step. Up to four sequences the hand-written kernels do all; above, ``torch.mm`` multiplies and
smaller kernels do the rest, inside the same graph.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from capacity.errors import CapacityError
from capacity.measure import plan
from capacity.measure.buffers import paged_cache, workspace
from capacity.measure.operators import CUDA_CORE_BATCH, OperatorCount, operator_table
from capacity.measure.shape import DecoderShape
from capacity.measure.source import Shape
from capacity.measure.weights import DecoderWeights, LayerWeights, StoredMatrix, random_weights

if TYPE_CHECKING:
    from torch import Tensor

    from capacity.measure.driver import CudaDevice
    from capacity.measure.emulator import Emulator

MAX_HEAD_SIZE = 256  # 32 lanes of 8 elements
BLOCKS_TOLD = {f"{name}_BLOCKS" for name in ("QKV", "ATTENTION", "OUTPUT", "GATE_UP", "DOWN", "HEAD")}


@dataclass(frozen=True)
class Launch:
    """One launch of the step: the row of the operator table it belongs to, how to do it, and its thread blocks."""

    operator: str
    kernel: str
    run: Callable[[], None]
    blocks: int = 0


class ReferenceDecoder:
    """A decoder of ``shape`` with random weights and a cache of random keys and values.

    Parameters
    ----------
    shape : DecoderShape
        The decoder; its weights in bf16, fp16 or int8, its cache in bf16.
    batch : int
        Sequences.
    max_context : int
        Tokens that the cache of a sequence holds.
    backend : CudaDevice or Emulator
        Where the kernels run.
    splits : int, optional
        Parts into which attention cuts a context; chosen from ``max_context`` when not given. A graph freezes it.
    weights : DecoderWeights, optional
        Weights to share with another decoder of the same shape.
    advance : bool
        Whether a step moves the positions on; without, each replay works at the same positions, for timing.
        The token chosen is the next one's input either way.
    cuts : dict, optional
        Pairs and split by matrix, to force a choice of ``capacity.measure.plan``.
    seed : int
        Of weights, cache and block table.
    """

    def __init__(
        self,
        shape: DecoderShape,
        batch: int,
        max_context: int,
        backend: CudaDevice | Emulator,
        *,
        splits: int | None = None,
        weights: DecoderWeights | None = None,
        advance: bool = True,
        cuts: dict[str, tuple[int, int]] | None = None,
        seed: int = 0,
    ) -> None:
        _check(shape, batch, max_context)
        self.shape, self.batch, self.max_context, self.backend = shape, batch, max_context, backend
        self.gemm_backend = "simt" if batch <= CUDA_CORE_BATCH else "torch.mm"
        self.splits = splits or plan.attention_splits(shape, batch, max_context, backend.limits)
        self.weights = weights or random_weights(shape, backend.device, seed)
        self._advance = ctypes.c_int(advance)
        self._shape = Shape(
            shape.hidden_size,
            shape.query_heads,
            shape.kv_heads,
            shape.intermediate_size,
            shape.vocabulary,
            max_context,
            shape.window,
            self.splits,
            shape.norm_eps,
        )
        self.keys, self.values = paged_cache(shape, batch, max_context, backend.device, seed)
        self.workspace = workspace(shape, batch, max_context, self.splits, backend.device, seed)
        self.token, self.position = self.workspace["token"], self.workspace["position"]
        self.logits = self.workspace["logits"]
        self.plans = self._plan_matrices(cuts or {}) if self.gemm_backend == "simt" else {}
        self._kernels = self._load()
        self.launches = tuple(self._fused_step() if self.gemm_backend == "simt" else self._matmul_step())

    # ---- use ----

    def step(self) -> None:
        """One decode step of every sequence."""
        self.run_operator(None)

    @property
    def operators_launched(self) -> tuple[str, ...]:
        """The operators of the step, in the order in which they first run."""
        return tuple(dict.fromkeys(launch.operator for launch in self.launches))

    def run_operator(self, operator: str | None) -> None:
        """All launches of one operator, in every layer; of all operators when None."""
        for launch in self.launches:
            if operator in (None, launch.operator):
                launch.run()

    def capture(self, operator: str | None = None) -> Any:
        """The step, or one operator of it, as a CUDA graph (``replay()`` runs it); states are left as they were.

        Raises
        ------
        CapacityError
            Without a CUDA device.
        """
        import torch

        if self.backend.device != "cuda":
            raise CapacityError("a step can be captured on a CUDA device only; the emulation runs it by step()")
        kept = self.token.clone(), self.position.clone()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self.run_operator(operator)  # what torch.mm allocates once must not be allocated while capturing
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.run_operator(operator)
        self.token.copy_(kept[0])
        self.position.copy_(kept[1])
        return graph

    def choices(self) -> dict[str, int]:
        """The macros that the kernels were compiled with, and the blocks of matrices and attention."""
        cut = {f"{launch.kernel.upper()}_BLOCKS": launch.blocks for launch in self.launches if launch.blocks}
        return self.macros | {name: count for name, count in cut.items() if name in BLOCKS_TOLD}

    def set_state(self, tokens: list[int], positions: list[int]) -> None:
        """Token and position (tokens before it) of each sequence for the next step."""
        import torch

        for name, given, limit in (
            ("tokens", tokens, self.shape.vocabulary),
            ("positions", positions, self.max_context),
        ):
            if len(given) != self.batch or not all(0 <= value < limit for value in given):
                raise CapacityError(f"{name} must be {self.batch} values from 0 to {limit - 1}, got {given}")
        self.token.copy_(torch.tensor(tokens, dtype=torch.int32))
        self.position.copy_(torch.tensor(positions, dtype=torch.int32))

    def operators(self, context_tokens: int) -> tuple[OperatorCount, ...]:
        """The operator table of a step that attends to ``context_tokens``, with the splits of this decoder."""
        return operator_table(self.shape, self.batch, context_tokens, self.splits)

    def cache_bytes(self) -> int:
        """Bytes of keys and values held. [B]"""
        return sum(tensor.nbytes for tensor in (*self.keys, *self.values))

    def workspace_bytes(self) -> int:
        """Bytes of all other buffers. [B]"""
        return sum(tensor.nbytes for tensor in self.workspace.values())

    # ---- kernels ----

    def _plan_matrices(self, cuts: dict[str, tuple[int, int]]) -> dict[str, plan.MatrixPlan]:
        shape, limits = self.shape, self.backend.limits
        threads = plan.matrix_threads(shape, self.batch, limits)
        sizes = {**shape.layer_matrices(), "head": (shape.vocabulary, shape.hidden_size)}
        return {
            name: plan.matrix_plan(name, rows, columns, self.batch, threads, limits, *cuts.get(name, (0, 0)))
            for name, (rows, columns) in sizes.items()
        }

    def _load(self) -> dict[str, Any]:
        macros = plan.shape_macros(self.shape, self.batch)
        kernels: dict[str, Any] = {}
        if self.gemm_backend == "torch.mm":
            macros |= {"NARROW_ATTENTION": 1, "NARROW_LOGITS": 1}
        else:
            cut = {"MATRIX_THREADS": self.plans["qkv"].threads}
            for matrix in self.plans.values():
                cut |= matrix.macros()
            kernels |= self.backend.load("matrix", macros | cut)
        self.macros = macros | (cut if self.gemm_backend == "simt" else {})
        return kernels | self.backend.load("attention", macros) | self.backend.load("small", macros)

    def _launch(
        self, operator: str, kernel: str, grid: tuple[int, int, int], threads: int, shared_bytes: int, *arguments: Any
    ) -> Launch:
        run = partial(self._kernels[kernel], grid, threads, shared_bytes, *arguments)
        return Launch(operator, kernel, run, grid[0] * grid[1] * grid[2])

    def _matrix(self, name: str, *arguments: Any) -> Launch:
        cut = self.plans[name]
        resident = self._kernels[name].blocks_per_processor(cut.threads, cut.shared_bytes)
        blocks = min(cut.blocks, self.backend.limits.processors * max(1, resident))
        return self._launch(name, name, (blocks, 1, 1), cut.threads, cut.shared_bytes, self._shape, *arguments)

    def _embed(self) -> Launch:
        w, grid = self.workspace, (self.batch, 1, 1)
        table = self.weights.embedding.data
        return self._launch("embed", "embed", grid, plan.SMALL_THREADS, 0, self._shape, w["token"], table, w["x"])

    def _attention(self, layer: int) -> Launch:
        shape, w = self.shape, self.workspace
        heads = plan.heads_per_block(shape.group)
        return self._launch(
            "attention",
            "attention",
            (self.splits, shape.query_heads // heads, self.batch),
            plan.ATTENTION_THREADS,
            plan.attention_shared_bytes(shape.head_size, heads, self.splits),
            self._shape,
            *(w["q"], self.keys[layer], self.values[layer], w["block_table"], w["position"], w["attended"]),
            *(w.get("partial"), w.get("peaks"), w["attention_arrivals"]),
        )

    def _argmax(self) -> Launch:
        w = self.workspace
        slices = min(plan.ARGMAX_SLICES, -(-self.shape.vocabulary // (4 * plan.SMALL_THREADS)))
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
        w, weights = self.workspace, self.weights
        launches = [self._embed()]
        for number, layer in enumerate(weights.layers):
            launches += [
                self._matrix(
                    "qkv",
                    *(w["x"], layer.attention_norm, layer.qkv.argument(), w["rotary"], w["block_table"]),
                    *(w["position"], w["q"], self.keys[number], self.values[number]),
                ),
                self._attention(number),
                self._matrix("output", w["attended"], layer.output.argument(), w["x"]),
                self._matrix("gate_up", w["x"], layer.mlp_norm, layer.gate_up.argument(), w["h"]),
                self._matrix("down", w["h"], layer.down.argument(), w["x"]),
            ]
        head = self._matrix("head", w["x"], weights.final_norm, weights.head.argument(), w["logits"])
        return [*launches, head, self._argmax()]

    # ---- batch above 4 ----

    def _matmul_step(self) -> list[Launch]:
        w, launches = self.workspace, [self._embed()]
        for number, layer in enumerate(self.weights.layers):
            launches += self._matmul_layer(number, layer)
        launches.append(self._normalise("head", self.weights.final_norm, first=False))
        launches += self._multiply("head", w["normed"], self.weights.head, w["logits"])
        return [*launches, self._argmax()]

    def _matmul_layer(self, number: int, layer: LayerWeights) -> list[Launch]:
        shape, w = self.shape, self.workspace
        rotate = self._launch(
            "qkv",
            "rotate",
            (shape.query_heads + 2 * shape.kv_heads, self.batch, 1),
            plan.WARP * 2,
            0,
            self._shape,
            *(w["qkv_rows"], w["rotary"], w["block_table"], w["position"], w["q"]),
            *(self.keys[number], self.values[number]),
        )
        blocks = min(-(-self.batch * shape.intermediate_size // plan.SMALL_THREADS), self.backend.limits.processors * 8)
        swiglu = self._launch(
            "gate_up",
            "swiglu",
            (blocks, 1, 1),
            plan.SMALL_THREADS,
            0,
            *(self._shape, ctypes.c_int(self.batch), w["gate_up_rows"], w["h"]),
        )
        return [
            self._normalise("qkv", layer.attention_norm, first=number == 0),
            *self._multiply("qkv", w["normed"], layer.qkv, w["qkv_rows"]),
            rotate,
            self._attention(number),
            *self._multiply("output", w["attended"], layer.output, w["delta"]),
            self._normalise("gate_up", layer.mlp_norm, first=False),
            *self._multiply("gate_up", w["normed"], layer.gate_up, w["gate_up_rows"]),
            swiglu,
            *self._multiply("down", w["h"], layer.down, w["delta"]),
        ]

    def _normalise(self, operator: str, gain: Tensor, *, first: bool) -> Launch:
        w = self.workspace
        arguments = (None if first else w["delta"], w["x"], gain, w["normed"])
        return self._launch(
            operator, "normalise", (self.batch, 1, 1), plan.SMALL_THREADS, plan.WARP * 4, self._shape, *arguments
        )

    def _multiply(self, operator: str, x: Tensor, matrix: StoredMatrix, out: Tensor) -> list[Launch]:
        if matrix.scales is None:
            return [Launch(operator, "torch.mm", partial(_matmul, x, matrix.data.t(), out))]
        rows, columns = matrix.data.shape
        expanded = self.workspace["expanded"][: rows * columns]
        dequantise = self._launch(
            operator,
            "dequantise",
            (min(-(-rows * columns // (16 * plan.SMALL_THREADS)), self.backend.limits.processors * 8), 1, 1),
            plan.SMALL_THREADS,
            0,
            *(matrix.argument(), ctypes.c_longlong(rows), ctypes.c_int(columns), expanded),
        )
        return [dequantise, Launch(operator, "torch.mm", partial(_matmul, x, expanded.view(rows, columns).t(), out))]


def _matmul(x: Tensor, matrix: Tensor, out: Tensor) -> None:
    import torch

    torch.mm(x, matrix, out=out)


def _check(shape: DecoderShape, batch: int, max_context: int) -> None:
    """What the kernels ask of a shape.

    Raises
    ------
    CapacityError
        If they cannot run it.
    """
    where = f"reference decoder of {shape.name}"
    if batch < 1 or max_context < 1:
        raise CapacityError(f"{where}: batch and max_context must be at least 1, got {batch} and {max_context}")
    if shape.weight_format == "fp32" or shape.kv_format != "bf16":
        raise CapacityError(
            f"{where}: the CUDA kernels take weights in bf16, fp16 or int8 and a bf16 cache, "
            f"got {shape.weight_format} and {shape.kv_format}"
        )
    if shape.head_size % 8 or shape.head_size > MAX_HEAD_SIZE:
        raise CapacityError(f"{where}: head_size must be a multiple of 8 up to {MAX_HEAD_SIZE}, got {shape.head_size}")
    step = 16 if shape.weight_format == "int8" else 8  # elements in a load of 16 bytes
    for name, columns in (
        ("hidden_size", shape.hidden_size),
        ("query_heads * head_size", shape.query_size),
        ("intermediate_size", shape.intermediate_size),
    ):
        if columns % step:
            raise CapacityError(
                f"{where}: {name} must be a multiple of {step} for {shape.weight_format}, got {columns}"
            )
