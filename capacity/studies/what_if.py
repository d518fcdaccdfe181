"""Changes of a case, shared by all studies: what may be tried, each computed as a case of its own, and the cheapest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Literal

from capacity.demand.formats import cache_format
from capacity.engines.budget import Budget
from capacity.errors import CapacityError
from capacity.estimate import memory
from capacity.estimate.case import Case
from capacity.inputs import LARGEST_COUNT
from capacity.results import Enough
from capacity.specs.base import Spec
from capacity.specs.deployment import AS_STORED, Deployment
from capacity.specs.hardware import HardwareSpec
from capacity.specs.world import Subject, WorldModelSpec, network
from capacity.units import number_format

COST_RANKS = {
    "schedule": 0,
    "format": 1,
    "steps": 2,
    "speculation": 3,
    "chunk": 4,
    "encoder": 5,
    "devices": 6,
    "part": 7,
}
FORMATS = ("fp8_e4m3", "int8", "int4_g128")  # of weights, tried where nothing else is said
CACHE_FORMATS = ("fp8_e4m3",)

State = Literal["met", "missed", "not excluded", "does not fit"]


@dataclass(frozen=True)
class Setup:
    """A model on a part under a deployment: what a change changes."""

    subject: Subject
    hardware: HardwareSpec
    deploy: Deployment

    @property
    def world(self) -> WorldModelSpec:
        """The subject of a study of world models.

        Raises
        ------
        CapacityError
            If it is a language model.
        """
        if not isinstance(self.subject, WorldModelSpec):
            raise CapacityError(f"{self.subject.name} is no world model")
        return self.subject


@dataclass(frozen=True)
class Alternative:
    """A setup to try: its kind, a description, and how to ask for it (options, a field of a file, or an argument)."""

    kind: str
    what: str
    given_as: str
    setup: Setup


@dataclass(frozen=True)
class Effect:
    """The figures of a setup in a study, named as in `Change`. [s], [B], [sequence]"""

    time_s: float
    saved_s: float
    margin_s: float | None
    needed_bytes: int
    max_batch: int
    fits: bool
    within: bool
    judged: bool


@dataclass(frozen=True)
class Change:
    """One change, computed as a case of its own: what it saves, and whether that is enough. [s], [B], [sequence]

    ``given_as`` is what to give to get this case: options of the command, a field of the model's file, or another
    argument; empty where ``what`` says it all. ``cost_rank`` orders kinds of change from a setting to new hardware.
    ``time_s`` is the time that the study judges: the latency of a cycle, a frame, or the TPOT; ``saved_s`` compares it
    with the present one, bound with bound where one of the two has no estimate. ``max_batch`` is what memory holds.
    ``within`` says that no limit in time is missed; ``judged`` that this rests on an estimate, or on the bound where
    that was chosen.
    """

    DERIVED: ClassVar = ("met", "state")

    kind: str
    what: str
    given_as: str
    cost_rank: int
    time_s: float
    saved_s: float
    margin_s: float | None
    needed_bytes: int
    max_batch: int
    fits: bool
    within: bool
    judged: bool

    @property
    def met(self) -> bool:
        """Whether it fits and no limit is missed; a bound counts only with ``bound_only``."""
        return self.state == "met"

    @property
    def state(self) -> State:
        """The verdict as a code."""
        if not self.fits:
            return "does not fit"
        if not self.within:
            return "missed"
        return "met" if self.judged else "not excluded"


@dataclass(frozen=True)
class NotEvaluated:
    """A change that has no answer, and why."""

    kind: str
    what: str
    reason: str


Attempt = Change | NotEvaluated


def change_of(kind: str, what: str, given_as: str, effect: Effect) -> Change:
    """A change with its effect."""
    return Change(
        kind=kind,
        what=what,
        given_as=given_as,
        cost_rank=COST_RANKS[kind],
        time_s=effect.time_s,
        saved_s=effect.saved_s,
        margin_s=effect.margin_s,
        needed_bytes=effect.needed_bytes,
        max_batch=effect.max_batch,
        fits=effect.fits,
        within=effect.within,
        judged=effect.judged,
    )


def attempts(alternatives: Iterable[Alternative], effect_of: Callable[[Setup], Effect]) -> Iterator[Attempt]:
    """Each alternative with its effect, or with the reason why it has no answer."""
    for item in alternatives:
        try:
            yield change_of(item.kind, item.what, item.given_as, effect_of(item.setup))
        except CapacityError as error:
            yield NotEvaluated(item.kind, item.what, str(error))


def split_attempts(results: Iterable[Attempt]) -> tuple[tuple[Change, ...], tuple[NotEvaluated, ...]]:
    """Changes with an answer, and those without."""
    results = tuple(results)
    changes = tuple([item for item in results if isinstance(item, Change)])
    return changes, tuple([item for item in results if isinstance(item, NotEvaluated)])


def cheapest(changes: Iterable[Change], states: tuple[State, ...] = ("met",)) -> Change | None:
    """The change that is enough at the least cost: by kind, then by the smallest effect that is enough."""
    enough = [change for change in changes if change.state in states]
    return min(enough, key=lambda change: (change.cost_rank, change.saved_s), default=None)


def max_batch_of(case: Case, budget: Budget, context_tokens: int) -> int:
    """Largest batch that memory holds at a context; 2^31 where memory does not limit it. [sequence]"""
    max_batch = memory.max_batch(case.memory, budget, case.deploy, context_tokens=context_tokens)
    return min(LARGEST_COUNT, int(max_batch))


def replaced(spec: Spec, changes: tuple[tuple[str, Any], ...]) -> Any:
    """A spec with dotted fields changed; the same changes of the same spec are validated once."""
    return _replaced(spec, changes, frozenset(spec.model_fields_set))


@lru_cache(maxsize=512)
def _replaced(spec: Spec, changes: tuple[tuple[str, Any], ...], fields_set: frozenset[str]) -> Any:
    return spec.replace(**dict(changes))


def in_formats(now: Setup, formats: Sequence[str]) -> Iterator[Alternative]:
    """Narrower weights, computed in the same format where the part can; formats that are no narrower are left out."""
    for name in formats:
        if number_format(name).effective_bits < number_format(_stored(now)).effective_bits:
            native = number_format(name).effective_bits == 8 and now.hardware.peak(name) is not None
            computed = name if native else now.deploy.activations
            deploy = replaced(now.deploy, (("weights", name), ("activations", computed)))
            yield Alternative("format", *_format_words(name, deploy), replace(now, deploy=deploy))


def _stored(now: Setup) -> str:
    """The format of most weights."""
    checkpoint = network(now.subject).checkpoint
    if now.deploy.weights != AS_STORED:
        return now.deploy.weights
    return checkpoint.default if checkpoint else "bf16"


def _format_words(name: str, deploy: Deployment) -> tuple[str, str]:
    """What a deployment of `in_formats` changes, in words and as options."""
    if deploy.activations == name:
        return f"weights and activations in {name}", f"--weights {name} --activations {name}"
    return f"weights in {name}", f"--weights {name}"


def in_cache_formats(now: Setup, formats: Sequence[str]) -> Iterator[Alternative]:
    """A narrower key-value cache; formats that are no narrower are left out."""
    for name in formats:
        if number_format(name).effective_bits < cache_format(0, network(now.subject), now.deploy).effective_bits:
            deploy = replaced(now.deploy, (("kv_cache", name),))
            yield Alternative("format", f"KV cache in {name}", f"--kv-cache {name}", replace(now, deploy=deploy))


def in_half_the_steps(now: Setup) -> Iterator[Alternative]:
    """Half the steps of a flow or diffusion head."""
    world = now.subject
    if isinstance(world, WorldModelSpec) and world.head.kind in ("flow", "diffusion") and world.head.steps > 1:
        half = world.head.steps // 2
        fewer = replace(now, subject=replaced(world, (("head.steps", half),)))
        what = f"{half} instead of {world.head.steps} steps"
        yield Alternative("steps", what, f"head.steps = {half}", fewer)


def with_other_models(now: Setup, models: Sequence[WorldModelSpec]) -> Iterator[Alternative]:
    """The same question about other models: a policy with other encoders."""
    for model in models:
        yield Alternative("encoder", model.name, "as MODEL", replace(now, subject=model))


def on_more_devices(now: Setup, enough: Enough | None) -> Iterator[Alternative]:
    """The fewest devices on which a case fits that does not fit on those it has, if there are any."""
    if enough is not None and enough.devices > now.deploy.devices:
        deploy = replaced(now.deploy, (("tensor_parallel", enough.tensor_parallel),))
        what = ", assuming ".join([f"{enough.devices} devices", *enough.assumed])
        yield Alternative("devices", what, f"--tensor-parallel {enough.tensor_parallel}", replace(now, deploy=deploy))


def on_parts(now: Setup, parts: Sequence[HardwareSpec]) -> Iterator[Alternative]:
    """The same case on other parts."""
    for part in parts:
        yield Alternative("part", part.name, "as PART", replace(now, hardware=part))
