"""How the work of a step is divided into blocks and warps, chosen per matrix and recorded with each run."""

from __future__ import annotations

from dataclasses import dataclass

from capacity.errors import CapacityError
from capacity.measure.decoder.cuda.source import FORMATS
from capacity.measure.shape import DecoderShape

WARP = 32
TARGET_WARPS = 24  # per multiprocessor, to keep enough bytes in flight; each warp has 4 KiB
ATTENTION_THREADS = 128  # as attention.cuh says
SMALL_THREADS = 256
MIN_SPLIT_TOKENS = 128  # a shorter split of the context costs more to combine than it saves
MAX_SPLITS = 32
MAX_ARGMAX_SLICES = 64  # blocks that scan the logits of one sequence
NORMALISED = ("qkv", "gate_up", "head")


@dataclass(frozen=True)
class Limits:
    """Limits of a device: multiprocessors, and shared memory per block and per multiprocessor. [B]"""

    processors: int
    block_shared_bytes: int
    processor_shared_bytes: int


@dataclass(frozen=True)
class MatrixPlan:
    """The plan of one matrix, in the terms of matrix.cuh; ``blocks`` is how many the rows can use."""

    name: str
    pairs: int
    split: int
    staged: bool
    threads: int
    shared_bytes: int
    blocks: int

    def macros(self) -> dict[str, int]:
        """The macros of this matrix."""
        prefix = self.name.upper()
        values = {f"{prefix}_PAIRS": self.pairs, f"{prefix}_SPLIT": self.split}
        if self.name not in NORMALISED:
            values[f"{prefix}_STAGED"] = int(self.staged)
        return values


def matrix_plan(
    name: str, rows: int, columns: int, batch: int, threads: int, limits: Limits, pairs: int = 0, split: int = 0
) -> MatrixPlan:
    """Plan one matrix; ``pairs`` and ``split`` override the choice where they are not 0.

    Raises
    ------
    CapacityError
        If the input of a normalised operator does not fit into shared memory.
    """
    input_bytes = batch * columns * 4
    normalised = name in NORMALISED
    staged = normalised or input_bytes + 8192 <= limits.block_shared_bytes
    pairs = pairs or 1
    row_pairs = (rows + 1) // 2
    split = split or _split(row_pairs, columns, threads, limits)
    warps = threads // WARP
    shared_bytes = (input_bytes if staged else 0) + (batch * WARP * 4 if normalised else 0)
    shared_bytes += warps * 2 * pairs * batch * 4 if split > 1 else 0
    if shared_bytes > limits.block_shared_bytes:
        raise CapacityError(
            f"{name}: the input of {batch} sequences of {columns} elements takes {shared_bytes} bytes of shared "
            f"memory, the device has {limits.block_shared_bytes}; use a smaller batch, or one above 4"
        )
    blocks = -(-row_pairs // (pairs * (warps // split)))
    return MatrixPlan(name, pairs, split, staged, threads, shared_bytes, blocks)


def _split(row_pairs: int, columns: int, threads: int, limits: Limits) -> int:
    """Warps per row: doubled until the device has enough warps, while each lane still has a load of each row."""
    split = 1
    while (
        2 * split <= threads // WARP
        and row_pairs * split < limits.processors * TARGET_WARPS
        and columns // 8 >= 2 * split * WARP
    ):
        split *= 2
    return split


def matrix_threads(shape: DecoderShape, batch: int, limits: Limits) -> int:
    """Threads per block: more where the staged input leaves room for few blocks."""
    widest = max(columns for _, columns in shape.layer_matrices().values()) * batch * 4
    if widest + 8192 > limits.block_shared_bytes:  # read in place, so the other matrices decide
        widest = shape.hidden_size * batch * 4
    blocks = max(1, limits.processor_shared_bytes // (widest + 2048))
    return 256 if blocks >= 3 else 512


def heads_per_block(group: int) -> int:
    """Query heads that share a key and value in one block: the largest divisor of the group up to 8."""
    return max(n for n in range(1, 9) if group % n == 0)


def attention_splits(shape: DecoderShape, batch: int, context_tokens: int, limits: Limits) -> int:
    """Splits of each context: enough blocks for two per multiprocessor, and none shorter than necessary."""
    blocks = batch * shape.query_heads // heads_per_block(shape.group)
    needed = -(-2 * limits.processors // blocks)
    possible = max(1, shape.attended(context_tokens) // MIN_SPLIT_TOKENS)
    return max(1, min(needed, possible, MAX_SPLITS))


def attention_shared_bytes(head_size: int, heads: int, splits: int) -> int:
    """Shared memory per block of the attention kernel. [B]"""
    warps = ATTENTION_THREADS // WARP
    return 4 * max(heads * splits, warps * heads * (head_size + 2)) + 4


def shape_macros(shape: DecoderShape, batch: int) -> dict[str, int]:
    """The macros that depend on the shape alone."""
    return {
        "WEIGHTS": FORMATS[shape.weight_format],
        "WIDE": FORMATS[shape.wide_format],
        "BATCH": batch,
        "HEAD_SIZE": shape.head_size,
        "GROUP": heads_per_block(shape.group),
        "BLOCK_TOKENS": shape.block_tokens,
    }
