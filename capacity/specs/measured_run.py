"""One run of the reference decoder or of a micro-benchmark, with all its conditions.

Statistics of the samples (minimum, median, spread, acceptance) are computed on load and never stored.
"""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from capacity.specs.base import Count, CountOrZero, FrozenMapping, NonNegative, Positive, Spec

MAX_SPREAD = 1.25
Kind = Literal["ceiling", "decode", "prefill", "memory"]
Bytes = Annotated[int, Field(ge=0, lt=2**53, strict=True)]
Seconds = Annotated[tuple[Positive, ...], Field(max_length=200)]


class Machine(Spec):
    """The device and the computer around it."""

    device_name: str
    part: str | None = None
    compute_capability: str | None = None
    units: Count | None = None
    l2_bytes: Bytes | None = None
    memory_bytes: Bytes | None = None
    driver: str | None = None
    ecc: bool | None = None
    power_limit_w: NonNegative | None = None
    clock_hz_before: FrozenMapping[str, NonNegative] = FrozenMapping()
    clock_hz_after: FrozenMapping[str, NonNegative] = FrozenMapping()
    cpu_model: str
    threads: Count
    load_before: NonNegative
    load_after: NonNegative


class Software(Spec):
    """Versions and backends; ``launch`` holds the choices that kernels were compiled or launched with."""

    python: str
    numpy: str
    torch: str | None = None
    system: str
    compiler: str
    backend: Literal["nvrtc", "nvcc", "torch", "cpu_ref"]
    gemm_backend: str | None = None
    attention_backend: str | None = None
    cuda_runtime: str | None = None
    graph: bool = False
    pdl: bool = False
    splits: Count | None = None
    launch: FrozenMapping[str, int] = FrozenMapping()


class RunWorkload(Spec):
    """The workload of a run: sizes of the decoder by name, formats, batch and context. Data are random."""

    model: str
    shape: FrozenMapping[str, int | float | str] = FrozenMapping()
    weights: str
    kv_cache: str
    activations: str
    batch: Count
    context_tokens: CountOrZero = 0
    prompt_tokens: CountOrZero = 0
    seed: int = 0


class Counts(Spec):
    """Bytes and FLOP of one step, as the decoder counts them. [B], [FLOP]"""

    weight_bytes: Bytes
    kv_read_bytes: Bytes
    kv_write_bytes: Bytes
    activation_bytes: Bytes
    flop: Annotated[int, Field(ge=0, strict=True)]
    launches: CountOrZero


class MemoryReading(Spec):
    """Memory that a run found; ``kv_bytes`` is what the tokens wrote into the blocks allocated. [B], [sequence]"""

    weight_bytes: Bytes
    kv_bytes: Bytes | None = None
    kv_allocated_bytes: Bytes | None = None
    activation_peak_bytes: Bytes | None = None
    peak_reserved_bytes: Bytes | None = None
    device_used_bytes: Bytes | None = None
    workspace_bytes: Bytes | None = None
    context_bytes: Bytes | None = None
    arena_bytes: Bytes | None = None
    max_batch: CountOrZero | None = None


class Quality(Spec):
    """Error of the result against the float64 oracle, checked before timing."""

    relative_error: NonNegative
    argmax_match: bool
    tolerance: Positive
    nan_count: CountOrZero = 0


class MeasuredRun(Spec):
    """One run; ``values`` holds the results of a micro-benchmark in SI units by name."""

    schema_version: Literal[1] = 1
    kind: Kind
    source: Literal["cpu", "gpu"]
    created_utc: str
    code_commit: str
    kernel_sha256: str
    machine: Machine
    software: Software
    workload: RunWorkload | None = None
    counts: Counts | None = None
    clock: Literal["perf_counter", "cuda_event"] = "perf_counter"
    warmup_steps: CountOrZero = 0
    runs_per_sample: Count = 1
    samples_s: Seconds = ()
    operator_s: FrozenMapping[str, NonNegative] = FrozenMapping()
    memory: MemoryReading | None = None
    quality: Quality | None = None
    values: FrozenMapping[str, NonNegative] = FrozenMapping()
    run_id: str = ""

    @property
    def min_s(self) -> float:
        """Fastest sample. [s]"""
        return min(self.samples_s)

    @property
    def median_s(self) -> float:
        """Middle sample. [s]"""
        return float(np.median(self.samples_s))

    @property
    def p95_s(self) -> float:
        """The sample that 95 % of the samples do not exceed. [s]"""
        return float(np.percentile(self.samples_s, 95))

    @property
    def tokens_per_s(self) -> float:
        """Tokens per second of a decode run at its median step; 0 for other kinds. [token/s]"""
        return self.workload.batch / self.median_s if self.kind == "decode" and self.workload else 0.0

    @property
    def read_bytes_per_s(self) -> float:
        """Weights and cache read in a median step, over its time; 0 where nothing was counted. [B/s]"""
        return (self.counts.weight_bytes + self.counts.kv_read_bytes) / self.median_s if self.counts else 0.0

    @property
    def spread(self) -> float:
        """Median over minimum; 1 without samples."""
        return self.median_s / self.min_s if self.samples_s else 1.0

    @property
    def disagreement(self) -> str | None:
        """How the result differs from the oracle's by more than is allowed; None where it agrees or was not checked."""
        if self.quality is None:
            return None
        if self.quality.relative_error > self.quality.tolerance:
            return f"error {self.quality.relative_error:.1e} against the oracle is above {self.quality.tolerance:.1e}"
        if not self.quality.argmax_match:
            return "the next token differs from the oracle's"
        return None

    @property
    def reject_reason(self) -> str | None:
        """Why this run may not be compared with an estimate; None when it may."""
        if self.disagreement:
            return self.disagreement
        if self.spread > MAX_SPREAD:
            return f"median / minimum {self.spread:.3f} is above {MAX_SPREAD}: the machine was not quiet"
        return None

    @property
    def accepted(self) -> bool:
        """Whether the run may be compared with an estimate."""
        return self.reject_reason is None

    @model_validator(mode="after")
    def parts_go_with_the_kind(self) -> Self:
        needed: dict[str, tuple[str, ...]] = {
            "ceiling": ("values",),
            "decode": ("workload", "counts", "samples_s", "quality"),
            "prefill": ("workload", "samples_s"),
            "memory": ("workload", "memory"),
        }
        missing = [name for name in needed[self.kind] if not getattr(self, name)]
        if missing:
            raise ValueError(f"a {self.kind} run needs {', '.join(missing)}")
        return self

    @model_validator(mode="after")
    def id_is_the_hash_of_the_content(self) -> Self:
        if self.run_id and self.run_id != content_hash(self):
            raise ValueError("run_id is not the hash of the content: the record was changed after the run")
        return self

    def sealed(self) -> Self:
        """A copy that carries the hash of its content."""
        return self.model_copy(update={"run_id": content_hash(self)})


def content_hash(run: MeasuredRun) -> str:
    """SHA-256 of a record without its id, keys sorted; defaults left out: the schema may grow."""
    content = run.model_dump(mode="json", exclude_defaults=True, exclude={"run_id"})
    return hashlib.sha256(json.dumps(content, sort_keys=True, ensure_ascii=True).encode()).hexdigest()
