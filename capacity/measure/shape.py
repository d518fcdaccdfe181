"""The shape of a reference decoder: plain integers, deliberately independent of ``ModelSpec``.

The reference decoder counts its own bytes. If it took them from a ``ModelSpec`` through the code of ``demand``, a
wrong formula would cancel instead of showing.
"""

from __future__ import annotations

from dataclasses import dataclass

from capacity.errors import CapacityError, unknown_name

ELEMENT_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2, "int8": 1}
SCALE_BYTES = 4  # int8 weights have one fp32 scale per output row
KV_FORMATS = ("bf16", "fp32")


@dataclass(frozen=True)
class DecoderShape:
    """A dense decoder with grouped-query attention, RMSNorm, rotary positions and SwiGLU.

    Parameters
    ----------
    name : str
        The model name in records of runs.
    layers, hidden_size, query_heads, kv_heads, head_size, intermediate_size, vocabulary : int
        Sizes, in elements.
    window : int
        Tokens that a query attends to, its own included; 0 means all.
    rope_theta, norm_eps : float
        Base of the rotary angles, and what is added to the mean square.
    weight_format : str
        ``bf16``, ``fp16``, ``int8`` or ``fp32`` (on a CPU only). ``int8`` applies to the matrices of the layers;
        embedding, head and norms are then bf16.
    kv_format : str
        ``bf16`` or ``fp32`` (on a CPU only).
    block_tokens : int
        Tokens per block of the paged cache.
    tied : bool
        Whether the output head is the embedding matrix.
    """

    name: str
    layers: int
    hidden_size: int
    query_heads: int
    kv_heads: int
    head_size: int
    intermediate_size: int
    vocabulary: int
    window: int = 0
    rope_theta: float = 10_000.0
    norm_eps: float = 1e-5
    weight_format: str = "bf16"
    kv_format: str = "bf16"
    block_tokens: int = 16
    tied: bool = False

    def __post_init__(self) -> None:
        for field in SIZES:
            if getattr(self, field) < 1:
                raise CapacityError(f"shape {self.name}: {field} must be at least 1, got {getattr(self, field)}")
        if self.window < 0:
            raise CapacityError(f"shape {self.name}: window must be 0 (none) or more, got {self.window}")
        if self.query_heads % self.kv_heads:
            raise CapacityError(
                f"shape {self.name}: query_heads must be a multiple of kv_heads, "
                f"got {self.query_heads} and {self.kv_heads}"
            )
        if self.head_size % 2:
            raise CapacityError(f"shape {self.name}: head_size must be even, got {self.head_size}")
        for field, allowed in (("weight_format", tuple(ELEMENT_BYTES)), ("kv_format", KV_FORMATS)):
            if getattr(self, field) not in allowed:
                raise CapacityError(f"shape {self.name}: {unknown_name(field, getattr(self, field), allowed)}")

    @property
    def group(self) -> int:
        """Query heads that share one key-value head."""
        return self.query_heads // self.kv_heads

    @property
    def query_size(self) -> int:
        """Elements of all query heads per token; also of the attention output."""
        return self.query_heads * self.head_size

    @property
    def kv_size(self) -> int:
        """Elements of all keys (or all values) per token and layer."""
        return self.kv_heads * self.head_size

    @property
    def qkv_rows(self) -> int:
        """Rows of the fused query, key and value matrix."""
        return self.query_size + 2 * self.kv_size

    @property
    def wide_format(self) -> str:
        """Format of embedding, head and norms: that of the weights, or bf16 where the weights are int8."""
        return "bf16" if self.weight_format == "int8" else self.weight_format

    @property
    def wide_bytes(self) -> int:
        """Bytes per element of embedding, head and norms. [B]"""
        return ELEMENT_BYTES[self.wide_format]

    @property
    def kv_bytes(self) -> int:
        """Bytes per element of the cache. [B]"""
        return ELEMENT_BYTES[self.kv_format]

    def layer_matrices(self) -> dict[str, tuple[int, int]]:
        """Rows and columns of the matrices of one layer, by operator, in the order of the step."""
        return {
            "qkv": (self.qkv_rows, self.hidden_size),
            "output": (self.hidden_size, self.query_size),
            "gate_up": (2 * self.intermediate_size, self.hidden_size),
            "down": (self.hidden_size, self.intermediate_size),
        }

    def matrix_bytes(self, rows: int, columns: int) -> int:
        """Stored bytes of a matrix of a layer, scales included. [B]"""
        scales = rows * SCALE_BYTES if self.weight_format == "int8" else 0
        return rows * columns * ELEMENT_BYTES[self.weight_format] + scales

    def attended(self, context_tokens: int) -> int:
        """Tokens that the query of a step attends to, its own included, at ``context_tokens``."""
        return min(context_tokens, self.window) if self.window else context_tokens

    def context_blocks(self, context_tokens: int) -> int:
        """Blocks per sequence of ``context_tokens``."""
        return -(-context_tokens // self.block_tokens)

    def cache_bytes(self, batch: int, context_tokens: int) -> int:
        """Bytes of the paged cache for ``batch`` sequences, whole blocks. [B]"""
        blocks = batch * self.context_blocks(context_tokens)
        return 2 * self.layers * blocks * self.block_tokens * self.kv_size * self.kv_bytes

    def weight_bytes(self) -> int:
        """Bytes of all weights: layers, norms, embedding, and the head unless it is tied. [B]"""
        matrices = sum(self.matrix_bytes(rows, columns) for rows, columns in self.layer_matrices().values())
        norms = (2 * self.layers + 1) * self.hidden_size * self.wide_bytes
        tables = (1 if self.tied else 2) * self.vocabulary * self.hidden_size * self.wide_bytes
        return self.layers * matrices + norms + tables


SIZES = (
    "layers",
    "hidden_size",
    "query_heads",
    "kv_heads",
    "head_size",
    "intermediate_size",
    "vocabulary",
    "block_tokens",
)
