"""Fields that the records of both devices share: the workload with its shape, and the counts of a step."""

from __future__ import annotations

from dataclasses import asdict

from capacity.measure.operators import OperatorCount, totals
from capacity.measure.shape import DecoderShape
from capacity.specs.measured_run import Counts, RunWorkload


def workload(shape: DecoderShape, *, batch: int, context_tokens: int = 0, prompt_tokens: int = 0) -> RunWorkload:
    """The workload of a record, with every size of the shape."""
    return RunWorkload(
        model=shape.name,
        shape=asdict(shape),
        weights=shape.weight_format,
        kv_cache=shape.kv_format,
        activations="fp32" if shape.kv_format == "fp32" else shape.wide_format,
        batch=batch,
        context_tokens=context_tokens,
        prompt_tokens=prompt_tokens,
    )


def counts(rows: tuple[OperatorCount, ...]) -> Counts:
    """Counts of one step from the decoder's own operator table."""
    sums = totals(rows)
    return Counts(
        weight_bytes=sums.weight_bytes,
        kv_read_bytes=sums.kv_read_bytes,
        kv_write_bytes=sums.kv_write_bytes,
        activation_bytes=sums.activation_bytes,
        flop=sums.flop,
        launches=sums.launches,
    )
