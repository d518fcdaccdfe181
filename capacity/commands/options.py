"""Options that commands share, in groups that build a deployment and a workload."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import wraps
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from capacity.catalog.cases import read_deployment, read_workload
from capacity.errors import CapacityError
from capacity.inputs import whole
from capacity.specs.deployment import Deployment
from capacity.specs.model import MAX_LAYERS
from capacity.specs.workload import Workload
from capacity.studies.size import OperatingPoint
from capacity.units import parse_bytes, parse_seconds

T = TypeVar("T")
_OVERRIDE = re.compile(r"(?P<part>[a-z_]{1,40})(?:\[(?P<layers>[0-9:]{1,20})\])?:(?P<format>[A-Za-z0-9_]{1,60})")

_THOUSANDS = re.compile(r"([0-9]{1,9})([kK])")
_UNITS = {"k": 1000, "K": 1024}
_FORMATS, _WORK, _PLACING, _RESULT = "Number formats", "Workload", "Parallelism and engine", "Result"


def _option(name: str, metavar: str, about: str, panel: str) -> Any:
    return typer.Option(name, metavar=metavar, help=about, rich_help_panel=panel, show_default=False)


Json = Annotated[bool, typer.Option("--json", metavar="", help="Print JSON and nothing else.", rich_help_panel=_RESULT)]
Part = Annotated[str, typer.Argument(metavar="PART", help="A shipped id or a TOML file.", show_default=False)]
WorldModel = Annotated[
    str, typer.Argument(metavar="MODEL", help="A shipped world model or a file.", show_default=False)
]
OtherParts = Annotated[list[str] | None, _option("--other-part", "PART", "A part to try; repeats.", _RESULT)]
Out = Annotated[str | None, _option("--out", "FILE.json", "Also write the result to this file.", _RESULT)]


@dataclass
class DeploymentOptions:
    """The choices of the operator; options override the file."""

    weights: Annotated[str | None, _option("--weights", "FORMAT", "Weights (as stored).", _FORMATS)] = None
    activations: Annotated[
        str | None, _option("--activations", "FORMAT", "Compute format; by default as stored.", _FORMATS)
    ] = None
    kv_cache: Annotated[str | None, _option("--kv-cache", "FORMAT", "Key-value cache (16 bit).", _FORMATS)] = None
    override: Annotated[
        list[str] | None,
        _option("--override", "PART:FORMAT", 'Format of one part: lm_head:q6_k, "mlp[16:32]:int8"; repeats.', _FORMATS),
    ] = None
    tensor_parallel: Annotated[
        str | None, _option("--tensor-parallel", "N", "Devices that share each layer (1).", _PLACING)
    ] = None
    pipeline_parallel: Annotated[
        str | None, _option("--pipeline-parallel", "N", "Stages of consecutive layers (1).", _PLACING)
    ] = None
    pipeline_split: Annotated[
        str | None, _option("--pipeline-split", "N,N", "Layers of each stage (even).", _PLACING)
    ] = None
    data_parallel: Annotated[
        str | None, _option("--data-parallel", "N", "Ranks with separate sequences (1).", _PLACING)
    ] = None
    expert_parallel: Annotated[
        str | None, _option("--expert-parallel", "N", "Devices that experts spread over.", _PLACING)
    ] = None
    engine: Annotated[str | None, _option("--engine", "NAME", "Serving engine (reference).", _PLACING)] = None
    engine_version: Annotated[str | None, _option("--engine-version", "VERSION", "Its version.", _PLACING)] = None
    launch_mode: Annotated[
        str | None, _option("--launch-mode", "NAME", "eager, compiled, graph or tuned.", _PLACING)
    ] = None
    memory_fraction: Annotated[
        str | None,
        _option("--memory-fraction", "0..1", "Share of memory the engine takes (0.9).", _PLACING),
    ] = None
    prefill_chunk: Annotated[
        str | None, _option("--prefill-chunk", "TOKENS", "Tokens of one prefill pass (8192).", _PLACING)
    ] = None
    deployment: Annotated[
        str | None, _option("--deployment", "FILE", "Deployment fields as TOML or JSON.", _PLACING)
    ] = None

    def build(self, *, reserved_bytes: int | None = None) -> Deployment:
        """The deployment that file and options describe, with what is set aside for others. [B]"""
        file = file_option("deployment", self.deployment)
        values = {} if file is None else read_deployment(file)
        values |= _present("reserved_bytes", reserved_bytes)
        for name in ("weights", "activations", "kv_cache", "engine", "engine_version", "launch_mode"):
            values |= _present(name, getattr(self, name))
        for name in ("tensor_parallel", "pipeline_parallel", "data_parallel", "expert_parallel"):
            values |= _present(name, whole_option(name, getattr(self, name)))
        values |= _present("pipeline_split", _layers(self.pipeline_split))
        values |= _present("prefill_chunk_tokens", whole_option("prefill_chunk", self.prefill_chunk))
        values |= _present("overrides", _overrides(self.override))
        values |= _present("memory_fraction", number_option("memory_fraction", self.memory_fraction))
        return Deployment.parse(values, self.deployment or "deployment")


@dataclass
class WorkloadOptions:
    """The load on the deployment: either prompt, output and concurrency, or batch and context."""

    batch: Annotated[
        str | None, _option("--batch", "N", "Sequences at once; not with --prompt, --output, --concurrency.", _WORK)
    ] = None
    context: Annotated[
        str | None, _option("--context", "TOKENS", "Context at which memory and TPOT are judged.", _WORK)
    ] = None
    prompt: Annotated[str | None, _option("--prompt", "TOKENS", "Prompt of a request (2048).", _WORK)] = None
    output: Annotated[str | None, _option("--output", "TOKENS", "Answer of a request (256).", _WORK)] = None
    concurrency: Annotated[str | None, _option("--concurrency", "N", "Requests in flight (1).", _WORK)] = None
    requests_per_s: Annotated[str | None, _option("--requests-per-s", "RATE", "Arrival rate.", _WORK)] = None
    max_ttft: Annotated[str | None, _option("--max-ttft", "TIME", 'Objective, as in "500 ms".', _WORK)] = None
    max_tpot: Annotated[str | None, _option("--max-tpot", "TIME", 'Objective, as in "50 ms".', _WORK)] = None
    percentile: Annotated[str | None, _option("--percentile", "P", "Of the objectives, 0 to 100.", _WORK)] = None
    workload: Annotated[str | None, _option("--workload", "FILE", "Workload fields as TOML or JSON.", _WORK)] = None

    def build(self) -> Workload:
        """The workload that file and options describe."""
        file = file_option("workload", self.workload)
        values = {} if file is None else read_workload(file)
        for field, names in (("prompt_tokens", ("prompt", "context")), ("concurrency", ("concurrency", "batch"))):
            for name in names:  # only one of the two is given
                values |= _present(field, whole_option(name, getattr(self, name)))
        values |= _present("output_tokens", whole_option("output", self.output))
        for name in ("requests_per_s", "percentile"):
            values |= _present(name, number_option(name, getattr(self, name)))
        values |= _present("max_ttft_s", seconds_option("max_ttft", self.max_ttft))
        values |= _present("max_tpot_s", seconds_option("max_tpot", self.max_tpot))
        return Workload.parse(values, self.workload or "workload")

    def at(self, workload: Workload) -> OperatingPoint:
        """Where the figures are judged: at the context that was given, else as the workload says."""
        self._check_exclusive()
        if self.context is None:
            return OperatingPoint(
                workload.concurrency, workload.memory_tokens, workload.mean_context_tokens, workload.prompt_tokens
            )
        context = workload.prompt_tokens
        return OperatingPoint(workload.concurrency, context, context, context)

    def _check_exclusive(self) -> None:
        first = [name for name in ("batch", "context") if getattr(self, name) is not None]
        second = [name for name in ("prompt", "output", "concurrency") if getattr(self, name) is not None]
        if first and second:
            raise CapacityError(
                f"--{first[0]} and --{second[0]} do not go together; "
                "give either --batch and --context, or --prompt, --output and --concurrency"
            )


def expand_option_groups(function: Callable[..., None]) -> Callable[..., None]:
    """Expand dataclass parameters of a command into command-line options, one per field."""
    hints = get_type_hints(function, include_extras=True)
    parameters, groups = [], {}
    for name, parameter in inspect.signature(function).parameters.items():
        if is_dataclass(hints[name]):
            groups[name] = hints[name]
            parameters += _group_parameters(hints[name])
        else:
            parameters.append(parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY))

    @wraps(function)
    def command(**values: Any) -> None:
        built = {n: kind(**{f.name: values.pop(f.name) for f in fields(kind)}) for n, kind in groups.items()}
        function(**values, **built)

    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def _group_parameters(group: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in fields(group)
    ]


def _layers(text: str | None) -> list[int] | None:
    """Whole numbers with commas between them, or None. [layer]"""
    if text is None:
        return None
    return [whole_option("pipeline_split", part) or 0 for part in text.split(",")[:MAX_LAYERS]]


def _overrides(texts: list[str] | None) -> list[dict[str, str]] | None:
    """Overrides as they are typed: a part, on demand its layers in brackets, a colon and a number format."""
    if not texts:
        return None
    overrides = []
    for text in texts:
        match = _OVERRIDE.fullmatch(text)
        if match is None:
            raise CapacityError(f'--override must look like lm_head:q6_k or "mlp[16:32]:int8", got {text[:60]!r}')
        overrides.append({name: value for name, value in match.groupdict().items() if value is not None})
    return overrides


def _present(name: str, value: Any) -> dict[str, Any]:
    return {} if value is None else {name: value}


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def file_option(name: str, text: str | None) -> str | None:
    """The file that an option was given, or None."""
    if text == "":
        raise CapacityError(f"{_flag(name)} must name a file, got ''")
    return text


def whole_option(name: str, text: str | None, *, minimum: int = 1) -> int | None:
    """The whole number that an option was given, or None."""
    if text is None:
        return None
    digits = text.strip()
    if thousands := _THOUSANDS.fullmatch(digits):  # of tokens: 8k is 8,000, 8K is 8,192
        return int(whole(_flag(name), int(thousands[1]) * _UNITS[thousands[2]], minimum=minimum))
    if digits.removeprefix("-").isdecimal() and digits.isascii() and len(digits) < 30:
        return int(whole(_flag(name), int(digits), minimum=minimum))
    return int(whole(_flag(name), number_option(name, text), minimum=minimum))


def number_option(name: str, text: str | None) -> float | None:
    """The number that an option was given, or None."""
    if text is None:
        return None
    try:
        return float(text.encode("ascii"))  # digits of other scripts look like others than they are
    except ValueError:
        raise CapacityError(f"{_flag(name)} must be a number, got {text[:40]!r}") from None


def seconds_option(name: str, text: str | None) -> float | None:
    """The time that an option was given with its unit, or None. [s]"""
    return _parsed(name, _with_unit(name, text, "ms, s or min"), parse_seconds)


def bytes_option(name: str, text: str | None) -> int | None:
    """The size that an option was given with its unit, or None. [B]"""
    return _parsed(name, _with_unit(name, text, "GB or GiB"), parse_bytes)


def _with_unit(name: str, text: str | None, units: str) -> str | None:
    """The text, refused where it is a number alone: one of seconds would be read where milliseconds were meant."""
    number = (text or "").strip().lstrip("+-").replace(".", "", 1)
    if number.isdecimal() and number.strip("0"):
        raise CapacityError(f"{_flag(name)} needs a unit, {units}; got {(text or '')[:40]!r}")
    return text


def _parsed(name: str, text: str | None, parse: Callable[[str], T]) -> T | None:
    if text is None:
        return None
    try:
        return parse(text)
    except CapacityError as error:
        raise CapacityError(f"{_flag(name)}: {error}") from None
