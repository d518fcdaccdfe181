"""The reference decoder on a CUDA device: its memory, its state, and one decode step as launches or as a CUDA graph.

Token, position and block table live in device memory and the last kernel advances them, so that one CUDA graph
replays step after step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from capacity.errors import CapacityError
from capacity.measure.decoder.cuda import plan
from capacity.measure.decoder.cuda.buffers import DeviceMemory, paged_cache, workspace
from capacity.measure.decoder.cuda.launches import StepLaunches
from capacity.measure.decoder.weights import DecoderWeights, random_weights
from capacity.measure.operators import OperatorCount, operator_table
from capacity.measure.shape import DecoderShape

if TYPE_CHECKING:
    from capacity.measure.decoder.cuda.driver import CudaDevice
    from capacity.measure.decoder.cuda.emulator import Emulator

MAX_HEAD_SIZE = 256  # 32 lanes of 8 elements
RECORDED_BLOCKS = {f"{name}_BLOCKS" for name in ("QKV", "ATTENTION", "OUTPUT", "GATE_UP", "DOWN", "HEAD")}


class CudaDecoder:
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
        Parts into which attention divides a context; by default chosen from ``max_context``. A graph freezes it.
    weights : DecoderWeights, optional
        Weights to share with another decoder of the same shape.
    advance : bool
        Whether a step increments the positions; without, each replay works at the same positions, for timing.
        The chosen token is the input of the next step either way.
    cuts : dict, optional
        Pairs and split by matrix that override ``capacity.measure.decoder.cuda.plan``.
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
        check_runnable(shape, batch, max_context)
        self.shape, self.batch, self.max_context, self.backend = shape, batch, max_context, backend
        self.splits = splits or plan.attention_splits(shape, batch, max_context, backend.limits)
        self.weights = weights or random_weights(shape, backend.device, seed)
        self.keys, self.values = paged_cache(shape, batch, max_context, backend.device, seed)
        self.workspace = workspace(shape, batch, max_context, self.splits, backend.device, seed)
        self.token, self.position = self.workspace["token"], self.workspace["position"]
        self.logits = self.workspace["logits"]
        memory = DeviceMemory(self.weights, self.keys, self.values, self.workspace)
        built = StepLaunches(shape, batch, max_context, self.splits, backend, memory, advance=advance, cuts=cuts or {})
        self.gemm_backend, self.plans, self.macros = built.gemm_backend, built.plans, built.macros
        self.launches = built.step()

    # ---- use ----

    def step(self) -> None:
        """One decode step of every sequence."""
        self.run_operator(None)

    def run_operator(self, operator: str | None) -> None:
        """All launches of one operator, in every layer; of all operators when None."""
        for launch in self.launches:
            if operator in (None, launch.operator):
                launch.run()

    def capture(self, operator: str | None = None) -> Any:
        """The step, or one operator of it, as a CUDA graph (``replay()`` runs it); token and position are restored.

        Raises
        ------
        CapacityError
            Without a CUDA device.
        """
        import torch

        if self.backend.device != "cuda":
            raise CapacityError("a step can be captured on a CUDA device only; the emulation runs it by step()")
        saved = self.token.clone(), self.position.clone()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self.run_operator(operator)  # what torch.mm allocates once must not be allocated while capturing
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.run_operator(operator)
        self.token.copy_(saved[0])
        self.position.copy_(saved[1])
        return graph

    def set_state(self, tokens: list[int], positions: list[int]) -> None:
        """Token and position (tokens before it) of each sequence for the next step."""
        import torch

        for name, values, limit in (
            ("tokens", tokens, self.shape.vocabulary),
            ("positions", positions, self.max_context),
        ):
            if len(values) != self.batch or not all(0 <= value < limit for value in values):
                raise CapacityError(f"{name} must be {self.batch} values from 0 to {limit - 1}, got {values}")
        self.token.copy_(torch.tensor(tokens, dtype=torch.int32))
        self.position.copy_(torch.tensor(positions, dtype=torch.int32))

    # ---- what a run records ----

    @property
    def operators_launched(self) -> tuple[str, ...]:
        """The operators of the step, in the order in which they first run."""
        return tuple(dict.fromkeys(launch.operator for launch in self.launches))

    def choices(self) -> dict[str, int]:
        """The macros that the kernels were compiled with, and the blocks of matrices and attention."""
        blocks = {f"{launch.kernel.upper()}_BLOCKS": launch.blocks for launch in self.launches if launch.blocks}
        return self.macros | {name: count for name, count in blocks.items() if name in RECORDED_BLOCKS}

    def operators(self, context_tokens: int) -> tuple[OperatorCount, ...]:
        """The operator table of a step that attends to ``context_tokens``, with the splits of this decoder."""
        return operator_table(self.shape, self.batch, context_tokens, self.splits)

    def cache_bytes(self) -> int:
        """Bytes of keys and values held. [B]"""
        return sum(tensor.nbytes for tensor in (*self.keys, *self.values))

    def workspace_bytes(self) -> int:
        """Bytes of all other buffers. [B]"""
        return sum(tensor.nbytes for tensor in self.workspace.values())


def check_runnable(shape: DecoderShape, batch: int, max_context: int) -> None:
    """Check that the CUDA kernels can run a shape.

    Raises
    ------
    CapacityError
        If they cannot.
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
