"""What `sustained` answers: frozen values with their units."""

from __future__ import annotations

from dataclasses import dataclass

from capacity.results import OUTSIDE_MEMORY, OUTSIDE_TIME, Result

NOT_MODELLED = (
    *OUTSIDE_MEMORY,
    *OUTSIDE_TIME,
    "chunked prefill (a prompt is prefilled alone, while the sequences in decode wait), and prefixes in a cache",
    "waiting for a free sequence slot (an arrival waits for prompts ahead of it only)",
)


@dataclass(frozen=True)
class Figure:
    """One figure as a bound that no engine beats, on the datasheet, on measured ceilings, and calibrated.

    ``attainable`` is None where time on links is not modelled, ``value`` until a calibration applies.
    """

    bound: float
    roofline: float
    attainable: float | None
    value: float | None

    @property
    def best(self) -> float:
        """The calibrated figure, else the attainable one, else that of the roofline."""
        return next(item for item in (self.value, self.attainable, self.roofline) if item is not None)


@dataclass(frozen=True)
class Rates:
    """A replica with ``concurrency`` requests always in flight: rates per replica, times as a user sees them.

    ``ttft_s`` is that of a prompt which finds a free sequence and waits for the step in progress. [1/s], [s]
    """

    concurrency: int
    requests_per_s: Figure
    tokens_per_s: Figure
    tpot_s: Figure | None
    ttft_s: Figure


@dataclass(frozen=True)
class Arrivals:
    """Requests that arrive at random at a rate, on the fewest replicas that keep it up, judged on the best figures.

    ``max_requests_per_s`` is what one replica keeps up at its largest concurrency within the objectives;
    ``utilisation`` and ``concurrency`` are of each of the ``replicas``. ``ttft_s`` holds the mean wait for prompts
    ahead, ``ttft_percentile_s`` that at ``percentile``. ``within`` says whether these times keep the objectives, None
    where there are none. [1/s], [s]
    """

    requests_per_s: float
    max_requests_per_s: float
    replicas: int
    utilisation: float
    concurrency: int
    tpot_s: float
    ttft_s: float
    percentile: float | None
    ttft_percentile_s: float | None
    within: bool | None


@dataclass(frozen=True, repr=False, eq=False)
class Sustained(Result):
    """Sustained rates of one replica: at the given concurrency, at the largest within objectives, at an arrival rate.

    ``rests_on`` is the side that the largest concurrency and the arrivals are judged on: "value", "attainable" or
    "roofline"; ``largest`` is None where no request keeps the objectives, and ``ended_by`` says what ends it.
    """

    model: str
    part: str
    devices: int
    prompt_tokens: int
    output_tokens: int
    fits: bool
    at_concurrency: Rates
    largest: Rates | None
    ended_by: str
    rests_on: str
    max_ttft_s: float | None
    max_tpot_s: float | None
    arrivals: Arrivals | None
    evidence: dict[str, str]
    assumed: tuple[str, ...]
    notes: tuple[str, ...]
    not_modelled: tuple[str, ...] = NOT_MODELLED
