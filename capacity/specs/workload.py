"""The load on a deployment: tokens per request, concurrency, arrival rate and objectives."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from capacity.specs.base import Count, UserSpec
from capacity.specs.ranges import PerSecond, Seconds


class Workload(UserSpec):
    """Requests of one kind. Memory is judged at prompt + output, TPOT at prompt + output / 2."""

    obtained_by: ClassVar[str] = "make one with Workload(...)"

    prompt_tokens: Count = 2048
    output_tokens: Count = 256
    concurrency: Count = 1
    requests_per_s: PerSecond | None = None
    max_ttft_s: Seconds | None = None
    max_tpot_s: Seconds | None = None
    percentile: Annotated[float, Field(gt=0, lt=100, allow_inf_nan=False, strict=True)] | None = None

    @property
    def memory_tokens(self) -> int:
        """Context at which memory is judged: the final length of a request. [token]"""
        return self.prompt_tokens + self.output_tokens

    @property
    def mean_context_tokens(self) -> int:
        """Context at which TPOT is judged: the mean over the answer, rounded up. [token]"""
        return self.prompt_tokens + -(-self.output_tokens // 2)


DEFAULT_WORKLOAD = Workload()
"""What a function takes that is given none."""
