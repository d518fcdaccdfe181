"""Bytes, FLOP and launches of each kernel of one decode step, counted from what its loops read and write.

Shares no code with ``demand``: a test compares the two tables, so that a wrong formula on either side shows.
Conventions:

- counts are per step: all layers, all sequences;
- a byte counts once per kernel that accesses it, however many thread blocks read it again from a cache;
- arrival counters, the candidates of argmax slices, and unused rows of tables are not counted;
- FLOP are the multiply-adds of matrices and attention, two each; norms, rotation and softmax are not counted;
- ``context_tokens`` includes the token of the step, whose keys and values are written before they are read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from capacity.measure.shape import ELEMENT_BYTES, DecoderShape

CUDA_CORE_BATCH = 4  # largest batch of the hand-written matrix kernels; above it torch.mm multiplies
ACTIVATION_BYTES = 4  # the residual stream, queries, partial results and logits are fp32
INDEX_BYTES = 4


@dataclass(frozen=True)
class OperatorCount:
    """Bytes and FLOP of one kernel of one operator, summed over the step. [B], [FLOP]"""

    operator: str
    kernel: str
    weight_bytes: int = 0
    kv_read_bytes: int = 0
    kv_write_bytes: int = 0
    activation_bytes: int = 0
    flop: int = 0
    launches: int = 1

    @property
    def moved_bytes(self) -> int:
        """All bytes of the row. [B]"""
        return self.weight_bytes + self.kv_read_bytes + self.kv_write_bytes + self.activation_bytes

    def times(self, layers: int) -> OperatorCount:
        """This row, of one layer, for all layers."""
        return OperatorCount(
            self.operator,
            self.kernel,
            self.weight_bytes * layers,
            self.kv_read_bytes * layers,
            self.kv_write_bytes * layers,
            self.activation_bytes * layers,
            self.flop * layers,
            self.launches * layers,
        )


def operator_table(shape: DecoderShape, batch: int, context_tokens: int, splits: int = 1) -> tuple[OperatorCount, ...]:
    """Rows of one decode step in the order in which its kernels first run.

    An operator that takes several kernels has several rows, as it does above ``CUDA_CORE_BATCH`` sequences.

    Parameters
    ----------
    shape : DecoderShape
        The decoder.
    batch : int
        Sequences in the step.
    context_tokens : int
        Tokens per sequence, that of the step included. [tokens]
    splits : int
        Parts into which attention divides each context.

    Returns
    -------
    tuple of OperatorCount
        Sum over rows of an operator for its total; over all rows for that of the step.
    """
    layer = _fused_layer if batch <= CUDA_CORE_BATCH else _matmul_layer
    head = _fused_head if batch <= CUDA_CORE_BATCH else _matmul_head
    rows = [row.times(shape.layers) for row in layer(shape, batch, context_tokens, splits)]
    if batch > CUDA_CORE_BATCH:  # the first norm of the step follows no projection
        unread_bytes = batch * shape.hidden_size * shape.wide_bytes
        rows[0] = replace(rows[0], activation_bytes=rows[0].activation_bytes - unread_bytes)
    return (_embed(shape, batch), *rows, *head(shape, batch))


def totals(rows: tuple[OperatorCount, ...]) -> OperatorCount:
    """The sum of all rows, as one row named ``step``."""
    return OperatorCount(
        "step",
        "all",
        sum(row.weight_bytes for row in rows),
        sum(row.kv_read_bytes for row in rows),
        sum(row.kv_write_bytes for row in rows),
        sum(row.activation_bytes for row in rows),
        sum(row.flop for row in rows),
        sum(row.launches for row in rows),
    )


def _embed(shape: DecoderShape, batch: int) -> OperatorCount:
    elements = batch * shape.hidden_size
    return OperatorCount(
        "embed",
        "embed",
        weight_bytes=elements * shape.wide_bytes,
        activation_bytes=batch * INDEX_BYTES + elements * ACTIVATION_BYTES,
    )


# ---- batch 1 to 4: one kernel per operator, fp32 activations ----


def _fused_layer(shape: DecoderShape, batch: int, context_tokens: int, splits: int) -> list[OperatorCount]:
    hidden, query, inner = shape.hidden_size, shape.query_size, shape.intermediate_size
    gain_bytes = hidden * shape.wide_bytes
    qkv, output, gate_up, down = (
        (shape.matrix_bytes(*size), 2 * size[0] * size[1] * batch) for size in shape.layer_matrices().values()
    )

    def activations(elements: int) -> int:
        return batch * elements * ACTIVATION_BYTES

    return [
        OperatorCount(
            "qkv",
            "qkv",
            weight_bytes=qkv[0] + gain_bytes,
            kv_write_bytes=_kv_write_bytes(shape, batch),
            activation_bytes=activations(hidden + query) + _rotary_bytes(shape, batch),
            flop=qkv[1],
        ),
        _attention(shape, batch, context_tokens, splits, ACTIVATION_BYTES),
        OperatorCount(  # reads the attention output, adds to the residual in place
            "output",
            "output",
            weight_bytes=output[0],
            activation_bytes=activations(query + 2 * hidden),
            flop=output[1],
        ),
        OperatorCount(
            "gate_up",
            "gate_up",
            weight_bytes=gate_up[0] + gain_bytes,
            activation_bytes=activations(hidden + inner),
            flop=gate_up[1],
        ),
        OperatorCount(
            "down",
            "down",
            weight_bytes=down[0],
            activation_bytes=activations(inner + 2 * hidden),
            flop=down[1],
        ),
    ]


def _fused_head(shape: DecoderShape, batch: int) -> list[OperatorCount]:
    hidden, vocabulary = shape.hidden_size, shape.vocabulary
    head = OperatorCount(
        "head",
        "head",
        weight_bytes=(vocabulary + 1) * hidden * shape.wide_bytes,
        activation_bytes=batch * (hidden + vocabulary) * ACTIVATION_BYTES,
        flop=2 * vocabulary * hidden * batch,
    )
    return [head, _argmax(shape, batch, ACTIVATION_BYTES)]


# ---- batch above 4: torch.mm between small kernels, 16-bit activations ----


def _matmul_layer(shape: DecoderShape, batch: int, context_tokens: int, splits: int) -> list[OperatorCount]:
    query, inner, narrow = shape.query_size, shape.intermediate_size, shape.wide_bytes
    rotate = OperatorCount(
        "qkv",
        "rotate",
        kv_write_bytes=_kv_write_bytes(shape, batch),
        activation_bytes=batch * (shape.qkv_rows * narrow + query * ACTIVATION_BYTES) + _rotary_bytes(shape, batch),
    )
    swiglu = OperatorCount("gate_up", "swiglu", activation_bytes=batch * 3 * inner * narrow)
    return [
        _normalise(shape, batch, "qkv"),
        *_matmul(shape, batch, "qkv"),
        rotate,
        _attention(shape, batch, context_tokens, splits, narrow),
        *_matmul(shape, batch, "output"),
        _normalise(shape, batch, "gate_up"),
        *_matmul(shape, batch, "gate_up"),
        swiglu,
        *_matmul(shape, batch, "down"),
    ]


def _matmul_head(shape: DecoderShape, batch: int) -> list[OperatorCount]:
    hidden, vocabulary, narrow = shape.hidden_size, shape.vocabulary, shape.wide_bytes
    multiply = OperatorCount(
        "head",
        "torch.mm",
        weight_bytes=vocabulary * hidden * narrow,
        activation_bytes=batch * (hidden + vocabulary) * narrow,
        flop=2 * vocabulary * hidden * batch,
    )
    return [_normalise(shape, batch, "head"), multiply, _argmax(shape, batch, narrow)]


def _matmul(shape: DecoderShape, batch: int, operator: str) -> list[OperatorCount]:
    """``torch.mm`` on the matrix; int8 is first expanded to 16 bits, which ``torch.mm`` then reads."""
    rows, columns = shape.layer_matrices()[operator]
    stored_bytes = shape.matrix_bytes(rows, columns)
    activation_bytes = batch * (rows + columns) * shape.wide_bytes
    flop = 2 * rows * columns * batch
    if shape.weight_format != "int8":
        return [OperatorCount(operator, "torch.mm", stored_bytes, activation_bytes=activation_bytes, flop=flop)]
    expanded_bytes = rows * columns * shape.wide_bytes
    return [
        OperatorCount(operator, "dequantise", stored_bytes, activation_bytes=expanded_bytes),
        OperatorCount(operator, "torch.mm", activation_bytes=expanded_bytes + activation_bytes, flop=flop),
    ]


def _normalise(shape: DecoderShape, batch: int, operator: str) -> OperatorCount:
    """Adds the output of the last projection to the residual stream (reads both, writes it), then normalises."""
    elements = batch * shape.hidden_size
    return OperatorCount(
        operator,
        "normalise",
        weight_bytes=shape.hidden_size * shape.wide_bytes,
        activation_bytes=elements * (2 * ACTIVATION_BYTES + 2 * shape.wide_bytes),
    )


# ---- both ----


def _attention(shape: DecoderShape, batch: int, context_tokens: int, splits: int, output_bytes: int) -> OperatorCount:
    tokens = shape.attended(context_tokens)
    partial = shape.query_heads * splits * (shape.head_size + 2) if splits > 1 else 0
    return OperatorCount(
        "attention",
        "attention",
        kv_read_bytes=batch * tokens * 2 * shape.kv_size * ELEMENT_BYTES[shape.kv_format],
        activation_bytes=batch * shape.query_size * (ACTIVATION_BYTES + output_bytes)
        + batch * 2 * partial * ACTIVATION_BYTES
        + batch * (shape.context_blocks(tokens) + 1) * INDEX_BYTES,
        flop=batch * 4 * shape.query_size * tokens,
    )


def _argmax(shape: DecoderShape, batch: int, logit_bytes: int) -> OperatorCount:
    """Reads the logits and writes token and position."""
    return OperatorCount(
        "argmax", "argmax", activation_bytes=batch * (shape.vocabulary * logit_bytes + 2 * INDEX_BYTES)
    )


def _kv_write_bytes(shape: DecoderShape, batch: int) -> int:
    return batch * 2 * shape.kv_size * ELEMENT_BYTES[shape.kv_format]


def _rotary_bytes(shape: DecoderShape, batch: int) -> int:
    """Cosine and sine of each pair, and position and block of each sequence."""
    return batch * (shape.head_size * ACTIVATION_BYTES + 2 * INDEX_BYTES)
